"""The state of N days that are being planned: who asked, and which vehicle stops where. Plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.routing.problem import REQUEST, Problem


class Plans:
    """N days side by side. An environment saves and restores a day by copying rows of `arrays()`.

    >>> plans = Plans(Problem(np.zeros((3, 3), np.int32), depot=0, vehicles=2), num_days=4, max_requests=10)
    >>> plans.routes(0), plans.total_s.tolist()
    ([[], []], [0, 0, 0, 0])
    """

    NAMES = ("requests", "served", "count", "stops", "lengths", "cost_s", "penalty_s")

    def __init__(self, problem: Problem, num_days: int, max_requests: int) -> None:
        if num_days < 1 or not 1 <= max_requests <= MAX_REQUESTS:
            raise ValueError(
                f"expected at least 1 day of 1 to {MAX_REQUESTS} requests, got {num_days} days of {max_requests}"
            )
        self.problem = problem
        self.num_days, self.max_requests = num_days, max_requests
        self.requests = np.zeros((num_days, max_requests), REQUEST)  # REQUEST[N, C], windows as agreed
        self.served = np.zeros((num_days, max_requests), np.bool_)  # bool[N, C]
        self.count = np.zeros(num_days, np.int32)  # int32[N], requests known so far, turned away included
        self.stops = np.zeros((num_days, problem.vehicles, 2 * max_requests), np.int16)  # int16[N, V, 2C]
        self.lengths = np.zeros((num_days, problem.vehicles), np.int16)  # int16[N, V], stops of each route
        self.cost_s = np.zeros(num_days, np.int64)  # int64[N], travel of the routes
        self.penalty_s = np.zeros(num_days, np.int64)  # int64[N], for those turned away

    @property
    def total_s(self) -> Array:
        """What the days cost: travel and the penalties of those turned away, int64[N]."""
        return self.cost_s + self.penalty_s

    def arrays(self) -> dict[str, Array]:
        """Every array of the state, by name; the first axis is the day."""
        return {name: getattr(self, name) for name in self.NAMES}

    def clear(self, days: Any = slice(None)) -> None:
        """Start these days anew (an index, a mask or a slice of days): no requests, empty routes."""
        for array in self.arrays().values():
            array[days] = np.zeros((), array.dtype)

    def copy(self) -> Plans:
        """The same days in arrays of their own."""
        other = Plans(self.problem, self.num_days, self.max_requests)
        other.copy_rows(self, slice(None), slice(None))
        return other

    def copy_rows(self, source: Plans, source_days: Any, days: Any) -> None:
        """Days `source_days` of `source` into days `days` of this one."""
        mine, theirs = self.stops.shape[1:], source.stops.shape[1:]
        if mine != theirs:
            raise ValueError(
                f"expected plans with routes of shape [vehicles, 2 * requests] {list(mine)}, got {list(theirs)}; "
                "make both Plans with the same problem and max_requests"
            )
        for name, array in self.arrays().items():
            array[days] = getattr(source, name)[source_days]

    def routes(self, day: int) -> list[list[int]]:
        """The stops of every vehicle on one day: 2 * r is the pickup of request r, 2 * r + 1 its dropoff."""
        return [
            [int(stop) for stop in self.stops[day, vehicle, : self.lengths[day, vehicle]]]
            for vehicle in range(self.problem.vehicles)
        ]


MAX_REQUESTS = 16_000  # a stop is an int16
