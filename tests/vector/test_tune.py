"""What `shoal tune` measures: legal steps only, in turns, and which of them it prefers."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from shoal.vector import tune as tuning
from shoal.vector.random_actions import RandomActions
from shoal.vector.tune import Trial, prefer, tune, worker_cpu_s

Factory = Callable[..., gym.Env[Any, Any]]


def strict(action_space: gym.Space[Any], choices: list[int]) -> Factory:
    """A maker of environments that allow one action of each choice, another in every state, and refuse the others."""

    class Strict(gym.Env[Any, Any]):
        def __init__(self) -> None:
            self.action_space = action_space
            mask = gym.spaces.Box(0, 1, (sum(choices),), np.int8)
            self.observation_space = gym.spaces.Dict({"obs": gym.spaces.Box(0, 1, (1,)), "action_mask": mask})

        def look(self) -> dict[str, Any]:
            self.legal = [int(self.np_random.integers(n)) for n in choices]
            mask = [np.eye(n, dtype=np.int8)[one] for n, one in zip(choices, self.legal, strict=True)]
            return {"obs": np.zeros(1, np.float32), "action_mask": np.concatenate(mask)}

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.look(), {}

        def step(self, action: Any) -> Any:
            start = getattr(self.action_space, "start", 0)
            if (np.atleast_1d(action) - start).tolist() != self.legal:
                raise ValueError(f"illegal action {action}, expected {self.legal}")
            return self.look(), 0.0, False, False, {}

    return Strict


SPACES = {
    "Discrete": (gym.spaces.Discrete(7), [7]),
    "Discrete from 3": (gym.spaces.Discrete(7, start=3), [7]),
    "MultiDiscrete": (gym.spaces.MultiDiscrete([3, 5]), [3, 5]),
    "MultiBinary": (gym.spaces.MultiBinary(2), [2, 2]),
}


@pytest.mark.parametrize("space", SPACES)
def test_only_legal_actions_are_stepped(space: str) -> None:
    """An environment that refuses everything else is measured; with plain random actions it would not be."""
    make = strict(*SPACES[space])
    (trial,) = tune(make, num_envs=(3,), backends=("serial",), seconds=0.02).trials
    assert trial.steps_per_s > 0
    vec = SyncVectorEnv([make] * 3)
    vec.reset(seed=0)
    vec.action_space.seed(0)
    plain = [vec.action_space.sample() for _ in range(20)]
    with pytest.raises(ValueError, match="illegal action"):
        list(map(vec.step, plain))


def test_every_legal_action_is_taken() -> None:
    """Random among the legal ones, not the first of them."""
    vec = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2)
    vec.single_observation_space = gym.spaces.Dict({"action_mask": gym.spaces.MultiBinary(5)})
    vec.single_action_space, vec.action_space = gym.spaces.Discrete(5), gym.spaces.MultiDiscrete([5, 5])
    legal = RandomActions(vec, seed=0)
    observations = {"action_mask": np.array([[0, 1, 0, 1, 1], [1, 0, 0, 0, 0]], np.int8)}
    drawn = np.stack([legal(observations) for _ in range(100)])
    assert drawn.dtype == np.int64
    assert set(drawn[:, 0]) == {1, 3, 4}
    assert set(drawn[:, 1]) == {0}
    vec.close()


def test_processes_are_measured_with_the_cpu_time_of_their_workers() -> None:
    """2 ms of work a step are 2 ms of CPU time a step, wherever it is done."""

    class Busy(gym.Env[Any, Any]):
        observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            until = time.thread_time() + 2e-3
            while time.thread_time() < until:
                pass
            return np.zeros(1, np.float32), 0.0, False, False, {}

    for _ in range(5):  # where others hold the machine up, waiting for the workers costs too
        found = tune(Busy, num_envs=(4,), backends=("process", "serial"), seconds=0.5, turns=2)
        assert [trial.backend for trial in found.trials] == ["serial", "process"]
        assert all(trial.slowest <= trial.steps_per_s <= trial.fastest for trial in found.trials)
        costs = [trial.cpu_s_per_step for trial in found.trials]
        if costs == pytest.approx([2e-3, 2e-3], rel=0.4):
            break
    assert costs == pytest.approx([2e-3, 2e-3], rel=0.4)


def test_backends_take_turns_without_garbage_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, round by round; collection is on again afterwards, and after a failure."""
    order: list[tuple[str, bool]] = []
    turn = tuning._Clock.turn

    def noted(clock: Any, seconds: float) -> None:
        order.append((type(clock.env).__name__, gc.isenabled()))
        turn(clock, seconds)

    monkeypatch.setattr(tuning._Clock, "turn", noted)
    tune("CartPole-v1", num_envs=(2,), backends=("serial", "process"), seconds=0.02, turns=3)
    assert order == [("SerialVectorEnv", False), ("ProcessVectorEnv", False)] * 3
    assert gc.isenabled()
    monkeypatch.setattr(tuning._Clock, "turn", lambda clock, seconds: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tune("CartPole-v1", num_envs=(2,), backends=("serial",), seconds=0.02)
    assert gc.isenabled()


def a_trial(backend: str, num_envs: int, steps_per_s: float, cpu_us: float | None) -> Trial:
    return Trial(backend, num_envs, 1, steps_per_s, steps_per_s, steps_per_s, None if cpu_us is None else cpu_us * 1e-6)


def test_of_equals_the_one_that_leaves_most_to_the_learner_is_preferred() -> None:
    """The fastest, unless another is within 5 % of it and takes less CPU time; unknown CPU time comes last."""
    serial, split = a_trial("serial", 8, 97_000, 10.0), a_trial("split", 8, 100_000, 20.0)
    assert prefer([split, serial]) is serial
    clear = a_trial("process", 32, 110_000, 21.0)
    assert prefer([split, serial, clear]) is clear
    small, large = a_trial("serial", 8, 100_000, 10.0), a_trial("serial", 32, 102_000, 10.0)
    assert prefer([large, small]) is small
    assert prefer([a_trial("process", 8, 100_000, None), serial]) is serial


def test_a_compiled_environment_is_tried_with_one_thread_and_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other backend can step it."""
    monkeypatch.setattr(tuning, "usable_cores", lambda: 2)
    found = tune("shoal/GridWorld-v0", num_envs=(4,), seconds=0.02)
    assert [(trial.backend, trial.threads) for trial in found.trials] == [("compiled", 1), ("compiled", 2)]
    assert found.trials[1].flags == "--backend compiled --num-envs 4 --env-threads 2"
    with pytest.raises(ValueError, match="expected no --backends"):
        tune("shoal/GridWorld-v0", num_envs=(4,), backends=("serial",))


def test_where_there_is_nothing_to_share_out_only_serial_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """One environment, or one core; and split needs a second process."""
    assert tuning._contenders("CartPole-v1", 1, None, None) == [("serial", 1)]
    monkeypatch.setattr(tuning, "usable_cores", lambda: 4)
    assert [name for name, _ in tuning._contenders("CartPole-v1", 8, None, None)] == ["serial", "process", "split"]
    assert [name for name, _ in tuning._contenders("CartPole-v1", 8, None, 1)] == ["serial", "process"]
    monkeypatch.setattr(tuning, "usable_cores", lambda: 1)
    assert tuning._contenders("CartPole-v1", 8, None, None) == [("serial", 1)]


def test_a_vector_environment_is_refused() -> None:
    """It could not be built anew for each backend."""
    env = SyncVectorEnv([lambda: gym.make("CartPole-v1")])
    with pytest.raises(TypeError, match="makes one"):
        tune(env)
    env.close()


def test_cpu_time_is_read_of_processes_that_live() -> None:
    """Of this one it is what its own clock says, to a hundredth."""
    assert worker_cpu_s([os.getpid()]) == pytest.approx(time.process_time(), abs=0.5)
    assert worker_cpu_s([]) == 0.0
