"""Environments that exercise a backend: episodes of random length that end in both ways, masks, infos, odd spaces."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ACTIONS = {
    "discrete": spaces.Discrete(4),
    "start": spaces.Discrete(4, start=3),
    "multi": spaces.MultiDiscrete([3, 4]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "dict": spaces.Dict({"go": spaces.Discrete(3), "force": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.MultiDiscrete([2, 5]))),
}
OBSERVATIONS = {
    "box": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "double": spaces.Box(-np.inf, np.inf, (2, 2), np.float64),
    "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
    "discrete": spaces.Discrete(50),
    "masked": spaces.Dict({"obs": spaces.Box(-np.inf, np.inf, (3,), np.float32), "action_mask": spaces.MultiBinary(4)}),
    "nested": spaces.Tuple(
        (spaces.Dict({"a": spaces.Discrete(9), "b": spaces.MultiBinary(2)}), spaces.MultiDiscrete([7]))
    ),
}


class Drill(gym.Env[Any, Any]):
    """Every number follows from the seed and the actions taken; a third of the episodes is truncated."""

    metadata: dict[str, Any] = {"render_modes": [], "made_by": "drill"}  # noqa: RUF012

    def __init__(self, observation: str = "box", action: str = "discrete", infos: bool = True) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]
        self.with_infos = infos

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A new length and a new way to end."""
        super().reset(seed=seed)
        self.length, self.cut = int(self.np_random.integers(2, 12)), bool(self.np_random.integers(3) == 0)
        self.age, self.trace = 0, float(self.np_random.random())
        return self._observe(), {"begun": self.length, "options": sorted(options or {})} if self.with_infos else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The trace takes in every action."""
        self.age += 1
        flat = np.asarray(spaces.flatten(self.action_space, action), np.float64)
        self.trace = float((self.trace * 0.7 + flat @ np.arange(1, len(flat) + 1) + self.np_random.random()) % 10)
        last = self.age >= self.length
        infos: dict[str, Any] = {}
        if self.with_infos and self.age % 2:
            infos = {
                "score": self.trace,
                "count": self.age,
                "name": f"é{self.age}",
                "vector": np.full(2, self.age, np.float32),
                "nested": {"deep": self.age},
            }
        return self._observe(), self.trace, last and not self.cut, last and self.cut, infos

    def _observe(self) -> Any:
        return self._fill(self.observation_space)

    def _fill(self, space: spaces.Space[Any]) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._fill(part) for key, part in space.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._fill(part) for part in space)
        if isinstance(space, spaces.Discrete):
            return int(self.trace * 10) % int(space.n)
        if isinstance(space, spaces.MultiBinary):
            bits = (np.arange(space.n) * (self.age + 1) + int(self.trace * 7)) % 3 == 0
            bits[0] = True
            return bits.astype(np.int8)
        if isinstance(space, spaces.MultiDiscrete):
            return np.full(space.shape, self.age) % space.nvec
        return (np.arange(np.prod(space.shape)).reshape(space.shape) + self.trace).astype(space.dtype)


class Uneven(Drill):
    """A drill whose steps take different times, so that workers finish in any order."""

    def step(self, action: Any) -> Any:
        """Sleep, then step."""
        time.sleep(0.0005 * (int(self.trace * 10) % 3))
        return super().step(action)
