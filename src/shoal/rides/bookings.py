"""Days being booked: requests come one by one, offers are answered, plans grow; beside each the day without offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.compiled.random import mix
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import (
    EFFECTS,
    NO_CHANGE,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    OFFER_MIN,
    REQUEST,
)
from shoal.rides.world.days import Day
from shoal.rides.world.world import World

Array = np.ndarray[Any, Any]
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


class Bookings:
    """N days at once. `plans` is the negotiated day, `base` the same day with no offer ever made.

    Both are planned by the same oracle with the same keys, so that without accepted offers they are equal to the bit.
    """

    def __init__(self, world: World, num_days: int, oracle: RoutingOracle, *, with_base: bool = True) -> None:
        self.world, self.oracle, self.num_days = world, oracle, num_days
        customers = world.options.customers
        shape = (num_days, customers)
        self.requests = np.zeros(shape, REQUEST)  # as asked
        self.rider = np.zeros(shape, np.int32)
        self.purpose = np.zeros(shape, np.int8)
        self.mood = np.zeros(shape, np.float64)  # the draw behind an answer: accepted where it is under P
        self.offer = np.full(shape, NO_CHANGE, np.int8)  # made to each request so far
        self.accepted = np.zeros(shape, np.bool_)
        self.key = np.zeros(num_days, np.uint64)  # of the day's seed
        self.t = np.zeros(num_days, np.int64)  # the request that is next to be answered
        self.plans = Plans(world.problem, num_days, customers)
        self.base = Plans(world.problem, num_days, customers) if with_base else None
        self._rows = np.arange(num_days)

    @property
    def customers(self) -> int:
        return int(self.requests.shape[1])

    def begin(self, rows: Array, days: Sequence[Day]) -> None:
        """Begin days in these rows (int[n])."""
        for row, day in zip(rows, days, strict=True):
            self.requests[row], self.rider[row], self.purpose[row] = day.requests, day.rider, day.purpose
            self.mood[row], self.key[row] = day.mood, np.uint64(day.seed)
        self.offer[rows], self.accepted[rows], self.t[rows] = NO_CHANGE, False, 0
        self.plans.clear(rows)
        if self.base is not None:
            self.base.clear(rows)

    def now(self, table: Array) -> Array:
        """The entry of the current request: table[N, C, ...] -> [N, ...]."""
        entry: Array = table[self._rows, np.minimum(self.t, self.customers - 1)]
        return entry

    def step_keys(self) -> Array:
        """uint64[N]: one per (day, step), the oracle's randomness."""
        with np.errstate(over="ignore"):
            keys: Array = mix(mix(self.key) + self.t.astype(np.uint64) * _INCREMENT)
        return keys

    def answers(self, offers: Array) -> Array:
        """bool[N]: would the current riders accept these offers? No change is always accepted."""
        chance = self.world.true_probability(self.now(self.rider), self.now(self.purpose))[self._rows, offers]
        return np.asarray((self.now(self.mood) < chance) | (offers == NO_CHANGE))

    def book(self, offers: Array, iterations: int) -> Array:
        """Make the offers, hear the answers, plan the requests, go on to the next. Returns accepted bool[N]."""
        accepted = self.answers(offers)
        self.put(offers, accepted, iterations)
        return accepted

    def put(self, offers: Array, accepted: Array, iterations: int) -> None:
        """Plan the current requests with given answers and go on to the next ones."""
        rows, t = self._rows, self.t
        asked, keys = self.now(self.requests), self.step_keys()
        self.offer[rows, t], self.accepted[rows, t] = offers, accepted
        earlier, later = (
            np.where(accepted, OFFER_EARLIER_MIN[offers], 0),
            np.where(accepted, OFFER_LATER_MIN[offers], 0),
        )
        agreed = EFFECTS[self.world.options.offer_effect](asked, earlier, later)
        days = [(self.plans, agreed)] if self.base is None else [(self.plans, agreed), (self.base, asked)]
        self.oracle.serve(days, keys, iterations)
        self.t += 1

    # -- what it has come to ------------------------------------------------------------------------

    def cost_s(self) -> Array:
        """int64[N]: the negotiated day so far, turned-away requests included."""
        return np.asarray(self.plans.cost_s + self.plans.penalty_s)

    def base_cost_s(self) -> Array:
        """int64[N]: the same day without offers."""
        assert self.base is not None
        return np.asarray(self.base.cost_s + self.base.penalty_s)

    def agreed_min(self) -> Array:
        """int64[N, C]: minutes that each rider agreed to."""
        return np.asarray(np.where(self.accepted, OFFER_MIN[self.offer], 0), np.int64)

    def refused(self) -> Array:
        """bool[N, C]: offers made and refused."""
        made = np.arange(self.customers) < self.t[:, None]
        return np.asarray(made & ~self.accepted & (self.offer != NO_CHANGE))

    def agreed_requests(self) -> Array:
        """REQUEST[N, C]: windows as agreed."""
        earlier = np.where(self.accepted, OFFER_EARLIER_MIN[self.offer], 0)
        later = np.where(self.accepted, OFFER_LATER_MIN[self.offer], 0)
        return EFFECTS[self.world.options.offer_effect](self.requests, earlier, later)

    def figures(self, rows: Array, patience: float, refusal: float) -> dict[str, Array]:
        """What these days have come to, a value a day each."""
        cost_s, base_s = self.cost_s()[rows], self.base_cost_s()[rows]
        agreed, refused = self.agreed_min()[rows].sum(1), self.refused()[rows].sum(1)
        return {
            "cost_s": cost_s,
            "base_cost_s": base_s,
            "net_min": (base_s - cost_s) / 60.0 - patience * agreed - refusal * refused,
            "agreed_min": agreed,
            "refused": refused,
            "offers": (self.offer[rows] != NO_CHANGE).sum(1),
            "turned_away": (~self.plans.served[rows]).sum(1),
        }

    def state(self) -> dict[str, Array]:
        """All of it as arrays of plain numbers."""
        return {name: _plain(array).copy() for name, array in self._arrays().items()}

    def set_state(self, tensors: dict[str, Array]) -> None:
        """The inverse of `state`."""
        for name, array in self._arrays().items():
            _plain(array)[...] = tensors[name]

    def copy(self, *, with_base: bool) -> Bookings:
        """The same days, to go on by themselves."""
        other = Bookings(self.world, self.num_days, self.oracle, with_base=with_base and self.base is not None)
        mine = self._arrays()
        for name, array in other._arrays().items():
            array[...] = mine[name]
        return other

    def _arrays(self) -> dict[str, Array]:
        names = ("requests", "rider", "purpose", "mood", "offer", "accepted", "key", "t")
        own = {name: getattr(self, name) for name in names}
        plans = {f"plans.{name}": array for name, array in self.plans.arrays().items()}
        base = {} if self.base is None else {f"base.{name}": array for name, array in self.base.arrays().items()}
        return {**own, **plans, **base}


def _plain(array: Array) -> Array:
    """Requests as int32[..., 7], everything else as it is; the same memory."""
    return array.view(np.int32).reshape(*array.shape, -1) if array.dtype == REQUEST else array
