"""CPU and wall time of planning so many days at once, by oracle; and one batched call against single ones."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.oracle_report.gaps import GREEDY, INSERTION
from shoal.rides.routing.neural.router import Router
from shoal.rides.routing.oracle import ESCALATE, RoutingOracle
from shoal.rides.routing.plans import Plans

REPEATS = 3  # the median counts; a large batch is measured once
LARGE = 1024
SINGLE = 64  # days planned one by one, and together


def speed(router: Router, days: Array, batch: int, threads: int) -> list[dict[str, Any]]:
    """A row for each oracle: ms of CPU and of wall for `batch` days; days are repeated where there are fewer.

    The network computes with as many threads as torch has been given.
    """
    some = days[np.arange(batch) % len(days)]
    count = np.full(batch, days.shape[1])
    oracle = RoutingOracle(router.problem, threads)

    def compiled(iterations: int, escalate: Any = ESCALATE) -> None:
        plans = Plans(router.problem, *some.shape)
        for step in range(some.shape[1]):
            oracle.add(plans, some[:, step].copy(), np.arange(batch).astype(np.uint64), iterations, escalate)

    calls: dict[str, Callable[[], object]] = {
        GREEDY: lambda: router.route(some, count),
        INSERTION: lambda: compiled(0, ()),
        "incremental, 30": lambda: compiled(30),
    }
    rows = []
    for name, call in calls.items():
        cpu_ms, wall_ms = timed(call) if batch < LARGE else timed(call, 1, warm=False)
        rows.append({"oracle": name, "days": batch, "threads": threads, "cpu_ms": cpu_ms, "wall_ms": wall_ms})
    oracle.close()
    return rows


def batching(router: Router, days: Array) -> dict[str, float]:
    """How much less CPU time days take where 64 are planned in one call, in place of 64 calls."""
    some = days[np.arange(SINGLE) % len(days)]
    count = np.full(SINGLE, days.shape[1])

    def singly() -> None:
        for day in range(SINGLE):
            router.route(some[day : day + 1], count[:1])

    together, alone = timed(lambda: router.route(some, count)), timed(singly, 1, warm=False)
    return {"together_cpu_ms": together[0], "singly_cpu_ms": alone[0], "ratio": alone[0] / together[0]}


def timed(call: Callable[[], object], repeats: int = REPEATS, *, warm: bool = True) -> tuple[float, float]:
    """(CPU of the whole process, wall), in ms; the first call is not counted if `warm`."""
    if warm:
        call()
    found = []
    for _ in range(repeats):
        began, began_cpu = time.perf_counter(), time.process_time()
        call()
        found.append((1000 * (time.process_time() - began_cpu), 1000 * (time.perf_counter() - began)))
    return statistics.median(cpu for cpu, _ in found), statistics.median(wall for _, wall in found)
