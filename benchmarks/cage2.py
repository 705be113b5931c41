"""The figures of `shoal bench cage2`: exactness, speed, PPO's speed, scripted defenders.

python benchmarks/cage2.py
"""

from shoal.bench import cage2, stored

if __name__ == "__main__":
    stored.measure("cage2", cage2.run)
