"""CPU-seconds count everybody who worked for a run."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.runs import usage
from shoal.testing.faults import TickEnv

BURN_S = 0.004


class Burning(TickEnv):
    """A step that takes CPU time."""

    def step(self, action: Any) -> Any:
        end = time.process_time() + BURN_S
        while time.process_time() < end:
            pass
        return super().step(action)


@pytest.mark.parametrize("backend", ["serial", "process", "split"])
def test_cpu_seconds_include_the_workers(backend: str, tmp_path: Path) -> None:
    """Under the fork server, too, whose workers are not our children."""
    steps = 4 * 32
    options: dict[str, Any] = {
        "num_envs": 4,
        **({} if backend == "serial" else {"workers": 2}),
        "rollout_steps": 16,
        "epochs": 2,
        "start_method": "forkserver",
        "hidden": (8,),
    }
    result = shoal.train(
        "Burning", env=Burning, backend=backend, runs_dir=str(tmp_path), stream=io.StringIO(), **options
    )
    assert result.cpu_s > 0.9 * steps * BURN_S


def test_without_proc_there_is_still_a_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On other systems children of our own are counted, and at least this process."""
    monkeypatch.setattr(usage, "_PROCESSES", tmp_path)
    clock = usage.Clock()
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    assert clock.cpu_s() >= 0.05
