"""`--backend auto`: it measures, picks, says why, and leaves nothing behind."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from clock import slowness
from shoal.core.errors import EnvRaised
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector import choose as module
from shoal.vector.choose import choose, step_cost_s
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv


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


class Paused(TickEnv):
    """Its tenth step takes 0.1 s."""

    taken = 0

    def step(self, action: Any) -> Any:
        """Step, once with a pause."""
        self.taken += 1
        if self.taken == 10:
            time.sleep(0.1)
        return super().step(action)


class HasChildren(TickEnv):
    """Talks to a process of its own, as simulators do."""

    def __init__(self) -> None:
        super().__init__()
        child = multiprocessing.Process(target=time.sleep, args=(0,))
        child.start()
        child.join()


class Strict(gym.Env[Any, Any]):
    """In every state one action of five is legal, for each part of the action; any other is an error."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.observation_space = spaces.Dict(obs=spaces.Box(0, 1, (1,)), action_mask=spaces.MultiBinary(5 * parts))
        self.action_space = spaces.Discrete(5, start=2) if parts == 1 else spaces.MultiDiscrete([5] * parts)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin."""
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        """Refuse what is not legal."""
        drawn = (np.atleast_1d(action) - (2 if self.parts == 1 else 0)).tolist()
        if drawn != self.legal:
            raise ValueError(f"illegal action {drawn}, {self.legal} is legal")
        self.clock += 1
        return self._see(), 1.0, self.clock == 10, False, {}

    def _see(self) -> Any:
        self.legal = self.np_random.integers(5, size=self.parts).tolist()
        mask = np.eye(5, dtype=np.int8)[self.legal].ravel()
        return {"obs": np.zeros(1, np.float32), "action_mask": mask}


def test_cost_counts_resets() -> None:
    """With a reset of 20 ms after every step of 5 ms, a step costs 25 ms, which a median would not show."""
    assert 0.025 <= step_cost_s(SerialVectorEnv([lambda: Slow(1)])) < 0.1 * slowness()


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


@pytest.fixture
def all_in_the_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a step costs, all backends are tried, for a short time."""
    monkeypatch.setattr(module, "_TRIAL_S", 0.02)
    monkeypatch.setattr(module, "_HAND_OFF_S", 0.0)
    monkeypatch.setattr(module, "_CLEAR_S", 1e9)


@pytest.mark.usefixtures("all_in_the_race")
def test_in_between_all_are_measured() -> None:
    """Where any could win all run; the losers are closed, the winner starts as if new."""
    said: list[str] = []
    env: Any = make_vec(TickEnv, 8, workers=2, say=said.append)
    assert len(said) == 1
    assert all(f"{name} " in said[0] for name in ("measured serial", "process", "split"))
    assert len(multiprocessing.active_children()) == len(getattr(env, "pids", []))
    fresh = SerialVectorEnv([TickEnv] * 8)
    assert np.array_equal(env.reset(seed=3)[0], fresh.reset(seed=3)[0])
    assert np.array_equal(env.step(np.ones(8, int))[0], fresh.step(np.ones(8, int))[0])
    env.close()


@pytest.mark.usefixtures("all_in_the_race")
@pytest.mark.parametrize("clear_s", [1e9, 0.0], ids=["tried", "clear"])
def test_a_backend_that_cannot_be_had_is_out(monkeypatch: pytest.MonkeyPatch, clear_s: float) -> None:
    """A factory that holds a lock cannot be sent to workers: it is said, and serial is taken (M9)."""
    monkeypatch.setattr(module, "_CLEAR_S", clear_s)
    lock, said = threading.Lock(), list[str]()

    def locked() -> TickEnv:
        with lock:
            return TickEnv()

    env = make_vec(locked, 8, workers=2, say=said.append)
    assert isinstance(env, SerialVectorEnv)
    assert "backend process is out: TypeError: cannot pickle '_thread.lock' object" in " ".join(said)
    assert "backend serial" in said[-1]
    assert not multiprocessing.active_children()
    env.close()


