"""The task under its Gymnasium id, `shoal/Rides-v0`: one day at a time, or many."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions


class RidesEnv(gym.Env[Any, Any]):
    """One day at a time; the same days as row 0 of a `RidesVectorEnv` with the same seed."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, options: RidesOptions | None = None) -> None:
        self.envs = RidesVectorEnv(1, options)
        self.observation_space, self.action_space = self.envs.single_observation_space, self.envs.single_action_space
        self._next: Any = None  # the first observation of the day that the vector environment has begun already
        self._mask = np.ones(0, np.bool_)  # of the present request

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a day; the seed makes it and those after it reproducible."""
        super().reset(seed=seed)
        if seed is None and self._next is not None:
            obs, self._next = self._next, None
            return self._seen(obs), {}
        self._next = None
        obs, _ = self.envs.reset(seed=seed)
        return self._seen({name: array[0] for name, array in obs.items()}), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make one offer; after the last request of a day, call reset. The last info holds the day's figures."""
        if self._next is not None:
            raise gym.error.ResetNeeded("the day has ended; call reset() before step()")
        obs, rewards, terminated, _, infos = self.envs.step(np.asarray(action)[None])
        row, info = {name: array[0] for name, array in obs.items()}, {}
        if terminated[0]:
            self._next, row = row, infos["final_obs"][0]
            figures = infos["final_info"]
            info = {name: figures[name][0] for name in figures if not name.startswith("_")}
        return self._seen(row), float(rewards[0]), bool(terminated[0]), False, info

    def action_masks(self) -> Any:
        """Which offers are legal now, bool[A], as MaskablePPO of sb3-contrib asks for."""
        return self._mask

    def _seen(self, row: dict[str, Any]) -> dict[str, Any]:
        self._mask = np.asarray(row["action_mask"], np.bool_)
        return row

    def close(self) -> None:
        self.envs.close()
