"""When a vehicle stops where: the timetable of given routes.

Routes are sequences; within the windows there is room to choose. Every route here ends as early as it can and, given
that, starts as late as it can, so that nobody sits in a vehicle that waits without need.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.tasks.rides.routing.problem import REQUEST, Problem  # noqa: F401 - REQUEST for the example

Array = np.ndarray[Any, Any]
NEVER = -1  # of a stop that is on no route


def timetable(problem: Problem, requests: Array, routes: Sequence[Sequence[int]]) -> Array:
    """Seconds since midnight at which each stop is served, int64[2 * C]; NEVER for those turned away.

    >>> problem = Problem(np.array([[0, 600], [600, 0]], np.int32), depot=0)
    >>> request = np.array([(0, 1, 1, 0, 1800, 1200, 3000)], REQUEST)
    >>> timetable(problem, request, [[0, 1]]).tolist()
    [600, 1200]
    """
    times = np.full(2 * len(requests), NEVER, np.int64)
    sides = [("pickup", "pickup_open", "pickup_close"), ("dropoff", "dropoff_open", "dropoff_close")]
    zone, opens, closes = (
        np.stack([requests[side[part]] for side in sides], 1).ravel().tolist() for part in range(3)
    )  # by stop: 2 * r is the pickup of request r
    travel, depot = problem.travel_s, problem.depot
    for route in routes:
        if not len(route):
            continue
        stops = [int(stop) for stop in route]
        places = [zone[stop] for stop in stops]
        legs = travel[[depot, *places[:-1]], places].tolist()  # seconds to each stop from the one before
        clock = problem.open_s
        for stop, leg in zip(stops, legs, strict=True):
            clock = max(clock + leg, opens[stop])
        times[stops[-1]] = clock
        for position in range(len(stops) - 2, -1, -1):
            clock = min(clock - legs[position + 1], closes[stops[position]])
            times[stops[position]] = clock
    return times


def ride_s(times: Array) -> Array:
    """Seconds that each rider is on board, int64[C], from a timetable; 0 for those turned away."""
    pickup, dropoff = times[0::2], times[1::2]
    return np.where(pickup == NEVER, 0, dropoff - pickup)
