"""`--backend auto`: it measures, picks, says why, and leaves nothing behind."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import numpy as np
import pytest

from shoal.vector import choose as module
from shoal.vector.choose import choose, step_cost_s
from shoal.vector.errors import EnvRaised
from shoal.vector.faults import FaultyEnv, TickEnv
from shoal.vector.make import make_vec
from shoal.vector.process import ProcessVectorEnv
from shoal.vector.serial import SerialVectorEnv


class Slow(TickEnv):
    """Steps of 5 ms, resets of 20 ms."""

    def reset(self, **kwargs: Any) -> Any:
        """Sleep, then reset."""
        time.sleep(0.02)
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        """Sleep, then step."""
        time.sleep(0.005)
        return super().step(action)


def test_cost_counts_resets() -> None:
    """With a reset of 20 ms after every step of 5 ms, a step costs 25 ms, which a median would not show."""
    assert 0.025 <= step_cost_s(lambda: SerialVectorEnv([lambda: Slow(1)])) < 0.1


def test_slow_steps_are_split() -> None:
    """A batch that takes long goes to processes, with the reason."""
    said: list[str] = []
    env = make_vec(Slow, 4, workers=2, say=said.append)
    assert isinstance(env, ProcessVectorEnv)
    assert "backend process" in said[0]
    assert "split over 2 workers" in said[0]
    env.close()


@pytest.mark.parametrize(("num_envs", "workers", "reason"), [(1, 2, "one environment"), (4, 1, "one core")])
def test_nothing_to_split(num_envs: int, workers: int, reason: str) -> None:
    """One environment or one core stays serial without any measuring."""
    said: list[str] = []
    env = make_vec(TickEnv, num_envs, workers=workers, say=said.append)
    assert isinstance(env, SerialVectorEnv)
    assert reason in said[0]


def test_in_between_both_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where either could win both run; the loser is closed, the winner starts as if new."""
    monkeypatch.setattr(module, "_TRIAL_S", 0.02)
    monkeypatch.setattr(module, "_HAND_OFF_S", 0.0)
    monkeypatch.setattr(module, "_CLEAR_S", 1e9)
    said: list[str] = []
    env: Any = make_vec(TickEnv, 8, workers=2, say=said.append)
    assert "measured serial" in said[0]
    assert len(multiprocessing.active_children()) == len(getattr(env, "pids", []))
    fresh = SerialVectorEnv([TickEnv] * 8)
    assert np.array_equal(env.reset(seed=3)[0], fresh.reset(seed=3)[0])
    assert np.array_equal(env.step(np.ones(8, int))[0], fresh.step(np.ones(8, int))[0])
    env.close()


def test_a_failing_contender_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the second backend cannot be made, the first is closed and the fault is told."""
    monkeypatch.setattr(module, "_HAND_OFF_S", 0.0)
    monkeypatch.setattr(module, "_CLEAR_S", 1e9)
    serial = SerialVectorEnv([TickEnv] * 2)

    def process() -> Any:
        return ProcessVectorEnv([TickEnv, lambda: FaultyEnv("raise-init")], workers=2)

    with pytest.raises(EnvRaised):
        choose(lambda: SerialVectorEnv([TickEnv]), 2, lambda: serial, process, None, 2, print)
    assert serial.closed
    assert not multiprocessing.active_children()


def test_flaky_environment_is_measured_with_restart() -> None:
    """The probe follows the fault policy: an environment that breaks now and then does not stop `auto`."""
    env = make_vec(lambda: FaultyEnv("raise-step", at_step=3), 2, on_fault="restart", max_restarts=10**6, workers=2)
    assert env.num_envs == 2
    env.close()
    with pytest.raises(EnvRaised):
        make_vec(lambda: FaultyEnv("raise-step", at_step=3), 2, on_fault="fail", workers=2)
