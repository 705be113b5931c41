"""What starting 64 environments in workers takes: seconds, and memory that no other process shares.

python -m benchmarks.vector.startup [--store]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import in_fresh_process
from benchmarks.harness.rows import Row

NUM_ENVS, REPEATS = 64, 3
WALL_TARGET_S, UNIQUE_TARGET_MB = 3.0, 40.0
METHODS = ("forkserver", "spawn")


def rows(say: Callable[[str], None]) -> list[Row]:
    """Start-up of CartPoles by both start methods, from a process that has torch loaded, as a training run has."""
    found = []
    for method in METHODS:
        starts = [in_fresh_process("benchmarks.vector.startup:start", 120.0, method=method) for _ in range(REPEATS)]
        wall_s = statistics.median(one["wall_s"] for one in starts)
        unique_mb = max(mb for one in starts for mb in one["unique_mb"])
        with_torch = max(one["workers_with_torch"] for one in starts)
        say(f"start-up, {method}: {wall_s:.2f} s, {unique_mb:.1f} MB per worker, {with_torch} with torch")
        title = f"start-up of {NUM_ENVS} environments, {method}"
        detail = {"wall_s": [round(one["wall_s"], 3) for one in starts], "workers": len(starts[0]["unique_mb"])}
        found += [
            Row(f"{title}: wall", wall_s, "s", WALL_TARGET_S, "lower", detail=detail),
            Row(f"{title}: unique memory per worker, its environments included",
                unique_mb, "MB", UNIQUE_TARGET_MB, "lower"),
            Row(f"{title}: workers that have torch loaded", with_torch, "workers", 0, "lower"),
        ]  # fmt: skip
    return found


def start(method: str, env: str = "CartPole-v1") -> dict[str, Any]:
    """In a process of its own: make and reset them once, and look at the workers."""
    import torch  # noqa: F401  # what a training process looks like when it starts its workers

    from shoal.vector.make import make_vec

    began = time.perf_counter()
    envs: Any = make_vec(env, NUM_ENVS, backend="process", start_method=method)
    envs.reset(seed=0)
    wall_s = time.perf_counter() - began
    found = {
        "wall_s": wall_s,
        "unique_mb": [unique_mb(pid) for pid in envs.pids],
        "workers_with_torch": sum("libtorch" in Path(f"/proc/{pid}/maps").read_text() for pid in envs.pids),
    }
    envs.close()
    return found


def unique_mb(pid: int) -> float:
    """Megabytes that only this process maps (USS): what ending it would give back. proc_pid_smaps(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


if __name__ == "__main__":
    stored.main("benchmarks.vector.startup", rows, __doc__)
