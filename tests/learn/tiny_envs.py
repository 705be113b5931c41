"""Environments small enough to know every number of."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTHS = (3, 5, 1, 4)  # steps of successive episodes
ENDS = ("terminated", "truncated", "both", "truncated")


class Scripted(gym.Env[Any, Any]):
    """Episodes of scripted length, end and reward. Shows (environment, episode, step, 1)."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, place: int = 0, masked: bool = False) -> None:
        self.place, self.masked, self.episode = place, masked, -1
        shown = spaces.Box(-1e6, 1e6, (4,), np.float32)
        mask = spaces.MultiBinary(3)
        self.observation_space = spaces.Dict({"obs": shown, "action_mask": mask}) if masked else shown
        self.action_space = spaces.Discrete(3)
        self.actions: list[int] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.clock = 0
        return self._see(False), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.actions.append(int(action))
        reward = reward_of(self.place, self.episode, self.clock)
        self.clock += 1
        over = self.clock == LENGTHS[(self.episode + self.place) % 4]
        how = ENDS[(self.episode + self.place) % 4]
        return self._see(over), reward, over and how != "truncated", over and how != "terminated", {}

    def _see(self, over: bool) -> Any:
        shown = np.array([self.place, self.episode, self.clock, 1], np.float32)
        if not self.masked:
            return shown
        # In a final state nothing is legal; elsewhere all but one action.
        mask = np.zeros(3, np.int8) if over else (np.arange(3) != self.clock % 3).astype(np.int8)
        return {"obs": shown, "action_mask": mask}


def reward_of(place: int, episode: int, clock: int) -> float:
    return float((7 * episode + 3 * clock + place) % 5) - 1.5


class Identity(gym.Env[Any, Any]):
    """Reward for repeating what is shown: a policy that cannot learn this cannot learn anything."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, kind: str = "discrete") -> None:
        self.kind = kind
        seen: spaces.Space[Any] = spaces.Discrete(4)
        if kind == "box":
            seen = spaces.Box(-1, 1, (1,), np.float32)
            self.action_space: spaces.Space[Any] = spaces.Box(-3.0, 1.0, (1,), np.float32)
        elif kind == "multi":
            seen = spaces.MultiDiscrete([2, 3])
            self.action_space = spaces.MultiDiscrete([2, 3])
        else:
            self.action_space = spaces.Discrete(4)
        masked = {"obs": seen, "action_mask": spaces.MultiBinary(4)}
        self.observation_space = spaces.Dict(masked) if kind == "masked" else seen
        self._seen = seen

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.kind == "box":
            wanted = -1.0 + 2.0 * float(self.shown[0])  # the whole range of the actions
            reward = 1.0 - min(abs(float(action[0]) - wanted), 2.0)
        elif self.kind == "multi":
            reward = float(np.mean(action == self.shown))
        else:
            if self.kind == "masked" and not self.legal[int(action)]:
                raise AssertionError(f"an action that is not legal was taken: {action} of {self.legal}")
            reward = float(int(action) == self.shown)
        self.clock += 1
        return self._see(), reward, False, self.clock == 16, {}

    def _see(self) -> Any:
        if self.kind == "box":
            self.shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        elif self.kind == "multi":
            self.shown = np.array([self.np_random.integers(2), self.np_random.integers(3)])
        else:
            self.shown = int(self.np_random.integers(4))
        if self.kind != "masked":
            return self.shown
        self.legal = np.zeros(4, np.int8)
        self.legal[[self.shown, (self.shown + 1 + self.np_random.integers(3)) % 4]] = 1
        return {"obs": self.shown, "action_mask": self.legal}
