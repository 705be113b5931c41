"""Random actions for a batch, for measuring and for checking: only legal ones, where observations say which are."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from shoal.core.arrays import Array


class RandomActions:
    """Draws an action for every environment from what it observes now.

    >>> import gymnasium as gym
    >>> envs = gym.make_vec("CartPole-v1", 3, vectorization_mode="sync")
    >>> RandomActions(envs, seed=0)(envs.reset(seed=0)[0]).shape
    (3,)
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int) -> None:
        self.space, single = env.action_space, env.single_action_space
        self.space.seed(seed)
        self._rng = np.random.default_rng(seed)
        self._starts: list[int] | None = None  # of the actions' numbers, one for each part; None: no mask to heed
        observation = env.single_observation_space
        if not isinstance(observation, spaces.Dict) or "action_mask" not in observation.spaces:
            return
        if isinstance(single, spaces.Discrete):
            self._starts, self._counts = [int(single.start)], [int(single.n)]
        elif isinstance(single, spaces.MultiDiscrete):
            self._starts, self._counts = single.start.ravel().tolist(), single.nvec.ravel().tolist()
        elif isinstance(single, spaces.MultiBinary):
            self._counts = [2] * int(np.prod(single.shape))
            self._starts = [0] * len(self._counts)
        self._dtype, self._shape = single.dtype, single.shape

    def __call__(self, observations: Any) -> Any:
        """Actions `[N, ...]` of the batch's action space."""
        if self._starts is None:
            return self.space.sample()
        mask: Array = np.asarray(observations["action_mask"]).reshape(len(observations["action_mask"]), -1) != 0
        scores = np.where(mask, self._rng.random(mask.shape), -1.0)
        parts = np.split(scores, np.cumsum(self._counts[:-1]), axis=1)
        drawn = [part.argmax(1) + start for part, start in zip(parts, self._starts, strict=True)]
        return np.stack(drawn, 1).astype(self._dtype).reshape(len(mask), *(self._shape or ()))
