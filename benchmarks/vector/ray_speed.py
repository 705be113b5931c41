"""The ray backend on this machine against the ideal of its cores: two actors of 32 environments.

python -m benchmarks.vector.ray_speed [--store]
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import Contestant, PeerMissing, busy_note, interleave, ratios, speeds, summary
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable

Say = Callable[[str], None]
NUM_ENVS = 64
_BY = "benchmarks.harness.contestants:"
CASES: tuple[tuple[str, dict[str, Any], float, float], ...] = (  # name, environment, seconds of a block, target in %
    ("500 us", {"cost_us": 500.0}, 1.5, 85.0),
    ("5 ms", {"cost_us": 5000.0}, 4.0, 95.0),
)


def rows(say: Say, rounds: int = 5) -> list[Row]:
    """Both costs of a step."""
    found: list[Row] = []
    for name, env, seconds, target in CASES:
        title = f"ray, {name}, {NUM_ENVS} environments: share of the {cores_usable()}-core ideal"
        with contextlib.ExitStack() as stack:
            contestants = [
                Contestant("ideal", _BY + "Ideal", env=env, num_envs=NUM_ENVS, processes=cores_usable()),
                Contestant("ray", _BY + "shoal_vector", env=env, num_envs=NUM_ENVS, backend="ray"),
            ]
            try:
                for one in contestants:
                    stack.enter_context(one)
            except PeerMissing as error:
                return [*found, Row(title, None, "%", target, note=str(error))]
            came = interleave(contestants, rounds, seconds)
        share = [100 * ratio for ratio in ratios(came, "ray", "ideal")]
        fastest = {one.name: round(statistics.median(speeds(came, one.name))) for one in contestants}
        say(f"{title}: {statistics.median(share):.0f} %, {fastest}")
        detail = {"steps_per_s": fastest, **summary(share)}
        found.append(Row(title, statistics.median(share), "%", target, note=busy_note(came), detail=detail))
    return found


if __name__ == "__main__":
    stored.main("benchmarks.vector.ray_speed", rows, __doc__)
