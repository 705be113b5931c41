"""One environment of a batch, as an ordinary Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv


class SingleEnv(gym.Env[Any, Any]):
    """A batch of one (SAME_STEP): the same episodes as row 0 of a larger one with the same seed."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        self.envs = envs
        self.observation_space, self.action_space = envs.single_observation_space, envs.single_action_space
        self._next: Any = None  # the first observation of the episode that the batch has begun already
        self._mask: Any = None  # of the present observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the seed makes it and those after it reproducible."""
        super().reset(seed=seed)
        if seed is None and self._next is not None:
            obs, self._next = self._next, None
            return self._seen(obs), {}
        self._next = None
        obs, _ = self.envs.reset(seed=seed)
        return self._seen(_row(obs)), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step; after the last of an episode, call reset. The last info holds the episode's figures, if any."""
        if self._next is not None:
            raise gym.error.ResetNeeded("the episode has ended; call reset() before step()")
        obs, rewards, terminated, truncated, infos = self.envs.step(np.asarray(action)[None])
        obs, info = _row(obs), {}
        if terminated[0] or truncated[0]:
            self._next, obs = obs, infos["final_obs"][0]
            figures = infos["final_info"]
            info = {name: figures[name][0] for name in figures if not name.startswith("_")}
        return self._seen(obs), float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

    def action_masks(self) -> Any:
        """Which actions are legal now, bool[A], as MaskablePPO of sb3-contrib asks for; all where nothing is masked."""
        if self._mask is not None:
            return np.asarray(self._mask, np.bool_)
        space = self.action_space
        if not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            raise TypeError(f"expected discrete actions for a mask, got {space}")
        return np.ones(int(space.n if isinstance(space, gym.spaces.Discrete) else space.nvec.sum()), np.bool_)

    def _seen(self, obs: Any) -> Any:
        self._mask = obs["action_mask"] if isinstance(obs, dict) and "action_mask" in obs else None
        return obs

    def close(self) -> None:
        self.envs.close()


def _row(obs: Any) -> Any:
    return {name: array[0] for name, array in obs.items()} if isinstance(obs, dict) else obs[0]
