"""PPO end to end on CartPole, 64 environments, beside Stable-Baselines3 in one process.

python benchmarks/ppo_speed.py
"""

from shoal.bench import ppo, stored

if __name__ == "__main__":
    stored.measure("ppo_speed", ppo.speed)
