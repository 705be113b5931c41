"""A walk along a line, 1 for a step to the right."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Stroll(gym.Env):
    """The observation is a Dict, of which one part cannot be laid out: it takes a wrapper to train on it."""

    def __init__(self, length=5):
        text = spaces.Text(9)
        self.observation_space = spaces.Dict(place=spaces.Box(-100, 100, (1,)), sign=text)
        self.action_space, self.length = spaces.Discrete(2), length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0.0
        return self._see(), {}

    def step(self, action):
        self.place += 1 if action else -1
        return self._see(), float(action), abs(self.place) >= self.length, False, {}

    def _see(self):
        return {"place": np.float32([self.place]), "sign": "onwards"}
