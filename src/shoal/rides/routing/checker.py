"""The independent judge of routes: what is wrong with a plan, in words, and what it costs.

Plain Python over plain ints, sharing no code with any oracle: a fault in a kernel cannot hide here. It says
everything that is wrong, not only the first thing, so that a failing property test reads like a report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from shoal.rides.routing.problem import REQUEST, Problem  # noqa: F401 - REQUEST for the examples

Routes = Sequence[Sequence[int]]


def check_routes(
    problem: Problem, requests: np.ndarray[Any, Any], routes: Routes, served: Any | None = None
) -> list[str]:
    """Every violation of these routes, in words; empty when they are feasible.

    `served` bool[C] declares which requests the plan claims to serve (default: all); one declared unserved must
    be on no route. Vehicles leave the depot as late as suits them, so a route is feasible exactly when serving
    every stop as soon as possible is.

    >>> problem = Problem(np.array([[0, 60], [60, 0]], np.int32), depot=0)
    >>> request = np.zeros(1, REQUEST)
    >>> request[0] = (1, 0, 1, 600, 700, 600, 650)
    >>> check_routes(problem, request, [[0, 1]])
    ['vehicle 0: reaches the dropoff of request 0 at 660 s, after its window closed at 650 s']
    """
    count = len(requests)
    claimed = [True] * count if served is None else [bool(flag) for flag in served]
    if len(claimed) != count:
        return [f"expected served for {count} requests, got {len(claimed)}"]
    found: list[str] = []
    used = sum(1 for route in routes if len(route))
    if used > problem.vehicles:
        found.append(f"{used} vehicles are used, the fleet has {problem.vehicles}")
    visits: dict[int, list[tuple[int, int]]] = defaultdict(list)  # stop -> (vehicle, position) of every visit
    for vehicle, route in enumerate(routes):
        for position, stop in enumerate(route):
            if not 0 <= int(stop) < 2 * count:
                found.append(
                    f"vehicle {vehicle}: stop {int(stop)} does not exist, {count} requests have stops below {2 * count}"
                )
            else:
                visits[int(stop)].append((vehicle, position))
    for request in range(count):
        found += _pairing(request, visits[2 * request], visits[2 * request + 1], claimed[request])
    rows = [{name: int(row[name]) for name in requests.dtype.names} for row in requests]
    for vehicle, route in enumerate(routes):
        found += _drive(problem, rows, vehicle, [int(stop) for stop in route if 0 <= int(stop) < 2 * count])
    return found


def cost_s(problem: Problem, routes: Routes, requests: np.ndarray[Any, Any]) -> int:
    """Travel seconds of the routes, depot to depot; an empty route costs nothing.

    >>> problem = Problem(np.array([[0, 60], [45, 0]], np.int32), depot=0)
    >>> request = np.zeros(1, REQUEST)
    >>> request[0] = (1, 0, 1, 0, 600, 0, 600)
    >>> cost_s(problem, [[0, 1], []], request)
    105
    """
    total = 0
    for route in routes:
        if len(route):
            zones = [problem.depot, *(_zone(requests, int(stop)) for stop in route), problem.depot]
            total += sum(int(problem.travel_s[a, b]) for a, b in pairwise(zones))
    return total


def _zone(requests: np.ndarray[Any, Any], stop: int) -> int:
    return int(requests[stop // 2]["dropoff" if stop % 2 else "pickup"])


def _name(stop: int) -> str:
    return f"the {'dropoff' if stop % 2 else 'pickup'} of request {stop // 2}"


def _pairing(request: int, pickups: list[tuple[int, int]], dropoffs: list[tuple[int, int]], claimed: bool) -> list[str]:
    """Both stops exactly once, in one vehicle, pickup first; or neither, if declared unserved."""
    if not claimed:
        if pickups or dropoffs:
            vehicles = sorted({vehicle for vehicle, _ in pickups + dropoffs})
            return [f"request {request} is declared unserved, but vehicle {vehicles[0]} stops for it"]
        return []
    if not pickups and not dropoffs:
        return [f"request {request} is on no route and not declared unserved"]
    found = []
    for stop, visits in ((2 * request, pickups), (2 * request + 1, dropoffs)):
        if len(visits) != 1:
            found.append(f"{_name(stop)} is visited {len(visits)} times, expected once")
    if not found:
        (vehicle, position), (other, other_position) = pickups[0], dropoffs[0]
        if vehicle != other:
            found.append(f"request {request} is picked up by vehicle {vehicle} and dropped off by vehicle {other}")
        elif position > other_position:
            found.append(f"vehicle {vehicle}: drops off request {request} before picking it up")
    return found


def _drive(problem: Problem, rows: list[dict[str, int]], vehicle: int, route: list[int]) -> list[str]:
    """Follow one route with a clock and a load."""
    if not route:
        return []
    found = []
    zone, clock_s, load = problem.depot, problem.open_s, 0
    for stop in route:
        row, side = rows[stop // 2], "dropoff" if stop % 2 else "pickup"
        opens_s, closes_s = row[f"{side}_open"], row[f"{side}_close"]
        arrival_s = clock_s + int(problem.travel_s[zone, row[side]])
        if arrival_s > closes_s:
            found.append(
                f"vehicle {vehicle}: reaches {_name(stop)} at {arrival_s} s, after its window closed at {closes_s} s"
            )
        if opens_s > closes_s:
            found.append(
                f"vehicle {vehicle}: the window of {_name(stop)} opens at {opens_s} s, after it closes at {closes_s} s"
            )
        zone, clock_s = row[side], max(arrival_s, opens_s)
        load += -row["size"] if stop % 2 else row["size"]
        if stop % 2 == 0 and load > problem.capacity:
            found.append(f"vehicle {vehicle}: carries {load} after {_name(stop)}, its capacity is {problem.capacity}")
    back_s = clock_s + int(problem.travel_s[zone, problem.depot])
    if back_s > problem.close_s:
        found.append(f"vehicle {vehicle}: is back at {back_s} s, the depot closes at {problem.close_s} s")
    return found
