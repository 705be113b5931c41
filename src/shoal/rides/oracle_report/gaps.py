"""Whole days planned by every oracle: gap to the best plan found, days finished, CPU time.

Every plan is judged by the independent checker. The best known plan of a day is the best of all that are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.neural.router import Router
from shoal.rides.routing.oracle import ESCALATE, RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import Problem
from shoal.rides.routing.reference import Reference

Routes = list[list[list[int]]]  # of every day, of every vehicle
INSERTION, GREEDY = "insertion", "neural, greedy"
SEARCHES = (30, 300, 3000)  # iterations after each request; the last is part of what is best known


@dataclass(frozen=True)
class Planned:
    """Plans of N days by one oracle."""

    cost_s: Array  # int64[N], travel
    finished: Array  # bool[N]: everybody is served, and the checker agrees
    broken: int  # days on which the checker found a rule broken
    cpu_ms: float  # a day


Planner = Callable[[Array], Routes]


def planners(problem: Problem, router: Router, *, best_of: int, pyvrp: int) -> dict[str, Planner]:
    """The oracles by name: REQUEST[N, C] in booking order to routes."""
    found: dict[str, Planner] = {INSERTION: partial(incremental, problem, iterations=0, escalate=())}
    found |= {f"incremental, {count:,}": partial(incremental, problem, iterations=count) for count in SEARCHES}
    if pyvrp:
        found[f"PyVRP, {pyvrp:,}"] = partial(solved, problem, iterations=pyvrp)
    found[GREEDY] = partial(decoded, router)
    if best_of > 1:
        found[f"neural, best of {best_of} orders"] = partial(decoded, router, starts=best_of)
        found[f"neural, best of {best_of} samples"] = partial(decoded, router, samples=best_of - 1)
    return found


def incremental(problem: Problem, days: Array, iterations: int, escalate: Any = ESCALATE) -> Routes:
    """Request by request as they are booked."""
    count, customers = days.shape
    oracle, plans = RoutingOracle(problem), Plans(problem, count, customers)
    for step in range(customers):
        oracle.add(plans, days[:, step].copy(), np.arange(count).astype(np.uint64), iterations, escalate)
    return [plans.routes(day) for day in range(count)]


def solved(problem: Problem, days: Array, iterations: int) -> Routes:
    """Every day from scratch by the reference solver."""
    return [one.routes for one in Reference(problem, iterations, 1).price(list(days), workers=1)]


def decoded(router: Router, days: Array, **options: int) -> Routes:
    """All days in one batched pass of the network, or several passes of which the best counts."""
    found = router.route(days, np.full(len(days), days.shape[1]), **options)
    return [
        [found.stops[day, v, : found.lengths[day, v]].tolist() for v in range(found.lengths.shape[1])]
        for day in range(len(days))
    ]


def planned(problem: Problem, days: Array, planner: Planner) -> Planned:
    """Run and judge one oracle."""
    planner(days[:2])  # compiles
    began = time.process_time()
    routes = planner(days)
    cpu_ms = 1000 * (time.process_time() - began) / len(days)
    finished, broken = np.zeros(len(days), np.bool_), 0
    for day, of_day in enumerate(routes):
        placed = {stop // 2 for route in of_day for stop in route}
        served = [request in placed for request in range(days.shape[1])]
        fine = not check_routes(problem, days[day], of_day, served)
        broken += not fine
        finished[day] = fine and all(served)
    travel = np.array([cost_s(problem, of_day, days[day]) for day, of_day in enumerate(routes)], np.int64)
    return Planned(travel, finished, broken, cpu_ms)


def gaps(found: dict[str, Planned]) -> list[dict[str, Any]]:
    """A row for each oracle: gap to the best known in percent, over the days that it finished."""
    cost = np.stack([np.where(one.finished, one.cost_s, np.inf) for one in found.values()])
    best = cost.min(0)
    rows = []
    for name, one in found.items():
        whole = one.finished
        percent = 100 * (one.cost_s[whole] / best[whole] - 1)
        rows.append({
            "oracle": name,
            "gap_percent": float(percent.mean()) if whole.any() else None,
            "gap_p95_percent": float(np.percentile(percent, 95)) if whole.any() else None,
            "standard_error": float(percent.std(ddof=1) / whole.sum() ** 0.5) if whole.sum() > 1 else None,
            "finished_percent": float(100 * whole.mean()),
            "broken": one.broken,
            "cpu_ms_a_day": one.cpu_ms,
        })  # fmt: skip
    return rows
