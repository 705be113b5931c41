"""The booking desk: what a policy would offer the rider who is calling now, given the day so far.

A desk keeps one day open. When the next call comes on the same day, only what was booked since is planned; another
day is planned from its beginning, which takes milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.tasks.rides.bookings import Bookings
from shoal.tasks.rides.contest import Policy, settle
from shoal.tasks.rides.days import Day
from shoal.tasks.rides.env import RidesVectorEnv
from shoal.tasks.rides.options import RidesOptions
from shoal.tasks.rides.routing.plans import Plans
from shoal.tasks.rides.routing.problem import (
    EFFECTS,
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    REQUEST,
    Status,
)
from shoal.tasks.rides.timetable import timetable
from shoal.vector.seeding import Stream

Array = np.ndarray[Any, Any]
ITERATIONS = 100  # to plan the call itself, under each answer
MORE = 10  # a day longer than those of the options is taken to go on for so many calls


@dataclass(frozen=True)
class Booked:
    """Requests of one day in booking order, as asked, and the change that each rider agreed to."""

    requests: Array  # REQUEST[t]
    rider: Array  # int32[t]
    purpose: Array  # int8[t]
    agreed: Array  # int8[t], an offer's number; NO_CHANGE where nothing was agreed

    def __len__(self) -> int:
        return len(self.requests)

    def until(self, row: int) -> Booked:
        """The first so many."""
        return Booked(*(getattr(self, name)[:row] for name in ("requests", "rider", "purpose", "agreed")))

    def key(self, row: int) -> bytes:
        """All that planning depends on."""
        return b"".join(getattr(self, name)[row].tobytes() for name in ("requests", "rider", "purpose", "agreed"))

    @staticmethod
    def of(day: Day) -> Booked:
        """A day on which nobody agreed to anything."""
        return Booked(day.requests, day.rider, day.purpose, np.full(day.customers, NO_CHANGE, np.int8))

    @staticmethod
    def nothing() -> Booked:
        """The morning."""
        return Booked(np.zeros(0, REQUEST), np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.int8))


@dataclass(frozen=True)
class Planned:
    """What becomes of the day after one answer."""

    served: bool  # False: nobody can be sent, the rider has to be turned away
    extra_min: float  # route minutes more than before the call; of a rider turned away, the penalty
    routes: list[list[dict[str, Any]]]  # by vehicle: stops with request, side, zone, time_s


@dataclass(frozen=True)
class Offer:
    """What to say to the rider, and why."""

    offer: int  # 0 to 15; NO_CHANGE: book as asked
    earlier_min: int
    later_min: int
    p_accept: float
    accepted: Planned
    refused: Planned
    menu: list[dict[str, Any]]  # of all 16: earlier_min, later_min, extra_min, p_accept, possible

    @property
    def saving_min(self) -> float:
        """Route minutes that an acceptance saves now."""
        return self.refused.extra_min - self.accepted.extra_min


class Desk:
    """A policy at work on one day at a time."""

    def __init__(
        self,
        policy: Policy,
        options: RidesOptions,
        flexibility: dict[str, Array] | None = None,
        *,
        iterations: int = ITERATIONS,
    ) -> None:
        self.policy, self.options, self.iterations = policy, options, iterations
        self._flexibility = flexibility
        self._open(options.customers)

    @property
    def world(self) -> Any:
        """The city and its riders."""
        return self.env.world

    def offer(self, booked: Booked, request: Any, rider: int, purpose: int) -> Offer:
        """What the policy would offer `request` (a REQUEST record) of this rider (-1: nobody known) now."""
        if len(booked) >= self.env.bookings.customers:
            self._open(len(booked) + MORE)
        bookings = self.env.bookings
        self._catch_up(booked)
        t = len(booked)
        bookings.requests[0, t], bookings.rider[0, t], bookings.purpose[0, t] = request, rider, purpose
        observations = self.env.look()
        offer = int(self.policy(self.env, observations)[0])
        menu = self.env.menu
        rows = [
            {
                "earlier_min": int(OFFER_EARLIER_MIN[index]),
                "later_min": int(OFFER_LATER_MIN[index]),
                "extra_min": float(menu.price_min[0, index]) if menu.feasible[0, index] else None,
                "p_accept": float(menu.p_accept[0, index]),
                "possible": bool(menu.feasible[0, index]),
            }
            for index in range(NUM_OFFERS)
        ]
        refused = self._planned(NO_CHANGE)
        return Offer(
            offer=offer,
            earlier_min=int(OFFER_EARLIER_MIN[offer]),
            later_min=int(OFFER_LATER_MIN[offer]),
            p_accept=float(menu.p_accept[0, offer]),
            accepted=refused if offer == NO_CHANGE else self._planned(offer),
            refused=refused,
            menu=rows,
        )

    def close(self) -> None:
        """End the threads."""
        self.env.close()

    def _open(self, customers: int) -> None:
        options = replace(self.options, customers=customers)
        self.env = RidesVectorEnv(1, options, stream=Stream.TRAIN)  # of no matter here: no day is ever drawn
        self.env.exploring = False
        self.env.bookings = Bookings(self.env.world, 1, self.env.oracle, with_base=False)
        if self._flexibility is not None and options.knowledge == "learned":
            settle(self.env, self._flexibility)
        self._keys: list[bytes] | None = None  # of the requests that are planned

    def _catch_up(self, booked: Booked) -> None:
        """Plan what was booked since the last call, or, on another day, all of it."""
        bookings = self.env.bookings
        keys = [booked.key(row) for row in range(len(booked))]
        if self._keys is None or keys[: len(self._keys)] != self._keys:
            count = bookings.customers
            blank = Day(
                0, np.zeros(count, REQUEST), np.zeros(count, np.int32), np.zeros(count, np.int8), np.zeros(count)
            )
            bookings.begin(np.zeros(1, np.int64), [blank])
            self._keys = []
        yes = np.ones(1, np.bool_)
        for row in range(len(self._keys), len(keys)):
            bookings.requests[0, row] = booked.requests[row]
            bookings.rider[0, row], bookings.purpose[0, row] = booked.rider[row], booked.purpose[row]
            bookings.put(booked.agreed[row : row + 1].astype(np.int64), yes, self.env.options.iterations)
        self._keys = keys

    def _planned(self, offer: int) -> Planned:
        """The day with the call booked under this change."""
        bookings, world = self.env.bookings, self.env.world
        asked = bookings.now(bookings.requests)
        agreed = EFFECTS[self.options.offer_effect](asked, OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
        plans = bookings.plans.copy()
        status = self.env.oracle.add(plans, agreed, bookings.step_keys(), self.iterations)
        extra_s = int(plans.cost_s[0] + plans.penalty_s[0]) - int(bookings.cost_s()[0])
        return Planned(int(status[0]) == Status.OK, extra_s / 60.0, routes_with_times(world.problem, plans, 0))


def routes_with_times(problem: Any, plans: Plans, day: int) -> list[list[dict[str, Any]]]:
    """Every vehicle's stops as plain data: request, side, zone, time_s."""
    count = int(plans.count[day])
    requests, routes = plans.requests[day, :count], plans.routes(day)
    times = timetable(problem, requests, routes)
    sides = ("pickup", "dropoff")
    return [
        [
            {
                "request": stop // 2,
                "side": sides[stop % 2],
                "zone": int(requests[stop // 2][sides[stop % 2]]),
                "time_s": int(times[stop]),
            }
            for stop in route
        ]
        for route in routes
    ]
