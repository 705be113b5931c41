"""How fast compiled CartPole steps, against Gymnasium's own NumPy CartPoleVectorEnv, side by side.

    python benchmarks/compiled_speed.py

One thread, random actions sampled beforehand, resets and final observations included. The two take turns
and the medians are compared, so that another program on the machine slows both alike.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np

from shoal.tasks.cartpole import CartPole
from shoal.vector.compiled import CompiledVectorEnv

BARS = {64: 8.0, 256: 5.0, 4096: 2.0}  # environments -> times Gymnasium's
TURNS, TURN_S = 15, 0.08


def rate(envs: Any, actions: np.ndarray, calls: int) -> float:
    """Environment steps a second over so many calls; actions int64[64, N] are used round and round."""
    began = time.perf_counter()
    for call in range(calls):
        envs.step(actions[call % len(actions)])
    return calls * envs.num_envs / (time.perf_counter() - began)


def compare(num_envs: int) -> tuple[float, float]:
    """Median steps a second of shoal's and of Gymnasium's."""
    actions = np.random.default_rng(0).integers(0, 2, (64, num_envs))
    both = (
        CompiledVectorEnv(CartPole, num_envs),
        gym.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point"),
    )
    calls = []
    for envs in both:
        envs.reset(seed=0)
        rate(envs, actions, 20)
        calls.append(max(1, round(TURN_S * rate(envs, actions, 50) / num_envs)))
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        for envs, count, found in zip(both, calls, rates, strict=True):
            found.append(rate(envs, actions, count))
    for envs in both:
        envs.close()
    return statistics.median(rates[0]), statistics.median(rates[1])


_START = """
import time
from shoal.vector.compiled import CompiledVectorEnv
from shoal.tasks.cartpole import CartPole
began = time.perf_counter()
envs = CompiledVectorEnv(CartPole, 64)
envs.reset(seed=0)
print(time.perf_counter() - began, envs.kernels.cached)
"""


def start_s() -> float:
    """Seconds to make and reset 64 environments in a new process, importing Numba included, code on disk."""
    CompiledVectorEnv(CartPole, 1)
    found = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, check=True)
        found.append(float(done.stdout.split()[0]))
    return statistics.median(found)


def row(
    name: str, value: float, unit: str, bar: float | None = None, holds: bool | None = None
) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "bar": bar, "holds": holds}


def measure() -> list[dict[str, Any]]:
    """One row per figure; about 10 seconds."""
    seconds = start_s()
    rows = [row("compiled CartPole, second start", round(seconds, 3), "s", 1.0, seconds < 1.0)]
    for num_envs, bar in BARS.items():
        ours, theirs = compare(num_envs)
        title = f"CartPole, {num_envs} environments, one thread"
        rows.append(row(f"{title}: compiled", round(ours), "steps/s"))
        rows.append(row(f"{title}: Gymnasium NumPy", round(theirs), "steps/s"))
        ratio = ours / theirs
        rows.append(row(f"{title}: compiled over Gymnasium NumPy", round(ratio, 2), "x", bar, ratio >= bar))
    return rows


if __name__ == "__main__":
    print(json.dumps({"results": measure()}, indent=2))
