"""The serial backend's own behaviour: what it builds, calls and closes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from shoal.core.errors import EnvRaised
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv


class Counting(TickEnv):
    """Counts how many are open."""

    open = 0

    def __init__(self) -> None:
        super().__init__()
        Counting.open += 1

    def close(self) -> None:
        Counting.open -= 1


def test_builds_exactly_as_many_as_asked_for() -> None:
    """There is no probe besides the environments themselves, and none is left open."""
    env = SerialVectorEnv([Counting] * 5, slices=2)
    assert Counting.open == 5
    assert len(env.envs) == 5
    env.close()
    env.close()
    assert Counting.open == 0


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("place", [0, 2, 4])
def test_failing_constructor_names_its_environment_and_leaves_none_open(place: int, slices: int) -> None:
    """The error names the environment; its siblings are closed."""
    factories: list[Any] = [Counting] * 5
    factories[place] = lambda: FaultyEnv("raise-init")
    with pytest.raises(EnvRaised, match="while being built") as caught:
        SerialVectorEnv(factories, slices=slices)
    assert caught.value.env == place
    assert Counting.open == 0


def test_call() -> None:
    """Attributes are read, methods called, a mistake names environment and cause and breaks nothing."""
    env = SerialVectorEnv([lambda: TickEnv(3), lambda: TickEnv(4)])
    env.reset(seed=0)
    assert env.call("length") == (3, 4)
    assert [obs.tolist() for obs in env.call("_observe", 1)] == [
        obs.tolist() for obs in (e._observe(1) for e in env.envs)
    ]
    with pytest.raises(EnvRaised, match="AttributeError in call") as caught:
        env.call("nonsense")
    assert caught.value.env == 0
    env.step(np.zeros(2, int))


def test_no_environments() -> None:
    """An empty list is refused."""
    with pytest.raises(ValueError, match="at least one environment"):
        SerialVectorEnv([])


def test_close_raises_once() -> None:
    """What an environment's close raised is raised by the first close; the second is quiet."""
    env = SerialVectorEnv([lambda: FaultyEnv("raise-close")])
    with pytest.raises(EnvRaised, match="in close"):
        env.close()
    env.close()


def test_keyboard_interrupt_needs_a_reset() -> None:
    """After Ctrl-C inside a step the batch wants a reset, and then goes on."""

    class Interrupting(TickEnv):
        def step(self, action: Any) -> Any:
            if self.steps == 1:
                raise KeyboardInterrupt
            return super().step(action)

    env = SerialVectorEnv([Interrupting])
    env.reset(seed=0)
    env.step(np.zeros(1, int))
    with pytest.raises(KeyboardInterrupt):
        env.step(np.zeros(1, int))
    with pytest.raises(RuntimeError, match="reset"):
        env.step(np.zeros(1, int))
    obs, _ = env.reset(seed=0)
    assert obs[0, 0] == 0
    env.step(np.zeros(1, int))


@pytest.mark.parametrize("backend", ["serial", "process", "split"])
def test_the_users_spaces_stay_the_users(backend: str) -> None:
    """No backend changes an environment's space, nor puts another in its place (one of shoal's own once stayed after
    close, and could not be unpickled without shoal)."""
    shared = gym.spaces.Discrete(2)

    class Own(TickEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = shared

    with closing(make_vec(Own, 4, backend=backend)) as envs:
        envs.reset(seed=0)
        envs.step(np.zeros(4, int))
        assert {type(space) for space in envs.call("action_space")} == {gym.spaces.Discrete}
        if backend == "serial":
            assert all(env.unwrapped.action_space is shared for env in envs.envs)
    assert type(shared) is gym.spaces.Discrete
