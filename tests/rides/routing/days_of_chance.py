"""Random cities and days for the tests of the routing layer; nothing of the task's own city or riders."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shoal.rides.routing.problem import REQUEST, Problem

Array = np.ndarray[Any, Any]


def random_city(seed: int = 0, zones: int = 60, **options: Any) -> Problem:
    """Zones in a square with uneven streets: asymmetric, closed, median about 20 minutes."""
    rng = np.random.default_rng(seed)
    at = rng.uniform(0, 1, (zones, 2))
    travel = np.hypot(*(at[:, None] - at[None]).T).T * rng.uniform(0.9, 1.25, (zones, zones))
    travel = np.ceil(travel / np.median(travel) * 1200).astype(np.int32)
    np.fill_diagonal(travel, 0)
    for middle in range(zones):
        travel = np.minimum(travel, travel[:, middle : middle + 1] + travel[middle : middle + 1])
    return Problem(travel, depot=int(np.argmin(travel.sum(0))), **options)


def random_days(
    problem: Problem, num_days: int, requests: int, seed: int = 1, hours: tuple[int, int] = (6, 20)
) -> Array:
    """REQUEST[num_days, requests] with 30-minute windows that open between these hours."""
    rng = np.random.default_rng(seed)
    shape, zones = (num_days, requests), len(problem.travel_s)
    out = np.zeros(shape, REQUEST)
    out["pickup"] = rng.integers(0, zones, shape)
    out["dropoff"] = (out["pickup"] + rng.integers(1, zones, shape)) % zones
    out["size"] = 1 + (rng.random(shape) < 0.15)
    direct = np.ceil(problem.travel_s[out["pickup"], out["dropoff"]] / 300).astype(np.int32) * 300
    out["pickup_open"] = rng.integers(2 * hours[0], 2 * hours[1], shape) * 1800
    out["pickup_close"] = out["pickup_open"] + 1800
    out["dropoff_open"] = out["pickup_open"] + direct
    out["dropoff_close"] = out["dropoff_open"] + 1800
    return out


def keys_of(seed: int, count: int) -> Array:
    """uint64[count] of random bits."""
    return np.random.default_rng(seed).integers(0, 2**64, count, np.uint64)


def drive(problem: Problem, requests: Array, route: tuple[int, ...] | list[int]) -> int | None:
    """Travel seconds of one route by following it stop by stop, or None if it breaks a rule."""
    now, at, load, travel, aboard = problem.open_s, problem.depot, 0, 0, set()
    for stop in route:
        request, end = requests[stop // 2], "dropoff" if stop % 2 else "pickup"
        leg = int(problem.travel_s[at, request[end]])
        now, at, travel = max(now + leg, int(request[f"{end}_open"])), int(request[end]), travel + leg
        if stop % 2 and stop // 2 not in aboard:
            return None
        load += -int(request["size"]) if stop % 2 else int(request["size"])
        aboard ^= {stop // 2}
        if now > request[f"{end}_close"] or load > problem.capacity:
            return None
    back = int(problem.travel_s[at, problem.depot])
    return travel + back if not aboard and now + back <= problem.close_s else None


def cheapest_insertion(problem: Problem, requests: Array, routes: list[list[int]], new: int) -> int | None:
    """Extra seconds of the cheapest feasible place for request `new`, by trying every pair of positions."""
    best = None
    for route in routes:
        before = drive(problem, requests, route)
        assert before is not None
        for i, j in itertools.combinations_with_replacement(range(len(route) + 1), 2):
            after = drive(problem, requests, [*route[:i], 2 * new, *route[i:j], 2 * new + 1, *route[j:]])
            if after is not None and (best is None or after - before < best):
                best = after - before
    return best


def optimum(problem: Problem, requests: Array) -> int | None:
    """The least travel that serves everybody: all routes of all sets of requests, then the best partition."""
    alone: dict[int, int] = {}  # set of requests as bits -> travel of its best single route

    def follow(route: list[int], done: int, aboard: int, now: int, at: int, load: int, travel: int) -> None:
        back = int(problem.travel_s[at, problem.depot])
        if not aboard and now + back <= problem.close_s:
            alone[done] = min(alone.get(done, travel + back), travel + back)
        for r, request in enumerate(rows):
            end = "dropoff" if aboard >> r & 1 else "pickup"
            if done >> r & 1 and end == "pickup":
                continue
            leg = int(problem.travel_s[at, request[end]])
            then = max(now + leg, request[f"{end}_open"])
            more = load + (request["size"] if end == "pickup" else -request["size"])
            if then <= request[f"{end}_close"] and more <= problem.capacity:
                follow([*route, r], done | 1 << r, aboard ^ 1 << r, then, request[end], more, travel + leg)

    rows = [{name: int(row[name]) for name in requests.dtype.names} for row in requests]
    follow([], 0, 0, problem.open_s, problem.depot, 0, 0)
    best = {0: 0}
    for _ in range(problem.vehicles):
        for done, so_far in list(best.items()):
            for members, cost in alone.items():
                if not done & members:
                    best[done | members] = min(best.get(done | members, so_far + cost), so_far + cost)
    return best.get((1 << len(rows)) - 1)
