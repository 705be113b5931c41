"""The process backend without one of its parts is really without it."""

from __future__ import annotations

import pytest

from benchmarks.vector.process_parts import PARTS, without
from shoal.vector import batch
from shoal.vector.workers.process import ProcessVectorEnv


@pytest.mark.parametrize("part", PARTS)
def test_what_is_left_out(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks or not, it writes into rows or not, and it steps."""
    monkeypatch.setattr(ProcessVectorEnv, "_workers_look_s", ProcessVectorEnv._workers_look_s)  # undone at the end
    monkeypatch.setattr(batch, "_WORTH_AIMING", batch._WORTH_AIMING)
    timed = without({"cost_us": 1.0, "floats": 10_000}, 4, part)
    assert timed.block(0.05) > 0
    assert (ProcessVectorEnv._workers_look_s > 0) == (part in ("", "rows"))
    assert bool(timed.envs.block.aimed[0]) == (part in ("", "look"))
    timed.close()
