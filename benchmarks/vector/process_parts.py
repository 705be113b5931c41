"""What each part of the process backend's hand-off is worth: the whole beside itself without that part.

python -m benchmarks.vector.process_parts [--store]
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.contestants import Stepped, shoal_vector
from benchmarks.harness.interleave import Contestant, busy_note, interleave, ratios, summary
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable

# (environments, floats of an observation): batches of 2 ms, the second of pictures of 84 x 84, and one of 0.2 ms
CASES = ((64, 1212), (64, 7056), (8, 1212))
PARTS = {
    "": "as it is",
    "look": "without looking before sleeping",
    "rows": "with observations copied",
    "both": "without both",
}
COST_US = 50.0
ROUNDS, BLOCK_S = 11, 0.6


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` it is measured again, which takes two minutes."""
    return measured(say) if full else stored.read_rows("process_parts", "benchmarks.vector.process_parts")


def measured(say: Callable[[str], None]) -> list[Row]:
    """Shares of the ideal, as many bare processes as cores, for the whole and without each part."""
    found = []
    for num_envs, floats in CASES:
        options = {"env": {"cost_us": COST_US, "floats": floats}, "num_envs": num_envs}
        with contextlib.ExitStack() as stack:
            contestants = [
                Contestant("ideal", "benchmarks.harness.contestants:Ideal", processes=cores_usable(), **options)
            ]
            contestants += [
                Contestant(part, "benchmarks.vector.process_parts:without", part=part, **options) for part in PARTS
            ]
            for one in contestants:
                stack.enter_context(one)
            turns = interleave(contestants, ROUNDS, BLOCK_S)
        for part, what in PARTS.items():
            shares = [100 * ratio for ratio in ratios(turns, part, "ideal")]
            title = f"process, {COST_US:g} us, {num_envs} environments of {floats:,} floats, {what}: share of the ideal"
            row = Row(title, statistics.median(shares), "%", note=busy_note(turns), detail=summary(shares))
            say(f"{row.name}: {row.value:.1f} %")
            found.append(row)
    return found


def without(env: dict[str, Any], num_envs: int, part: str) -> Stepped:
    """In a process of its own: shoal's process backend without one of its parts."""
    from shoal.vector import batch
    from shoal.vector.workers import process

    if part in ("look", "both"):
        process.ProcessVectorEnv._workers_look_s = 0.0
    if part in ("rows", "both"):
        batch._WORTH_AIMING = 1 << 62
    return shoal_vector(env, num_envs, "process")


if __name__ == "__main__":
    stored.main("benchmarks.vector.process_parts", measured, __doc__)
