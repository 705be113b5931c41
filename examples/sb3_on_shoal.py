"""Stable-Baselines3 on shoal's batches: PPO on CartPole, and MaskablePPO on a compiled environment with masks."""

from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

import shoal
from shoal.vector.sb3 import SB3VecEnv

envs = VecMonitor(SB3VecEnv(shoal.make_vec("CartPole-v1", 16)))
model = PPO("MlpPolicy", envs, n_steps=64, batch_size=256, seed=1).learn(20_000)
mean, _ = evaluate_policy(model, envs, n_eval_episodes=16)
print(f"PPO on CartPole-v1: {mean:.0f}")

masked = VecMonitor(SB3VecEnv(shoal.make_vec("shoal/GridWorld-v0", 64)))
model = MaskablePPO("MultiInputPolicy", masked, n_steps=32, batch_size=256, seed=1).learn(20_000)
print("MaskablePPO on shoal/GridWorld-v0:", [round(info["r"], 2) for info in list(model.ep_info_buffer)[-3:]])
