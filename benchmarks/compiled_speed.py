"""How fast compiled CartPole steps, against Gymnasium's own NumPy CartPoleVectorEnv, side by side.

python benchmarks/compiled_speed.py
"""

from shoal.bench import compiled, stored

if __name__ == "__main__":
    stored.measure("compiled_speed", compiled.rows)
