"""Tell PPO what every action was worth, where only the environment can know: here a guessing game."""

import tempfile
from collections import deque

import gymnasium as gym
import numpy as np

import shoal
from shoal.core.protocols import Credit, TrainingEnv


class Guess(TrainingEnv):
    """A hint, then one guess of four. A wild stake (spread 100) decides the return; a right guess adds 1 to it."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012
    num_envs, single_action_space = 16, gym.spaces.Discrete(4)
    single_observation_space = gym.spaces.Box(0, 1, (4,), np.float32)
    observation_space = gym.vector.utils.batch_space(single_observation_space, 16)
    action_space = gym.vector.utils.batch_space(single_action_space, 16)
    hints = deque(maxlen=64)  # noqa: RUF012 (as many steps as a rollout has)

    def reset(self, *, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.hint = self.rng.integers(0, 4, 16)
        return np.eye(4, dtype=np.float32)[self.hint], {}

    def step(self, guesses):
        self.hints.append(self.hint)
        rewards, over = (guesses == self.hint) + self.rng.normal(0, 100, 16), np.ones(16, bool)
        infos = {"final_obs": np.array(list(np.eye(4, dtype=np.float32)[self.hint]), object), "_final_obs": over}
        return self.reset(seed=self.rng)[0], rewards, over, ~over, infos

    def credit(self, rollout, policy):  # [steps, environments, actions]; None: learn from the rewards
        return Credit(np.eye(4)[np.array(self.hints)])


run = shoal.train(env=Guess(), steps=10_000, rollout_steps=64, runs_dir=tempfile.mkdtemp()).run
guesses = shoal.load_policy(run)(np.eye(4, dtype=np.float32), batched=True)
print(f"guesses {guesses} for hints [0 1 2 3]")
