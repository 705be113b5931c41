"""The process backend against the ideal of this machine's cores, Gymnasium Async and SB3 Subproc.

python benchmarks/process_speed.py
"""

from shoal.bench import stored, vector

if __name__ == "__main__":
    stored.measure("process_speed", vector.all_synthetic)
