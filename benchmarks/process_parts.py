"""What looking before sleeping and rows in shared memory are each worth to the process backend.

python benchmarks/process_parts.py
"""

from shoal.bench import parts, stored

if __name__ == "__main__":
    stored.measure("process_parts", parts.rows)
