"""A training run whose environments break: it fails with the reason, or goes on without the broken part."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core.errors import EnvFault, EnvRaised, NotFinite, TooManyRestarts, WorkerDied
from shoal.learn.learner import Learner
from shoal.learn.rollout import Rollout
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.training import train

EPOCHS, STEPS, N = 3, 16, 4


def _train(tmp_path: Path, env: Any, backend: str, **options: Any) -> tuple[Any, Path]:
    settings = {
        "num_envs": N, "epochs": EPOCHS, "rollout_steps": STEPS, "backend": backend, "hidden": (8,),
        "runs_dir": str(tmp_path / "runs"), "name": "run", "on_fault": "restart", "step_timeout": 10.0, **options,
    }  # fmt: skip
    if backend != "serial":
        settings = {"workers": 2, **settings}
    return train("FaultyTick", env=env, stream=io.StringIO(), **settings), tmp_path / "runs" / "run"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rollouts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """(valid, broken, finite) of every rollout that the learner saw."""
    seen: list[Any] = []
    estimate = Learner.estimate

    def spy(self: Learner, rollout: Rollout) -> Any:
        finite = all(np.isfinite(array).all() for array in (*rollout.observations, rollout.rewards))
        seen.append((rollout.valid.copy(), rollout.broken.copy(), finite))
        batch = estimate(self, rollout)
        assert batch is not None
        assert len(batch) == rollout.valid.sum()
        return batch

    monkeypatch.setattr(Learner, "estimate", spy)
    return seen


@pytest.mark.parametrize(
    ("backend", "kind", "lost"),
    [
        ("serial", "raise-step", 1),
        ("serial", "nan-obs", 1),
        ("process", "raise-step", 1),
        ("process", "nan-reward", 1),
        ("process", "kill", 2),  # a dead worker takes both its environments with it
    ],
)
def test_training_goes_on_without_the_broken_trajectory(
    backend: str, kind: str, lost: int, tmp_path: Path, rollouts: list[Any]
) -> None:
    """Restart: the run completes, the broken episode is masked from its start to the fault, counted and recorded."""
    result, run = _train(tmp_path, lambda: FaultyEnv(kind, at_step=5, once=tmp_path / "once"), backend)
    assert result.status == "finished"
    assert result.epochs == EPOCHS
    assert result.restarts == 1
    valid, broken, _ = rollouts[0]
    assert all(finite for _, _, finite in rollouts)
    envs = np.flatnonzero(broken.any(0))
    assert len(envs) == lost
    assert broken.sum() == lost
    for env in range(N):
        masked = list(range(5)) if env in envs else []
        assert np.flatnonzero(~valid[:, env]).tolist() == masked
    assert all(later.all() for later, _, _ in rollouts[1:])
    rows = _lines(run / "metrics.jsonl")
    assert [(row["episodes/broken"], row["steps/lost"]) for row in rows] == [(lost, 5 * lost)] * EPOCHS
    assert f"1 fault: environments were restarted, {5 * lost} steps were lost" in "\n".join(result.lines())
    (event,) = [event for event in _lines(run / "events.jsonl") if event["event"] == "restart"]
    assert "seed" in event["text"]
    assert "episode 1" in event["text"]


@pytest.mark.parametrize(
    ("backend", "kind", "error"),
    [("serial", "raise-step", EnvRaised), ("process", "nan-obs", NotFinite), ("process", "kill", WorkerDied)],
)
def test_training_fails_with_the_reason(backend: str, kind: str, error: type[EnvFault], tmp_path: Path) -> None:
    """Fail: the fault reaches the caller, the run says why it failed, and what was saved before is whole."""
    with pytest.raises(error):
        _train(tmp_path, lambda: FaultyEnv(kind, at_step=20), backend, on_fault="fail", save_interval=1)
    run = tmp_path / "runs" / "run"
    status = json.loads((run / "status.json").read_text())
    assert status["status"] == "failed"
    assert error.__name__ in status["message"]
    assert len(_lines(run / "metrics.jsonl")) == 1
    result, _ = train("FaultyTick", env=TickEnv, resume=run, epochs=2, stream=io.StringIO()), None
    assert result.status == "finished"


def test_crash_loop_stops_the_run(tmp_path: Path) -> None:
    """Row 7: a run whose environments break at every step ends with the count of restarts."""
    with pytest.raises(TooManyRestarts, match="3 are allowed"):
        _train(tmp_path, lambda: FaultyEnv("raise-step", at_step=1), "process", max_restarts=3)


@pytest.mark.parametrize("slices", ["double", "ready"])
def test_slices_survive_a_dead_worker(slices: str, tmp_path: Path, rollouts: list[Any]) -> None:
    """With sliced collection, too, a killed worker costs its own episodes only, and every masked row belongs to one."""
    result, _ = _train(tmp_path, lambda: FaultyEnv("kill", at_step=5, once=tmp_path / "once"), "process", slices=slices)
    assert result.status == "finished"
    assert result.restarts == 1
    valid, broken, _ = rollouts[0]
    assert broken.sum() == 2
    for env in range(N):
        (ends,) = np.flatnonzero(broken[:, env]).tolist() or [-1]
        assert np.flatnonzero(~valid[:, env]).tolist() == list(range(ends + 1))
    assert all(finite for _, _, finite in rollouts)


def test_a_fault_that_ends_the_run_leaves_a_checkpoint_of_the_last_epoch(tmp_path: Path) -> None:
    """However far away the next one was."""
    with pytest.raises(EnvFault):
        _train(tmp_path, lambda: FaultyEnv("raise-step", at_step=20), "serial", on_fault="fail", save_interval=100)
    run = tmp_path / "runs" / "run"
    rows = (run / "metrics.jsonl").read_text().splitlines()
    assert len(rows) >= 1
    assert f"{len(rows):06d}" in " ".join(path.name for path in (run / "checkpoints").iterdir())
