"""What `--backend auto` picks: against Gymnasium Sync, and against the best of serial, process and split.

python benchmarks/auto_backend.py
"""

from shoal.bench import stored, vector

if __name__ == "__main__":
    stored.measure("auto_backend", lambda say: vector.cartpole(say) + vector.auto(say))
