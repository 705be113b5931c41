"""An environment of your own in plain Python, compiled, a thousand at a time."""

import gymnasium as gym
import numpy as np

from shoal.compiled.random import below, chance
from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv


class Ferry(CompiledEnv):
    """Wait for riders (0) or sail (1): each aboard earns 1, a sailing costs 3, ten sailings are a day."""

    state = np.dtype([("aboard", "i8"), ("sailings", "i8")])
    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    max_episode_steps = 50

    @staticmethod
    def reset(state, rng):
        state.aboard = below(rng, 3)  # the state arrives zeroed

    @staticmethod
    def step(state, rng, action):
        if action == 1:
            earned, state.aboard, state.sailings = state.aboard - 3.0, 0, state.sailings + 1
            return earned, state.sailings == 10
        state.aboard = min(state.aboard + chance(rng, 0.5), 8)
        return 0.0, False

    @staticmethod
    def observe(state, out):
        out[0] = state.aboard / 8


envs = CompiledVectorEnv(Ferry, num_envs=1024, on_compile=print)
(obs, _), earned = envs.reset(seed=0), 0.0
for _ in range(1000):
    obs, rewards, terminated, truncated, infos = envs.step((obs[:, 0] > 0.7).astype(np.int64))
    earned += rewards.sum()
print(f"1,024,000 steps, {earned / 1_024_000:.3f} earned a step")
