"""Teach the network that `shoal train rides` starts from, and write its weights.

    python -m benchmarks.rides.rides_teaching FILE.npz [--prices pooled] [--days 10000] [--device cuda]

0.6 CPU-seconds a day on all usable cores, then a minute of fitting. The weights that ship were made by an earlier form
of this script on 16 cores in six minutes (stopped by the clock after 294,080 requests; insertion prices: 31,296) and
fitted on one H200.
R2 of 6 thorough futures on held-out days, by the number of quick ones shown: 0.60 (0), 0.63 (4), 0.65 (8), 0.66 (16),
0.68 (32); the lookahead alone 0.56. Twice the width or a layer more added 0.002.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import torch

from benchmarks.harness.stored import print_line
from shoal.core.machine import usable_cores
from shoal.rides.env import RidesVectorEnv
from shoal.rides.fit.teaching import Lessons, collect_lessons, joined, teach
from shoal.rides.options import RidesOptions
from shoal.rides.policies.network import RidesNetwork

SEED, DAYS_AT_ONCE, WIDTH = 0, 64, 64


def options(prices: str) -> RidesOptions:
    """Days as they are taught: P is known, nothing is masked."""
    return RidesOptions(start="lookahead", knowledge="true", mask="off", futures=0, prices=prices)  # type: ignore[arg-type]


def lessons(batch: int, prices: str) -> Lessons:
    """One batch of days, in a process of its own."""
    return collect_lessons(RidesVectorEnv(DAYS_AT_ONCE, options(prices)), seed=SEED, batch=batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--prices", default="pooled", choices=("pooled", "insertion"))
    parser.add_argument("--days", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    batches = range(-(-given.days // DAYS_AT_ONCE))
    with ProcessPoolExecutor(usable_cores(), multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(lessons, batches, [given.prices] * len(batches)))
    env: Any = RidesVectorEnv(1, options(given.prices))
    torch.manual_seed(SEED)
    network = RidesNetwork(env.single_observation_space, width=WIDTH, start="lookahead", temperature=1.0)
    print_line(str(teach(network, joined(found), steps=given.steps, device=given.device)))
    np.savez(given.file, allow_pickle=False, **network.taught())


if __name__ == "__main__":
    main()
