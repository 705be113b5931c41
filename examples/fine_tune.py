"""Train on an easy world, go on in a hard one with the same spaces; the environment's own figures are recorded."""

import tempfile

import gymnasium as gym
import numpy as np

import shoal


class Windy(gym.Env):
    """Stay near 0 for 50 steps; `wind` pushes. Says at the end how much of the time that was so."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (2,)), gym.spaces.Box(-1, 1, (1,))

    def __init__(self, wind: float = 0.0) -> None:
        self.wind = wind

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.clock, self.near = self.np_random.uniform(-2, 2), 0, 0
        return self._see(), {}

    def step(self, action):
        self.place = float(np.clip(self.place + 0.3 * action[0] + self.wind * self.np_random.normal(), -9, 9))
        self.clock, self.near = self.clock + 1, self.near + (abs(self.place) < 0.5)
        over = self.clock == 50
        return self._see(), -abs(self.place), False, over, {"share_near": self.near / 50} if over else {}

    def _see(self):
        return np.array([self.place, self.clock / 50], np.float32)


few = {"num_envs": 8, "rollout_steps": 100, "steps": 24_000, "backend": "serial", "runs_dir": tempfile.mkdtemp()}
easy = shoal.train(env=Windy, name="easy", **few)
hard = shoal.train(env=lambda: Windy(wind=0.2), name="hard", init_from="easy", **{**few, "steps": 8_000})
score = shoal.evaluate("hard", env=lambda: Windy(wind=0.2), runs_dir=few["runs_dir"], episodes=30)
print(f"near 0 in {score['deterministic']['infos']['share_near']:.0%} of the steps, return {score['mean']:.1f}")
