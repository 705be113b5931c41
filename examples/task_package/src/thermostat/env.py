"""A room that leaks heat: an ordinary Gymnasium environment, which knows nothing of training."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from thermostat.options import RoomOptions

HEAT_C = 3.0  # warmer by this much for a step of heating
OBSERVATIONS = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)
ACTIONS = gym.spaces.Discrete(2)


class Room(gym.Env[Any, Any]):
    """Observation: degrees too cold, and how cold it is outside. Actions: 0 off, 1 heat. Reward: minus the error."""

    def __init__(self, options: RoomOptions | None = None) -> None:
        self.options = options or RoomOptions()
        self.observation_space, self.action_space = OBSERVATIONS, ACTIONS

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._inside, self._outside = self.np_random.uniform(10.0, 25.0), self.np_random.uniform(-10.0, 10.0)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._inside += self.options.leak * (self._outside - self._inside) + HEAT_C * int(action)
        self._steps += 1
        error = abs(self._inside - self.options.target_c)
        return self._seen(), -error, False, self._steps >= self.options.horizon, {}

    def _seen(self) -> Any:
        too_cold = self.options.target_c - self._inside
        return np.array([too_cold, self.options.target_c - self._outside], np.float32)
