"""How fast compiled CartPole steps, against Gymnasium's own NumPy CartPoleVectorEnv, side by side.

One thread, random actions sampled beforehand, resets and final observations included.

python -m benchmarks.vector.compiled_speed [--store]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import in_fresh_process, summary
from benchmarks.harness.rows import Row

TARGETS = {64: 8.0, 256: 5.0, 4096: 2.0}  # environments -> times Gymnasium's
START_TARGET_S = 1.0
TURNS, TURN_S = 15, 0.08


def rows(say: Callable[[str], None]) -> list[Row]:
    """One row per size, and the time a second start takes; about 15 seconds."""
    found = []
    for num_envs, target in TARGETS.items():
        rates = in_fresh_process("benchmarks.vector.compiled_speed:compare", 120.0, num_envs=num_envs)
        over = [ours / theirs for ours, theirs in zip(rates["shoal"], rates["gymnasium"], strict=True)]
        speeds = {f"{who} steps/s": round(statistics.median(values)) for who, values in rates.items()}
        say(f"compiled CartPole, {num_envs} environments: {speeds}")
        title = f"compiled CartPole, {num_envs} environments, one thread: over Gymnasium NumPy"
        found.append(Row(title, statistics.median(over), "x", target, detail={**speeds, **summary(over)}))
    starts = [in_fresh_process("benchmarks.vector.compiled_speed:start", 120.0) for _ in range(3)]
    start_s = statistics.median(start["seconds"] for start in starts)
    name = "compiled CartPole, second start of 64 environments"
    return [*found, Row(name, start_s, "s", START_TARGET_S, "lower", detail={"cached": starts[-1]["cached"]})]


def compare(num_envs: int) -> dict[str, list[float]]:
    """In a process of its own: steps per second of both, turn by turn."""
    import gymnasium as gym
    import numpy as np

    from shoal.compiled.vector import CompiledVectorEnv
    from shoal.environments.cartpole import CartPole

    actions = np.random.default_rng(0).integers(0, 2, (64, num_envs))  # int64[64, N], used round and round
    both = {
        "shoal": CompiledVectorEnv(CartPole, num_envs),
        "gymnasium": gym.make_vec("CartPole-v1", num_envs, vectorization_mode="vector_entry_point"),
    }

    def rate(envs: Any, calls: int) -> float:
        began = time.perf_counter()
        for call in range(calls):
            envs.step(actions[call % len(actions)])
        return calls * num_envs / (time.perf_counter() - began)

    calls = {}
    for name, envs in both.items():
        envs.reset(seed=0)
        rate(envs, 20)
        calls[name] = max(1, round(TURN_S * rate(envs, 50) / num_envs))
    found: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(TURNS):
        for name, envs in both.items():
            found[name].append(rate(envs, calls[name]))
    for envs in both.values():
        envs.close()
    return found


def start() -> dict[str, Any]:
    """In a process of its own: seconds to make and reset 64 environments, importing Numba included."""
    began = time.perf_counter()
    from shoal.compiled.vector import CompiledVectorEnv
    from shoal.environments.cartpole import CartPole

    envs = CompiledVectorEnv(CartPole, 64)
    envs.reset(seed=0)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "cached": envs.kernels.cached}


if __name__ == "__main__":
    stored.main("benchmarks.vector.compiled_speed", rows, __doc__)
