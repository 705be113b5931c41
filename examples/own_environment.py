"""Train on an environment of your own, in worker processes, with an action mask."""

import tempfile

import gymnasium as gym
import numpy as np

import shoal


class Corridor(gym.Env):
    """Walk right to the end of a corridor. At its left end, walking left is not allowed."""

    observation_space = gym.spaces.Dict(
        {"obs": gym.spaces.Box(0, 1, (1,), np.float32), "action_mask": gym.spaces.MultiBinary(2)}
    )
    action_space = gym.spaces.Discrete(2)

    def observe(self):
        return {"obs": np.float32([self.place / 10]), "action_mask": np.int8([self.place > 0, 1])}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.time = int(self.np_random.integers(0, 5)), 0
        return self.observe(), {}

    def step(self, action):
        self.place, self.time = self.place + (1 if action == 1 else -1), self.time + 1
        return self.observe(), -0.1, self.place == 10, self.time == 100, {}


result = shoal.train(  # no `if __name__ == "__main__"` is needed: workers never import this script
    "Corridor", env=Corridor, num_envs=8, backend="process", workers=2, steps=20_000, runs_dir=tempfile.mkdtemp()
)
print(f"mean return {result.mean_return:.2f} (best possible from the middle: about -0.8)")
