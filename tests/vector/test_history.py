"""Saving a batch without pickling: seeds, actions and observations lead back to where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drill import Drill
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector import history
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv

BATCHES: dict[str, Any] = {
    "serial": SerialVectorEnv,
    "serial-double": lambda factories: SerialVectorEnv(factories, slices=2),
    "process": lambda factories: ProcessVectorEnv(factories, workers=2),
    "process-double": lambda factories: ProcessVectorEnv(factories, workers=2, slices="double"),
}


def _run(env: Any, steps: int, seed: int = 5) -> list[Any]:
    env.action_space.seed(seed)
    kept = []
    for _ in range(steps):
        obs, rewards, terminated, truncated, _ = env.step(env.action_space.sample())
        kept += [*env.block.observation_layout.take_apart(obs), rewards, terminated, truncated]
    return [array.tolist() for array in kept]


@pytest.mark.parametrize("action", ["discrete", "multi", "box", "dict", "tuple"])
@pytest.mark.parametrize(("before", "after"), [("serial", "process-double"), ("process", "serial-double")])
def test_state_round_trip_in_mid_episode(before: str, after: str, action: str) -> None:
    """A batch saved in mid-episode goes on to the same numbers in another batch, on another backend."""
    factories = [lambda: Drill("box", action)] * 5
    old, new = BATCHES[before](factories), BATCHES[after](factories)
    old.reset(seed=1)
    _run(old, 17)
    state = old.get_state()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in state.values())
    assert state["action_counts"].max() > 0
    assert new.set_state(state) == []
    again = new.get_state()
    assert all(np.array_equal(state[name], again[name]) for name in state)
    assert _run(new, 30) == _run(old, 30)
    old.close(), new.close()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 4))
def test_marked_state_is_of_the_mark(before: int, after: int, num_envs: int) -> None:
    """However far the batch goes on, `marked_state` leads back to the mark."""
    env = SerialVectorEnv([Drill] * num_envs)
    env.reset(seed=2)
    _run(env, before)
    env.mark()
    now = env.get_state()
    going_on = _run(env, after)
    marked = env.marked_state()
    assert all(np.array_equal(now[name], marked[name]) for name in now)
    other = SerialVectorEnv([Drill] * num_envs)
    assert other.set_state(marked) == []
    assert _run(other, after) == going_on


def test_marked_state_needs_a_mark() -> None:
    """Without a mark, and after a full reset, there is nothing to go back to."""
    env = SerialVectorEnv([Drill])
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="mark"):
        env.marked_state()
    env.mark()
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="mark"):
        env.marked_state()


class Moody(TickEnv):
    """Not deterministic: every object draws its own number."""

    def reset(self, **kwargs: Any) -> Any:
        super().reset(**kwargs)
        self.drawn = np.array([id(self) % 9973, np.random.default_rng().random()])
        return self._observe(0), {}


@pytest.mark.parametrize("batch", ["serial", "process"])
def test_environment_that_is_not_deterministic_is_named(batch: str) -> None:
    """An environment that does not come back to the observation saved is reported by its index."""
    factories = [TickEnv, Moody, TickEnv]
    old, new = BATCHES[batch](factories), BATCHES[batch](factories)
    old.reset(seed=0)
    _run(old, 3)
    assert new.set_state(old.get_state()) == [1]
    old.close(), new.close()


def test_environment_that_ends_too_early_is_named() -> None:
    """A shorter episode than the one saved is reported, and the batch goes on with a new one."""
    old, new = SerialVectorEnv([TickEnv, TickEnv]), SerialVectorEnv([TickEnv, lambda: TickEnv(2)])
    old.reset(seed=0)
    _run(old, 3)
    assert new.set_state(old.get_state()) == [1]
    new.step(np.zeros(2, int))
    assert new.get_state()["action_counts"].tolist() == [4, 1]


def test_fault_during_a_replay_is_survived_with_restart() -> None:
    """With on_fault=restart a resume goes on without the broken episode and names the environment."""
    old = SerialVectorEnv([TickEnv, TickEnv])
    old.reset(seed=0)
    _run(old, 4)
    new = SerialVectorEnv([TickEnv, lambda: FaultyEnv("raise-step", at_step=2)], on_fault="restart")
    assert new.set_state(old.get_state()) == [1]
    assert [fault.env for fault in new.faults] == [1]


def test_limit_of_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """An episode longer than the limit is not kept whole: memory stays bounded, and a resume names the environment."""
    monkeypatch.setattr(history, "REPLAY_STEPS", 600)
    env = SerialVectorEnv([lambda: TickEnv(10**9), lambda: TickEnv(50)])
    env.reset(seed=0)
    for _ in range(1500):
        env.step(np.zeros(2, int))
        assert len(env._history.steps[0]) <= 600 + 256
    state = env.get_state()
    assert state["action_counts"].tolist() == [-1, 0]
    new = SerialVectorEnv([lambda: TickEnv(10**9), lambda: TickEnv(50)])
    assert new.set_state(state) == [0]
    assert new.block.episodes.tolist() == [1, 30]


def test_limit_is_also_one_of_bytes() -> None:
    """4,096 environments keep fewer steps than 4, so that all actions together stay below 128 MB."""
    few, many = SerialVectorEnv([TickEnv] * 4), SerialVectorEnv([TickEnv] * 4096)
    assert few._history.limit == history.REPLAY_STEPS
    assert many._history.limit * 4096 * 16 <= history.REPLAY_BYTES
    assert many._history.limit > 1000


def test_history_is_forgotten_with_its_episodes() -> None:
    """A million steps of short episodes keep only the unfinished ones, and a mark keeps what it needs."""
    env = SerialVectorEnv([lambda: TickEnv(7), lambda: TickEnv(11)])
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    env.mark()
    for _ in range(1000):
        env.step(np.zeros(2, int))
    assert len(env._history.steps[0]) > 1000
    assert env.marked_state()["action_counts"].tolist() == [1, 1]
    env.mark()
    for _ in range(600):
        env.step(np.zeros(2, int))
    assert len(env._history.steps[0]) < 1000


@pytest.mark.parametrize("change", ["envs", "actions"])
def test_state_that_does_not_fit_is_refused(change: str) -> None:
    """A state of another number of environments, or one that lost actions, says so."""
    env = SerialVectorEnv([TickEnv] * 2)
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    state = env.get_state()
    if change == "envs":
        with pytest.raises(ValueError, match="of 2 environments, this batch has 3"):
            SerialVectorEnv([TickEnv] * 3).set_state(state)
    else:
        state["actions.0"] = state["actions.0"][:-1]
        with pytest.raises(ValueError, match="counts 2 actions and holds"):
            env.set_state(state)


class Unfaithful(TickEnv):
    """Once `after` is there, the second step of its first episode is illegal: a simulator that does not repeat itself
    and is strict about what may be done."""

    def __init__(self, after: Path) -> None:
        super().__init__()
        self.after, self.begun = after, 0

    def reset(self, **options: Any) -> Any:
        """Count."""
        self.begun += 1
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        """Refuse."""
        if self.after.exists() and self.begun == 1 and self.steps == 1:
            raise ValueError("illegal now")
        return super().step(action)


@pytest.mark.parametrize("kind", [SerialVectorEnv, ProcessVectorEnv])
@pytest.mark.parametrize("on_fault", ["fail", "restart"])
def test_a_replay_that_fails_did_not_come_back(kind: Any, on_fault: str, tmp_path: Path) -> None:
    """It ends no resume, whatever the policy: the environment is in its next episode, and is told as such (m15)."""
    factories: list[Any] = [TickEnv, lambda: Unfaithful(tmp_path / "marker"), TickEnv]
    before = kind(factories, on_fault=on_fault)
    before.reset(seed=1)
    for _ in range(4):
        before.step(np.ones(3, int))
    state = before.get_state()
    before.close()
    (tmp_path / "marker").touch()
    after = kind(factories, on_fault=on_fault)
    assert after.set_state(state) == [1]
    assert [fault.env for fault in after.faults] == [1]
    assert "illegal now" in str(after.faults[0])
    assert "episode 1" in str(after.faults[0])
    assert after.step(np.ones(3, int))[0][:, 0].tolist() == [5, 1, 5]
    assert after.get_state()["action_counts"].tolist() == [5, 1, 5]
    after.close()


def test_replays_that_fail_spend_no_restarts(tmp_path: Path) -> None:
    """They are told, but are no crash loop: with the policy to fail there is no budget to spend."""
    factories: list[Any] = [lambda: Unfaithful(tmp_path / "marker")] * 15
    before, after = SerialVectorEnv(factories), SerialVectorEnv(factories)
    before.reset(seed=1)
    for _ in range(3):
        before.step(np.ones(15, int))
    (tmp_path / "marker").touch()
    assert len(after.set_state(before.get_state())) == 15
    assert len(after.faults) == 15
