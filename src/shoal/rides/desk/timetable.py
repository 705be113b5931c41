"""When a vehicle stops where: the timetable of given routes.

Routes are sequences; within the windows there is room to choose. Here a vehicle goes to everybody as soon as it can,
but where it would have to wait with riders on board it picks them up later instead: every stretch from empty to empty
ends as early as it can and, given that, begins as late as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.rides.routing.problem import REQUEST, Problem  # noqa: F401 - REQUEST for the example

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
    for route in routes:
        stops = [int(stop) for stop in route]
        places = [zone[stop] for stop in stops]
        legs = problem.travel_s[[problem.depot, *places[:-1]], places].tolist()  # seconds from the stop before
        clock, on_board, first = problem.open_s, 0, 0
        for position, stop in enumerate(stops):
            clock = max(clock + legs[position], opens[stop])
            on_board += -1 if stop % 2 else 1
            if on_board:
                continue
            times[stop] = moment = clock
            for earlier in range(position - 1, first - 1, -1):  # back to where the vehicle was empty before
                moment = min(moment - legs[earlier + 1], closes[stops[earlier]])
                times[stops[earlier]] = moment
            first = position + 1
    return times


def ride_s(times: Array) -> Array:
    """Seconds that each rider is on board, int64[C], from a timetable; 0 for those turned away."""
    pickup, dropoff = times[0::2], times[1::2]
    return np.where(pickup == NEVER, 0, dropoff - pickup)
