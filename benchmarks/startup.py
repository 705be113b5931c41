"""What starting 64 environments in workers takes, by start method.

python benchmarks/startup.py
"""

from shoal.bench import startup, stored

if __name__ == "__main__":
    stored.measure("startup", startup.rows)
