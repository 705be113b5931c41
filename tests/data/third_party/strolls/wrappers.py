"""What makes a Stroll trainable."""

import gymnasium as gym


class WithoutSign(gym.ObservationWrapper):
    """Leaves the text out."""

    def __init__(self, env):
        super().__init__(env)
        parts = env.observation_space.spaces
        self.observation_space = gym.spaces.Dict({key: parts[key] for key in parts if key != "sign"})

    def observation(self, observation):
        return {key: value for key, value in observation.items() if key != "sign"}


class Doubled(gym.RewardWrapper):
    """Counts double; says in which process it was made."""

    def reward(self, reward):
        return 2 * reward


def not_a_wrapper(env):
    return env
