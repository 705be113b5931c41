"""What `--slices double` is worth: whole trainings with worker processes, beside the same in lockstep.

python -m benchmarks.vector.slices_speed [--store]

With two slices the policy acts for one half of the environments while the other half steps. That pays where acting
takes about as long as stepping; where both are short, twice as many messages cost more.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import Contestant, busy_note, interleave, ratios, speeds, summary
from benchmarks.harness.rows import Row

ROUNDS, BLOCK_S = 5, 2.0
CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("CartPole-v1", {"task": "CartPole-v1"}),
    ("steps of 50 us", {"task": "synthetic", "env": {"cost_us": 50.0}}),
    ("steps of 500 us", {"task": "synthetic", "env": {"cost_us": 500.0}}),
)
_BY = "benchmarks.ppo.ppo_speed:ShoalTraining"


def rows(say: Callable[[str], None]) -> list[Row]:
    """Steps per second of `double` over `lockstep`."""
    found_rows = []
    for name, given in CASES:
        with contextlib.ExitStack() as stack:
            both = [
                stack.enter_context(Contestant(slices, _BY, backend="process", slices=slices, **given))
                for slices in ("lockstep", "double")
            ]
            found = interleave(both, ROUNDS, BLOCK_S)
        over = ratios(found, "double", "lockstep")
        title = f"training, process, {name}, 64 environments: --slices double over lockstep"
        say(f"{title}: {statistics.median(over):.2f}")
        detail = {"steps_per_s": {one.name: round(statistics.median(speeds(found, one.name))) for one in both}}
        found_rows.append(
            Row(title, statistics.median(over), "x", note=busy_note(found), detail={**detail, **summary(over)})
        )
    return found_rows


if __name__ == "__main__":
    stored.main("benchmarks.vector.slices_speed", rows, __doc__)
