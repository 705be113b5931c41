"""An environment that does not speak Gymnasium's API is told which part of it, and how it is meant."""

from __future__ import annotations

import io
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import shoal
from shoal.core.errors import EnvFault
from shoal.testing.faults import TickEnv
from shoal.vector.make import make_vec


class FourValues(TickEnv):
    """Steps like the old Gym."""

    def step(self, action: Any) -> Any:
        """Observation, reward, done, info."""
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class NoStepValue(TickEnv):
    """Forgot to return."""

    def step(self, action: Any) -> Any:
        """Nothing."""
        super().step(action)


class ObservationOnly(TickEnv):
    """Resets like the old Gym."""

    def reset(self, **options: Any) -> Any:
        """The observation alone."""
        return super().reset(**options)[0]


class NoSeed(TickEnv):
    """Knows no seed."""

    def reset(self) -> Any:  # type: ignore[override]
        """Whatever."""
        return super().reset()


class NoOptions(TickEnv):
    """Knows no options."""

    def reset(self, *, seed: int | None = None) -> Any:  # type: ignore[override]
        """Whatever."""
        return super().reset(seed=seed)


class NoObservationSpace(gym.Env[Any, Any]):
    """Forgot to say what it shows."""

    action_space = gym.spaces.Discrete(2)


class NoSpaceAtAll(TickEnv):
    """Says it in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = (4,)  # type: ignore[assignment]


class OwnTypeError(TickEnv):
    """A TypeError and a ValueError of the environment's own stay what they are."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Trip."""
        raise TypeError("reset() got an unexpected keyword argument 'seed', said a helper")


class OwnValueError(TickEnv):
    """The same in a step."""

    def step(self, action: Any) -> Any:
        """Trip."""
        return dict([(1, 2, 3)])  # type: ignore[list-item]


BUGS = {
    FourValues: r"from step\(\), got 4 values \(that is the API of the old Gym",
    NoStepValue: r"expected \(observation, reward, terminated, truncated, info\) from step\(\), got NoneType None",
    ObservationOnly: r"expected \(observation, info\) from reset\(\), got ndarray .*\(that is the API of the old Gym",
    NoSeed: r"reset\(\) of NoSeed takes no seed and no options: expected def reset\(self, \*, seed=None, opt",
    NoOptions: r"reset\(\) of NoOptions takes no options: expected def reset",
    NoObservationSpace: r"expected observation_space of NoObservationSpace to be a space .*it has none: set self\.obs",
    NoSpaceAtAll: r"expected observation_space of NoSpaceAtAll to be a space .*got tuple \(4,\)",
    OwnTypeError: "TypeError in reset: .*said a helper",
    OwnValueError: r"ValueError in step: dictionary update sequence element #0 has length 3",
}


@pytest.mark.parametrize("backend", ["serial", "process", "split"])
@pytest.mark.parametrize("env", BUGS, ids=lambda env: env.__name__)
def test_it_is_named(env: Any, backend: str) -> None:
    """In words, with the environment, on every backend."""
    with pytest.raises(EnvFault, match=BUGS[env]) as caught:
        play(env, backend)
    assert caught.value.env in (0, 1)


def play(env: Any, backend: str) -> None:
    """One step."""
    envs = make_vec(env, 2, backend=backend, workers=2)
    try:
        envs.reset(seed=0)
        envs.step(np.zeros(2, int))
    finally:
        envs.close()


def test_a_factory_that_makes_no_environment() -> None:
    """None, or the class of a class: said, with what came."""
    with pytest.raises(EnvFault, match=r"expected the factory to return an environment .*got NoneType None"):
        make_vec(lambda: None, 2, backend="serial")


def test_it_is_named_by_train(tmp_path: Any) -> None:
    """Through the user's door."""
    train: Any = shoal.train
    with pytest.raises(EnvFault, match="API of the old Gym"):
        train(env=FourValues, num_envs=2, steps=64, backend="serial", runs_dir=str(tmp_path), stream=io.StringIO())
