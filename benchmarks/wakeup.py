"""What waking another process costs on this machine, on the same core and on another.

python benchmarks/wakeup.py
"""

from shoal.bench import stored, wakeup

if __name__ == "__main__":
    stored.measure("wakeup", wakeup.rows)
