"""The short way through `Discrete.contains` answers as the long one does."""

from __future__ import annotations

import copy
import pickle
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from shoal.vector.errors import EnvFault
from shoal.vector.make import make_vec
from shoal.vector.quick import QuickDiscrete, quicken

VALUES = [0, 1, 4, 5, -1, 2**70, True, 1.0, "1", None, np.int64(1), np.int64(5), np.int64(-1), np.int8(1), np.uint8(2),
          np.int32(4), np.float32(1), np.array(1), np.array([1]), np.array(7, np.int8)]  # fmt: skip

EXTREME = [
    Discrete(255, start=1, dtype=np.uint8),
    Discrete(28, start=100, dtype=np.int8),
    Discrete(10, start=2**63 - 10),
]


@pytest.mark.parametrize("space", [Discrete(5), Discrete(5, start=-1), Discrete(5, dtype=np.int32), *EXTREME], ids=str)
def test_it_answers_alike(space) -> None:
    """For values of every type, in and out of range."""
    quick = copy.deepcopy(space)
    quick.__class__ = QuickDiscrete
    values = [*VALUES, space.start, space.dtype.type(int(space.start) + int(space.n) - 1)]
    assert [quick.contains(value) for value in values] == [space.contains(value) for value in values]
    assert quick.contains(values[-1])
    assert quick == space
    assert space == quick
    assert repr(quick) == repr(space)
    assert pickle.loads(pickle.dumps(quick)) == space
    assert copy.deepcopy(quick).contains(np.int64(1)) == space.contains(np.int64(1))


def test_a_space_of_ones_own_stays_alone() -> None:
    """Who subclassed Discrete may have changed what it contains."""

    class Own(Discrete):
        pass

    env = gym.make("CartPole-v1")
    env.unwrapped.action_space = Own(2)
    quicken(env)
    assert type(env.unwrapped.action_space) is Own


def test_a_space_of_the_whole_class_stays_alone() -> None:
    """Other environments of that class may be somebody else's; and one without a space of its own is fine."""

    class Env(gym.Env):
        action_space = Discrete(2)

    class Bare(gym.Env):
        pass

    for kind in (Env, Bare):
        quicken(kind())
    assert type(Env.action_space) is Discrete


def test_the_batch_has_the_plain_space() -> None:
    """What users see is Gymnasium's class, on every backend."""
    with closing(make_vec("CartPole-v1", 2, backend="serial")) as envs:
        assert type(envs.single_action_space) is Discrete
        assert type(envs.envs[0].unwrapped.action_space) is QuickDiscrete


def test_a_wrong_action_is_still_refused() -> None:
    """By the environment's own assertion, as before."""
    with closing(make_vec("CartPole-v1", 2, backend="serial")) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvFault, match="invalid"):
            envs.step(np.array([0, 2]))
