"""Policy `restart` when a whole worker goes: who begins anew, who steps on, and that no answer goes astray."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core.seeds import episode_seed
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.workers.process import ProcessVectorEnv


def _factories(kind: str, bad: int, once: Path, count: int = 4, at_step: int = 3) -> list[Any]:
    factories: list[Any] = [TickEnv] * count
    factories[bad] = lambda: FaultyEnv(kind, at_step=at_step, once=once)
    return factories


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.filterwarnings("ignore:fork after torch")
def test_killed_worker_is_replaced(method: str, tmp_path: Path) -> None:
    """Row 1, restart: the dead worker's environments begin their next episodes, recorded; the other's step on."""
    env = ProcessVectorEnv(
        _factories("kill", 1, tmp_path / "once"),
        workers=2,
        start_method=method,
        on_fault="restart",
        step_timeout_s=20.0,
    )
    env.reset(seed=9)
    dead, living = env.pids
    clocks = []
    for t in range(1, 7):
        obs, rewards, terminated, truncated, _ = env.step(np.ones(4, int))
        clocks.append(obs[:, 0].tolist())
        assert env.restarted.any() == (t == 3)
        if t == 3:
            assert env.restarted.tolist() == truncated.tolist() == [True, True, False, False]
            assert rewards.tolist() == [0, 0, 1, 1]
            assert not terminated.any()
    assert clocks == [[1] * 4, [2] * 4, [0, 0, 3, 3], [1, 1, 4, 4], [2, 2, 5, 5], [3, 3, 6, 6]]
    assert env.block.episodes.tolist() == [1, 1, 0, 0]
    assert env.block.seeds[:2].tolist() == [episode_seed(9, i, 1) for i in range(2)]
    assert env.pids[1] == living
    assert env.pids[0] != dead
    (fault,) = env.faults
    assert (fault.env, fault.pid, fault.step) == (1, dead, 3)
    assert f"environment 1 episode 1, seed {episode_seed(9, 1, 1)}" in str(fault)
    env.close()


@pytest.mark.parametrize("kind", ["kill", "hang"])
def test_both_workers_go_in_one_step(kind: str, tmp_path: Path) -> None:
    """Two workers lost in the same step are both replaced, and the next steps are in order."""
    factories = _factories(kind, 0, tmp_path / "a")
    factories[3] = lambda: FaultyEnv(kind, at_step=3, once=tmp_path / "b")
    env = ProcessVectorEnv(factories, workers=2, on_fault="restart", step_timeout_s=0.5)
    env.reset(seed=9)
    for _ in range(3):
        obs, *_ = env.step(np.ones(4, int))
    assert obs[:, 0].tolist() == [0, 0, 0, 0]
    assert env.step(np.ones(4, int))[0][:, 0].tolist() == [1, 1, 1, 1]
    assert [fault.env for fault in env.faults] == [0, 3]
    env.close()


def test_an_exception_beside_pending_answers(tmp_path: Path) -> None:
    """An environment rebuilt inside its worker costs the other workers nothing and shifts no answer."""
    env = ProcessVectorEnv(_factories("raise-step", 1, tmp_path / "once"), workers=4, on_fault="restart")
    env.reset(seed=9)
    for t in range(1, 8):
        obs, *_ = env.step(np.ones(4, int))
        assert obs[:, 0].tolist() == [t, t if t < 3 else t - 3, t, t]
    env.close()


def test_slice_in_flight_on_a_dead_worker(tmp_path: Path) -> None:
    """Slice 1's step, under way on the worker that dies in slice 0, is reported as restarted, not waited for."""
    # One worker; slice 0 is environments 0 and 1, slice 1 is 2 and 3.
    env = ProcessVectorEnv(_factories("kill", 0, tmp_path / "once"), workers=1, slices="double", on_fault="restart")
    env.reset(seed=9)
    for _ in range(2):
        env.step(np.ones(4, int))
    env.send(0, np.ones(2, int)), env.send(1, np.ones(2, int))
    for part in (0, 1):
        obs, rewards, _, truncated, _ = env.recv(part)
        assert obs[:, 0].tolist() == [0, 0]
        assert rewards.tolist() == [0, 0]
        assert truncated.all()
        assert env.restarted[env.slices[part]].all()
    obs, _, _, truncated, _ = env.step(np.ones(4, int))
    assert obs[:, 0].tolist() == [1, 1, 1, 1]
    assert not truncated.any()
    assert not env.restarted.any()
    assert len(env.faults) == 1
    env.close()


