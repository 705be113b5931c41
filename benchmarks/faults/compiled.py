"""A compiled environment that breaks in step 3."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from shoal.compiled.vector import CompiledEnv


class Breaking(CompiledEnv):
    """What is wrong is said by its params."""

    state = np.dtype([("t", "i8")])
    params = np.dtype([("obs", "f8"), ("reward", "f8"), ("raises", "f8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        state.t = 0

    @staticmethod
    def step(state: Any, rng: Any, action: Any, params: Any) -> Any:
        state.t += 1
        if params.raises > 0 and state.t == 3:
            raise ValueError("broken on purpose")
        return params.reward if state.t == 3 else 0.0, False

    @staticmethod
    def observe(state: Any, out: Any, params: Any) -> None:
        out[0] = state.t
        out[1] = params.obs if state.t == 3 else 0.0
