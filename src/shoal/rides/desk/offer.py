"""The booking desk: what a policy would offer the rider who is calling now, given the day so far.

A desk keeps one day open. When the next call comes on the same day, only what was booked since is planned; another
day is planned from its beginning, which takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.core.seeds import Stream
from shoal.rides.bookings import Bookings
from shoal.rides.contest.play import Policy
from shoal.rides.desk.timetable import timetable
from shoal.rides.env import RidesVectorEnv
from shoal.rides.knowledge import settle
from shoal.rides.observe import MINUTES, OFFER_COLUMN
from shoal.rides.options import RidesOptions
from shoal.rides.policies.thinking import Thinking
from shoal.rides.routing.problem import (
    EFFECTS,
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    REQUEST,
    Status,
)
from shoal.rides.vehicles import numbered_alike
from shoal.rides.world.days import Day
from shoal.rides.world.files import under_way_s

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
    own: tuple[Mapping[str, str], ...] = ()  # by request, the columns of the user's own: a note, a telephone number

    def __len__(self) -> int:
        return len(self.requests)

    def until(self, row: int) -> Booked:
        """The first so many."""
        return Booked(*(getattr(self, name)[:row] for name in ("requests", "rider", "purpose", "agreed", "own")))

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
    routes: list[list[dict[str, Any]]]  # by vehicle: stops with request (from 0), side, zone, time_s, on_board
    leaves_s: list[int | None]  # by vehicle: when it leaves the depot; None: it stays there
    back_s: list[int | None]  # by vehicle: when it is back


@dataclass(frozen=True)
class Offer:
    """What to say to the rider, and why."""

    offer: int  # 0 to 15; NO_CHANGE: book as asked
    earlier_min: int
    later_min: int
    p_accept: float
    accepted: Planned
    refused: Planned
    menu: list[dict[str, Any]]  # of all 16: see `Desk._menu`
    basis: str  # what `saves_min` of the menu goes by: "futures", "lookahead" or "now"; or "played" to the day's end
    futures: int  # sampled for it
    unserved: tuple[int, ...]  # bookings, from 0, that are on no route: no vehicle has room for them

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
        """What the policy would offer `request` (a REQUEST record) of this rider (-1: nobody known) now.

        A rider with other rides that day is offered nothing that could have two of them under way at once.
        """
        if len(booked) >= self.env.bookings.customers:
            self._open(len(booked) + MORE)
        bookings = self.env.bookings
        self._catch_up(booked)
        t = len(booked)
        bookings.requests[0, t], bookings.rider[0, t], bookings.purpose[0, t] = request, rider, purpose
        observations = self.env.look()
        free = _free(booked, request, rider)
        observations["action_mask"][:, ~free] = 0
        offer = int(self.policy(self.env, observations)[0])
        offer = offer if free[offer] else NO_CHANGE  # a policy may not look at the mask
        basis, menu = self._menu(observations["offers"][0], free)
        before = bookings.plans.routes(0)
        refused = self._planned(NO_CHANGE, before)
        return Offer(
            offer=offer,
            earlier_min=int(OFFER_EARLIER_MIN[offer]),
            later_min=int(OFFER_LATER_MIN[offer]),
            p_accept=menu[offer]["p_accept"],
            accepted=refused if offer == NO_CHANGE else self._planned(offer, before),
            refused=refused,
            menu=menu,
            basis=basis,
            futures=self._futures(basis),
            unserved=tuple(np.flatnonzero(~bookings.plans.served[0, :t]).tolist()),
        )

    def _futures(self, basis: str) -> int:
        if isinstance(self.policy, Thinking) and self.policy.thought:
            return self.policy.thought
        return self.options.futures if basis == "futures" else 0

    def close(self) -> None:
        """End the threads."""
        self.env.close()

    def _menu(self, seen: Array, free: Array) -> tuple[str, list[dict[str, Any]]]:
        """What is known of each of the 16 offers, and what `saves_min` goes by.

        `extra_min`: route minutes more than before the call if it is agreed to, None where no place was found;
        `saves_now_min` and `saves_min`: minutes less than without a change, on the routes as they are and by the end of
        the day; `worth_min`: expected net gain, what is saved less what asking and agreeing cost riders. Where only
        some offers were played to the end of the day, `played` says of which that is true: of the others the figures
        are as without thinking.
        """
        menu = self.env.menu
        basis = "futures" if self.options.futures else "now" if self.env.lookahead is None else "lookahead"
        now_min = menu.saving_min[0]
        if basis == "now":
            saves_min = now_min
        else:
            column = OFFER_COLUMN[{"futures": "future", "lookahead": "value"}[basis]]
            saves_min = seen[:, column].astype(np.float64) * MINUTES
        marks: list[dict[str, Any]] = [{}] * NUM_OFFERS
        if isinstance(self.policy, Thinking) and self.policy.thought:
            thought_min = self.policy.saves_min[0]
            found = ~np.isnan(thought_min)
            basis, saves_min = "futures" if found.all() else "played", np.where(found, thought_min, saves_min)
            if basis == "played":
                marks = [{"played": bool(one)} for one in found]
        worth_min = menu.expected_min(saves_min[None], *self.options.burden_rates)[0]
        return basis, [
            {
                "earlier_min": int(OFFER_EARLIER_MIN[index]),
                "later_min": int(OFFER_LATER_MIN[index]),
                "extra_min": float(menu.price_min[0, index]) if menu.feasible[0, index] else None,
                "p_accept": float(menu.p_accept[0, index]),
                "possible": bool(menu.feasible[0, index] and free[index]),
                "saves_now_min": float(now_min[index]),
                "saves_min": float(saves_min[index]),
                "worth_min": float(worth_min[index]),
                **marks[index],
            }
            for index in range(NUM_OFFERS)
        ]

    def _open(self, customers: int) -> None:
        options = replace(self.options, customers=customers)
        self.env = RidesVectorEnv(1, options, stream=Stream.TRAIN, again=True)  # the stream is of no matter here
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

    def _planned(self, offer: int, before: list[list[int]]) -> Planned:
        """The day with the call booked under this change; vehicles are numbered as on the routes before."""
        bookings, world = self.env.bookings, self.env.world
        asked = bookings.now(bookings.requests)
        agreed = EFFECTS[self.options.offer_effect](asked, OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
        plans = bookings.plans.copy()
        status = self.env.oracle.add(plans, agreed, bookings.step_keys(), self.iterations)
        extra_s = int(plans.cost_s[0] + plans.penalty_s[0]) - int(bookings.cost_s()[0])
        routes = plans.routes(0)
        routes = [routes[vehicle] for vehicle in numbered_alike(before, routes)]
        requests = plans.requests[0, : int(plans.count[0])]
        return Planned(int(status[0]) == Status.OK, extra_s / 60.0, *_timed(world.problem, requests, routes))


def _free(booked: Booked, request: Any, rider: int) -> Array:
    """bool[16]: the offers under which the rider cannot be under way on two rides at once; no change is always free."""
    free = np.ones(NUM_OFFERS, np.bool_)
    begins_s, ends_s = under_way_s(request, OFFER_EARLIER_MIN, OFFER_LATER_MIN)
    for row in np.flatnonzero(booked.rider == rider) if rider >= 0 else ():
        agreed = booked.agreed[row]
        begin_s, end_s = under_way_s(booked.requests[row], OFFER_EARLIER_MIN[agreed], OFFER_LATER_MIN[agreed])
        free &= (ends_s <= begin_s) | (end_s <= begins_s)
    free[NO_CHANGE] = True
    return free


def _timed(
    problem: Any, requests: Array, routes: list[list[int]]
) -> tuple[list[list[dict[str, Any]]], list[int | None], list[int | None]]:
    """Every vehicle's stops as plain data: request, side, zone, time_s, on_board; when it leaves, when it is back."""
    times = timetable(problem, requests, routes)
    travel_s, depot = problem.travel_s, problem.depot
    sheets: list[list[dict[str, Any]]] = []
    leaves_s: list[int | None] = []
    back_s: list[int | None] = []
    for route in routes:
        sheet: list[dict[str, Any]] = []
        on_board = 0
        for stop in route:
            request, side = requests[stop // 2], ("pickup", "dropoff")[stop % 2]
            on_board += int(request["size"]) * (1 - 2 * (stop % 2))
            sheet.append(
                {
                    "request": stop // 2,
                    "side": side,
                    "zone": int(request[side]),
                    "time_s": int(times[stop]),
                    "on_board": on_board,
                }
            )
        sheets.append(sheet)
        leaves_s.append(sheet[0]["time_s"] - int(travel_s[depot, sheet[0]["zone"]]) if sheet else None)
        back_s.append(sheet[-1]["time_s"] + int(travel_s[sheet[-1]["zone"], depot]) if sheet else None)
    return sheets, leaves_s, back_s