def test_slice_at_rest_on_a_dead_worker(tmp_path: Path) -> None:
    """Slice 1, received before the worker died, learns of its restart at its next step, which is not taken."""
    env = ProcessVectorEnv(
        _factories("kill", 0, tmp_path / "once", at_step=2), workers=1, slices="double", on_fault="restart"
    )
    env.reset(seed=9)
    env.step(np.ones(4, int))
    env.send(1, np.ones(2, int))
    assert env.recv(1)[0][:, 0].tolist() == [2, 2]
    env.send(0, np.ones(2, int))
    env.recv(0)
    assert env.restarted[:2].all()
    assert env.get_state()["action_counts"].tolist() == [0, 0, -1, -1]  # slice 1 cannot be replayed just now
    env.send(1, np.ones(2, int))  # chosen for observations of an episode that is gone
    obs, rewards, _, truncated, _ = env.recv(1)
    assert obs[:, 0].tolist() == [0, 0]
    assert rewards.tolist() == [0, 0]
    assert truncated.all()
    assert env.restarted[2:].all()
    env.send(1, np.ones(2, int))
    assert env.recv(1)[0][:, 0].tolist() == [1, 1]
    assert env.get_state()["action_counts"].tolist() == [0, 0, 1, 1]
    env.close()


def test_worker_lost_in_reset_and_between(tmp_path: Path) -> None:
    """Restart also covers a worker that dies in a reset, or while nobody looked."""
    env = ProcessVectorEnv(_factories("kill-reset", 0, tmp_path / "once", at_step=1), workers=2, on_fault="restart")
    obs, _ = env.reset(seed=9)
    assert obs[:, 0].tolist() == [0] * 4
    assert len(env.faults) == 1
    assert env.step(np.ones(4, int))[0][:, 0].tolist() == [1] * 4
    os.kill(env.pids[1], signal.SIGKILL)
    obs, _, _, truncated, _ = env.step(np.ones(4, int))
    assert obs[:, 0].tolist() == [2, 2, 0, 0]
    assert truncated.tolist() == [False, False, True, True]
    env.close()


def test_worker_lost_in_a_masked_reset() -> None:
    """Environments that were not to be reset but lost their worker report it at the next step."""
    env = ProcessVectorEnv([TickEnv] * 4, workers=2, on_fault="restart")
    env.reset(seed=9)
    env.step(np.ones(4, int))
    os.kill(env.pids[0], signal.SIGKILL)
    obs, _ = env.reset(options={"reset_mask": np.array([True, False, False, True])})
    assert obs[:, 0].tolist() == [0, 0, 1, 0]
    obs, _, _, truncated, _ = env.step(np.ones(4, int))
    assert obs[:, 0].tolist() == [0, 0, 2, 1]
    assert truncated.tolist() == [True, True, False, False]
    assert env.restarted.tolist() == [True, True, False, False]
    assert env.step(np.ones(4, int))[0][:, 0].tolist() == [1, 1, 3, 2]
    env.close()


def test_a_rebuild_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    """A constructor that fails during the first rebuild only costs one more restart."""

    def make() -> Any:
        if not (tmp_path / "kill").exists():
            return FaultyEnv("kill", at_step=1, once=tmp_path / "kill")
        return FaultyEnv("raise-init", once=tmp_path / "init")

    env = ProcessVectorEnv([make, TickEnv], workers=2, on_fault="restart", max_restarts=2)
    env.reset(seed=9)
    assert env.step(np.ones(2, int))[0][:, 0].tolist() == [0, 1]
    assert [type(fault).__name__ for fault in env.faults] == ["WorkerDied", "EnvRaised"]
    assert env.step(np.ones(2, int))[0][:, 0].tolist() == [1, 2]
    env.close()
