"""The process backend against the ideal of this machine's cores, Gymnasium Async and SB3 Subproc.

python -m benchmarks.vector.process_speed [--store]
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import (
    Contestant,
    PeerMissing,
    busy_note,
    interleave,
    ratios,
    speeds,
    summary,
)
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable

Say = Callable[[str], None]
NUM_ENVS = 64
_BY = "benchmarks.harness.contestants:"

# (name, environment, rounds, seconds of a block, target in % of the ideal, target in times the better peer)
SYNTHETIC: tuple[tuple[str, dict[str, Any], int, float, float, float | None], ...] = (
    ("500 us", {"cost_us": 500.0}, 7, 1.0, 93.0, 1.5),
    ("50 us", {"cost_us": 50.0}, 7, 0.7, 85.0, 4.0),
    ("exponential 500 us, first-ready slices", {"cost_us": 500.0, "exponential": True}, 7, 2.0, 95.0, None),
)


def rows(say: Say) -> list[Row]:
    """Both fixed costs and the uneven one."""
    return [row for case in SYNTHETIC for row in synthetic(*case, say)]


def synthetic(
    name: str, env: dict[str, Any], rounds: int, seconds: float, share: float, times: float | None, say: Say
) -> list[Row]:
    """The process backend beside the ideal and the peers, on an environment that burns CPU time."""
    cores = cores_usable()
    title = f"process, {name}, {NUM_ENVS} environments"
    ours, options, peers = "FirstReady", {}, []
    if times is not None:
        ours, options, peers = "shoal_vector", {"backend": "process"}, ["gymnasium_async", "sb3_subproc"]
    missing = []
    with contextlib.ExitStack() as stack:
        contestants = [
            Contestant("ideal", _BY + "Ideal", env=env, num_envs=NUM_ENVS, processes=cores),
            Contestant("shoal", _BY + ours, env=env, num_envs=NUM_ENVS, **options),
        ]
        for peer in peers:
            try:
                contestants.append(Contestant(peer, _BY + peer, env=env, num_envs=NUM_ENVS))
            except PeerMissing as error:
                missing.append(str(error))
        for one in contestants:
            stack.enter_context(one)
        found = interleave(contestants, rounds, seconds)
    fastest = {one.name: statistics.median(speeds(found, one.name)) for one in contestants}
    say(f"{title}: " + ", ".join(f"{who} {speed:,.0f} steps/s" for who, speed in fastest.items()))
    of_ideal = [100 * ratio for ratio in ratios(found, "shoal", "ideal")]
    per_cpu = [100 * ratio for ratio in ratios(found, "shoal", "ideal", "cpu_s")]
    note = busy_note(found)
    detail = {
        "steps_per_s": {who: round(speed) for who, speed in fastest.items()},
        "steps_per_cpu_s": {who: round(statistics.median(speeds(found, who, "cpu_s"))) for who in fastest},
    }
    found_rows = [
        Row(f"{title}: share of the {cores}-core ideal", statistics.median(of_ideal),
            "%", share, note=note, detail={**detail, **summary(of_ideal)}),
        Row(f"{title}: share of the ideal per CPU-second", statistics.median(per_cpu), "%", detail=summary(per_cpu)),
    ]  # fmt: skip
    if times is None:
        return found_rows
    better = f"{title}: over the better of Gymnasium Async and SB3 Subproc"
    if missing:
        return [*found_rows, Row(better, None, "x", times, note="; ".join(missing))]
    over, most = (
        [min(pair) for pair in zip(*(ratios(found, who, peer) for peer in peers), strict=True)]
        for who in ("shoal", "ideal")
    )
    return [
        *found_rows,
        Row(better, statistics.median(over), "x", times, note=note, detail={**detail, **summary(over)}),
        Row(f"{better}: what the ideal would be", statistics.median(most), "x", detail=summary(most)),
    ]


if __name__ == "__main__":
    stored.main("benchmarks.vector.process_speed", rows, __doc__)
