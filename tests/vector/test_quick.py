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


@pytest.mark.parametrize("space", [Discrete(5), Discrete(5, start=-1), Discrete(5, dtype=np.int32)], ids=str)
def test_it_answers_alike(space) -> None:
    """For values of every type, in and out of range."""
    quick = copy.deepcopy(space)
    quick.__class__ = QuickDiscrete
    assert [quick.contains(value) for value in VALUES] == [space.contains(value) for value in VALUES]
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


def test_a_wrong_action_is_still_refused() -> None:
    """By the environment's own assertion, as before."""
    with closing(make_vec("CartPole-v1", 2, backend="serial")) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvFault, match="invalid"):
            envs.step(np.array([0, 2]))
