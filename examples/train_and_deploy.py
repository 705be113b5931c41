"""Train CartPole, score it on held-out episodes, then use the policy without any training code."""

import tempfile

import gymnasium as gym

import shoal

runs = tempfile.mkdtemp()
result = shoal.train("CartPole-v1", steps=30_000, seed=1, runs_dir=runs)
score = shoal.evaluate(result.run, episodes=20)
print(f"{result.steps:,} steps in {result.wall_s:.1f} s")
print(f"held-out return {score['mean']:.0f} [{score['low']:.0f}, {score['high']:.0f}]")

policy = shoal.load_policy(result.run)  # a callable: observation -> action
env = gym.make("CartPole-v1")
observation, _ = env.reset(seed=123)
total, ended = 0.0, False
while not ended:
    observation, reward, terminated, truncated, _ = env.step(policy(observation))
    total, ended = total + float(reward), terminated or truncated
print(f"one more episode by hand: {total:.0f}")
