"""The hyperbolic tangent of a minibatch's hidden layer, by torch and by NumPy, one thread each.

python -m benchmarks.ppo.tanh [--store]
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.learn.networks import tanh_

ROWS, WIDTH, ROUNDS, CALLS = 2048, 64, 31, 20


def rows(say: Callable[[str], None]) -> list[Row]:
    """Medians of turns taken one after another; what the network uses is measured as it is called there."""
    torch.set_num_threads(1)
    values = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(0))
    array, out = values.numpy(), np.empty((ROWS, WIDTH), np.float32)
    ways: dict[str, Callable[[], object]] = {
        "torch.tanh": lambda: torch.tanh(values),
        "numpy.tanh": lambda: np.tanh(array, out=out),
        "the network's": lambda: tanh_(values),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, call in ways.items():
            began = time.perf_counter()
            for _ in range(CALLS):
                call()
            found[name].append((time.perf_counter() - began) / CALLS * 1e6)
    medians = {name: statistics.median(times) for name, times in found.items()}
    say(", ".join(f"{name} {value:.0f} us" for name, value in medians.items()))
    return [Row(f"{ROWS:,} x {WIDTH} numbers, {name}", value, "us") for name, value in medians.items()]


if __name__ == "__main__":
    stored.main("benchmarks.ppo.tanh", rows, __doc__)