@pytest.mark.usefixtures("all_in_the_race")
def test_an_environment_that_breaks_only_in_workers_is_stepped_here() -> None:
    """One that starts a process of its own cannot in a worker, which is a daemon (M9)."""
    said: list[str] = []
    env = make_vec(HasChildren, 2, workers=2, say=said.append)
    assert isinstance(env, SerialVectorEnv)
    assert "backend process is out: AssertionError while being built: daemonic processes" in said[0]
    env.close()


@pytest.mark.usefixtures("all_in_the_race")
def test_a_backend_that_fails_in_a_step_is_out() -> None:
    """Nothing stays open of it."""

    def serial() -> Any:
        return SerialVectorEnv([TickEnv] * 2)

    def process() -> Any:
        return ProcessVectorEnv([lambda: FaultyEnv("raise-step", at_step=3)] * 2, workers=2)

    said: list[str] = []
    env = choose(lambda: SerialVectorEnv([TickEnv]), 2, serial, process, None, 2, said.append)
    assert isinstance(env, SerialVectorEnv)
    assert said[0].startswith("backend process is out: ValueError in step")
    assert not multiprocessing.active_children()


def test_an_environment_that_cannot_be_built_at_all_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serial has nothing to fall back to: its fault is the environment's."""
    monkeypatch.setattr(module, "_HAND_OFF_S", 0.0)
    factories = [TickEnv, lambda: FaultyEnv("raise-init")]
    with pytest.raises(EnvRaised, match="broken on purpose"):
        make_vec(factories, 2, workers=2)
    assert not multiprocessing.active_children()


@pytest.mark.usefixtures("all_in_the_race")
def test_no_more_than_one_batch_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory, licences and ports: while auto decides, no more environments live than were asked for (M9)."""
    alive = most = 0

    class Counted(SerialVectorEnv):
        def __init__(self, count: int) -> None:
            nonlocal alive, most
            super().__init__([TickEnv] * count)
            alive += count
            most = max(most, alive)

        def close_extras(self, **kwargs: Any) -> None:
            nonlocal alive
            alive -= 0 if self.closed else self.num_envs
            super().close_extras(**kwargs)

    def batch() -> Counted:
        return Counted(6)

    env = choose(lambda: Counted(1), 6, batch, batch, batch, 2, lambda text: None)
    assert (alive, most) == (6, 6)
    env.close()


@pytest.mark.usefixtures("all_in_the_race")
@pytest.mark.parametrize("parts", [1, 2], ids=["Discrete", "MultiDiscrete"])
def test_only_legal_actions_are_tried(parts: int) -> None:
    """An environment that refuses illegal actions gets none of them from `auto` (M2)."""
    said: list[str] = []
    env = make_vec(lambda: Strict(parts), 4, workers=2, say=said.append)
    assert [line for line in said if " is out" in line] == []
    env.close()


def test_a_pause_does_not_count_as_the_cost_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step in hundreds takes 0.1 s, as a garbage collection may: a step still costs microseconds."""
    monkeypatch.setattr(module, "_PROBE_S", 0.02)
    assert step_cost_s(SerialVectorEnv([Paused])) < 1e-3 * slowness()


def test_no_garbage_is_collected_while_a_step_is_measured() -> None:
    """And afterwards it is again."""
    states: list[bool] = []

    class Seeing(TickEnv):
        def step(self, action: Any) -> Any:
            states.append(gc.isenabled())
            return super().step(action)

    step_cost_s(SerialVectorEnv([Seeing]))
    assert states[0], "the first step is not measured"
    assert not any(states[1:])
    assert gc.isenabled()


def test_flaky_environment_is_measured_with_restart() -> None:
    """The probe follows the fault policy: an environment that breaks now and then does not stop `auto`."""
    env = make_vec(lambda: FaultyEnv("raise-step", at_step=3), 2, on_fault="restart", max_restarts=10**6, workers=2)
    assert env.num_envs == 2
    env.close()
    with pytest.raises(EnvRaised):
        make_vec(lambda: FaultyEnv("raise-step", at_step=3), 2, on_fault="fail", workers=2)
