"""An environment that does nothing but take time: what a vector backend adds to it is the backend's own cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np

FLOATS = 1212  # of an observation: one `rides` state
_DRAWN_AT_ONCE = 1024


class Synthetic(gym.Env[Any, Any]):
    """Burns `cost_us` microseconds of this thread's CPU time per step and returns `floats` float32; never ends.

    CPU time, not wall time: a process that is not running does not get its step for nothing, so that 64 of them
    on 2 cores cannot look as if they had 64. `exponential` draws each duration with that mean from the
    environment's own generator.

    >>> env = Synthetic(cost_us=10)
    >>> observation, info = env.reset(seed=0)
    >>> env.step(0)[0].shape
    (1212,)
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, cost_us: float, exponential: bool = False, floats: int = FLOATS) -> None:
        if not cost_us >= 0:
            raise ValueError(f"expected cost_us as a time of at least 0, got {cost_us}")
        self.cost_s, self.exponential = cost_us * 1e-6, exponential
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (floats,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self._observation = np.zeros(floats, np.float32)
        self._durations = self._draw()

    def _draw(self) -> Iterator[float]:
        while self.exponential:  # a batch at a time: one draw costs 1 us, much of a 50 us step
            yield from self.np_random.exponential(self.cost_s, _DRAWN_AT_ONCE).tolist()
        while True:
            yield self.cost_s

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._durations = self._draw()
        self._observation[:] = self.np_random.standard_normal(len(self._observation), np.float32)
        return self._observation.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        until = time.thread_time() + next(self._durations)
        observation = self._observation.copy()  # as most environments do: a fresh array each step
        while time.thread_time() < until:
            pass
        return observation, 1.0, False, False, {}


class SyntheticFrames(Synthetic):
    """The same with a grey picture, uint8[84, 84, 1], another one at each step, and 6 actions, as Atari's games have
    them. A learner stacks the last four.

    >>> SyntheticFrames(cost_us=10).reset(seed=0)[0].shape
    (84, 84, 1)
    """

    _KINDS = 6  # of pictures: drawing one costs more than a step is to take

    def __init__(self, cost_us: float) -> None:
        super().__init__(cost_us, floats=1)
        self.observation_space = gym.spaces.Box(0, 255, (84, 84, 1), np.uint8)
        self.action_space = gym.spaces.Discrete(6)
        self._pictures = np.zeros((self._KINDS, 84, 84, 1), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        gym.Env.reset(self, seed=seed)
        self._pictures = self.np_random.integers(0, 256, self._pictures.shape, np.uint8)
        self._at = 0
        return self._pictures[0].copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._at = (self._at + 1) % self._KINDS
        self._observation = self._pictures[self._at]
        return super().step(action)
