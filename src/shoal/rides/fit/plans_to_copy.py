"""Days with good plans, for the routing network to copy: 1 to 45 requests, some of them with wider windows.

A day is built by cheapest insertion in the order of its windows and then searched as a whole. On days of 30 requests
that ends 0.1 % above the best known, as the incremental oracle with 300 iterations a request does, in a third of the
time (docs/rides.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.arrays import Array
from shoal.core.seeds import generator
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import NUM_OFFERS, OFFER_EARLIER_MIN, OFFER_LATER_MIN, REQUEST, widened
from shoal.rides.world.world import World

MOST_REQUESTS = 45
SEARCH = 1000  # ruin-and-recreate iterations on the whole day
_PLANS = 0x0DA7


@dataclass(frozen=True)
class Copybook:
    """Plans of N days."""

    requests: Array  # REQUEST[N, 45]
    count: Array  # int64[N]
    route: Array  # int64[N, 45], vehicle of each request
    position: Array  # int64[N, 90], of each stop in its route

    def rows(self, chosen: Array) -> Copybook:
        """Some of the days."""
        return Copybook(self.requests[chosen], self.count[chosen], self.route[chosen], self.position[chosen])


def joined(books: list[Copybook]) -> Copybook:
    """Several as one."""
    names = ("requests", "count", "route", "position")
    return Copybook(*(np.concatenate([getattr(book, name) for book in books]) for name in names))


def draw_requests(world: World, seed: int, number: int, days: int) -> tuple[Array, Array]:
    """(REQUEST[days, 45], how many of them count): prefixes of training days, with some windows widened."""
    rng = generator(seed, _PLANS, number)
    source = world.days("train", again=True)
    drawn = [source.draw(int(one)).requests for one in rng.integers(1 << 30, size=days)]
    requests = np.zeros((days, MOST_REQUESTS), REQUEST)
    for row, day in enumerate(drawn):
        requests[row, : len(day)] = day
    count = rng.integers(1, MOST_REQUESTS + 1, days)
    offer = rng.integers(NUM_OFFERS, size=requests.shape)
    agreed = rng.random(requests.shape) < rng.random((days, 1))
    return widened(requests, OFFER_EARLIER_MIN[offer] * agreed, OFFER_LATER_MIN[offer] * agreed), count


def copybook(world: World, seed: int, number: int, days: int) -> Copybook:
    """One batch of days with plans; those on which somebody is turned away are left out."""
    requests, count = draw_requests(world, seed, number, days)
    middle = requests["pickup_open"] + requests["pickup_close"] + (np.arange(MOST_REQUESTS) >= count[:, None]) * 10**6
    requests = np.take_along_axis(requests, np.argsort(middle, axis=1, kind="stable"), 1)
    oracle, plans = RoutingOracle(world.problem), Plans(world.problem, days, MOST_REQUESTS)
    keys = generator(seed, _PLANS, number, 1).integers(1 << 62, size=days).astype(np.uint64)
    for step in range(MOST_REQUESTS):
        oracle.add(plans, requests[:, step].copy(), keys, 0, active=step < count)
    oracle.polish(plans, keys, SEARCH)
    whole = np.flatnonzero(plans.penalty_s == 0)
    route = np.full((days, MOST_REQUESTS), -1, np.int64)
    position = np.zeros((days, 2 * MOST_REQUESTS), np.int64)
    for day in whole:
        for vehicle, stops in enumerate(plans.routes(int(day))):
            route[day, np.array(stops, np.int64) // 2] = vehicle
            position[day, stops] = np.arange(len(stops))
    return Copybook(requests, count, route, position).rows(whole)
