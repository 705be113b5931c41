"""An environment whose observations are pictures, for tests and for nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Flashes(gym.Env):
    """Each step one half of the picture is lit; the action that names it earns 1. `parts` makes it a Dict."""

    def __init__(self, shape: tuple[int, ...] = (16, 24, 3), parts: bool = False, length: int = 12) -> None:
        self.length, self.parts, self.shape = length, parts, shape
        picture = spaces.Box(0, 255, shape, np.uint8)
        self.observation_space = (
            spaces.Dict(camera=picture, speed=spaces.Box(-1, 1, (3,)), gear=spaces.Discrete(2)) if parts else picture
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.lit)
        self.at += 1
        return self._look(), reward, False, self.at >= self.length, {}

    def _look(self) -> Any:
        self.lit = int(self.np_random.integers(2))
        picture = self.np_random.integers(0, 60, self.shape, dtype=np.uint8)
        pixels = picture if self.shape[2] <= self.shape[0] else picture.transpose(1, 2, 0)
        half = pixels.shape[1] // 2
        pixels[:, half * self.lit : half * (self.lit + 1)] += 180
        if not self.parts:
            return picture
        return {"camera": picture, "speed": self.np_random.uniform(-1, 1, 3).astype(np.float32), "gear": self.lit}
