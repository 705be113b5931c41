"""What each of the 16 offers to a request was worth, seen from the end of the agent's own day: the rebuilt day.

A day's reward is the sum of thirty decisions, thirty answers and a search; one offer is lost in it. But when the day is
over its requests are known. For a request drawn from it, the plan from before that request is taken up again, the later
requests are added with the windows that they agreed to, and only then the request itself is priced under all 16 offers
at once. Others' answers are held fixed, later offers do not react: a difference reward (Wolpert and Tumer 2002), and
biased as those are (docs/rides.md says by how much). It knows what came later, so it is for training alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.compiled.random import mix
from shoal.core.arrays import Array
from shoal.core.protocols import Acting, Credit
from shoal.rides.bookings import Bookings
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import (
    EFFECTS,
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    OFFER_MIN,
    Status,
    turned_away_s,
)

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv

BUILD_ITERATIONS = 2  # ruin-and-recreate iterations after each later request
PRICE_ITERATIONS = 30  # of each base of pooled pricing; 100 are no less biased
CAP_MIN = 30.0  # a saving beyond this is a search that got lost under one of the offers
_MOST_ROWS = 1024  # days rebuilt at once: 10 kB each
_DRAW = np.uint64(0xC2B2AE3D27D4EB4F)  # sets these draws apart from the oracle's
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


class Before(NamedTuple):
    """Requests of one step of all days, as they were before they were answered."""

    env: Array  # int64[K]
    row: int  # of the rollout
    t: Array  # int64[K], which request of the day
    day: Array  # int64[K], days of this environment that had ended before
    key: Array  # uint64[K]
    plans: dict[str, Array]  # rows of Plans
    request: Array  # REQUEST[K], as asked
    p_accept: Array  # float64[K, 16], as the agent believed
    offer: Array  # int64[K], as made


@dataclass(frozen=True)
class Rates:
    """What a rider's trouble costs, in route minutes."""

    patience: float
    refusal: float

    def worth(self, p_accept: Array, saving_min: Array) -> Array:
        """Expected net gain of each offer [K, 16]; no change is 0."""
        gain = p_accept * (saving_min - self.patience * OFFER_MIN) - self.refusal * (1 - p_accept)
        gain[:, NO_CHANGE] = 0.0
        return np.asarray(gain)


class RebuiltDays:
    """Keeps what it takes to rebuild days while they are played, and prices the drawn requests when asked."""

    def __init__(self, oracle: RoutingOracle, effect: str, rates: Rates, requests: int, generous: float = 0.0) -> None:
        self.oracle, self.effect, self.rates, self.requests = oracle, effect, rates, requests
        self.generous = generous  # share of later riders with the windows that a generous offer leads to
        self.begin(0)

    def begin(self, num_envs: int) -> None:
        """A new rollout: what was kept belongs to the last one."""
        self._row = 0
        self._before: list[Before] = []
        self._ended = np.zeros(num_envs, np.int64)  # days ended since
        # (environment, day) -> what `keep` wants of it
        self._kept: dict[tuple[int, int], Any] = {}
        self._net_min: list[Array] = []

    def note(self, bookings: Bookings, p_accept: Array, offers: Array) -> None:
        """Before the current requests are answered and planned."""
        env = np.flatnonzero(drawn(bookings.key, bookings.t, bookings.customers, self.requests))
        if env.size:
            plans = {name: array[env] for name, array in bookings.plans.arrays().items()}
            with np.errstate(over="ignore"):
                key = mix(bookings.step_keys()[env] + _DRAW)
            request, p = bookings.now(bookings.requests)[env], p_accept[env]
            t, day = bookings.t[env].copy(), self._ended[env].copy()
            self._before.append(Before(env, self._row, t, day, key, plans, request, p, offers[env]))
        self._row += 1

    def end(self, rows: Array, bookings: Bookings, net_min: Array) -> None:
        """Days that ended in these environments, before new ones begin."""
        for row, kept in zip(rows.tolist(), self.keep(rows, bookings), strict=True):
            self._kept[row, int(self._ended[row])] = kept
        self._ended[rows] += 1
        self._net_min.append(net_min)

    def keep(self, rows: Array, bookings: Bookings) -> list[Any]:
        """Of each of these days REQUEST[2, C]: windows as agreed, and as they would be after a generous offer."""
        agreed = bookings.agreed_requests()[rows]
        return list(np.stack([agreed, generously(bookings, rows) if self.generous else agreed], 1))

    def of(self, env: RidesVectorEnv, policy: Acting) -> RebuiltDays:
        """The same, told who acts and where."""
        return self

    def close(self) -> None:
        """End what it has begun."""

    def credit(self, steps: int) -> Credit:
        """Values [T, N, 16] in minutes: NaN for requests that were not drawn, or whose day has not ended."""
        values = np.full((steps, len(self._ended), NUM_OFFERS), np.nan, np.float32)
        if not self._kept:
            return Credit(values)
        env, t, day, key, request, p, offer = (
            np.concatenate([getattr(one, name) for one in self._before])
            for name in ("env", "t", "day", "key", "request", "p_accept", "offer")
        )
        row = np.repeat([one.row for one in self._before], [len(one.env) for one in self._before])
        plans = {name: np.concatenate([one.plans[name] for one in self._before]) for name in Plans.NAMES}
        order = np.lexsort((t, env))  # early requests cost more: so every thread has some of them
        whole = np.array([(e, d) in self._kept for e, d in zip(env[order].tolist(), day[order].tolist(), strict=True)])
        order = order[whole]
        worth = np.empty((len(order), NUM_OFFERS))
        for low in range(0, len(order), _MOST_ROWS):
            part = order[low : low + _MOST_ROWS]
            days = Plans(self.oracle.problem, len(part), plans["requests"].shape[1])
            for name, array in days.arrays().items():
                array[...] = plans[name][part]
            kept = [self._kept[e, d] for e, d in zip(env[part].tolist(), day[part].tolist(), strict=True)]
            saving = self.savings_min(days, kept, t[part], request[part], key[part])
            worth[low : low + len(part)] = self.rates.worth(p[part], saving)
        values[row[order], env[order]] = worth
        claimed = worth[np.arange(len(order)), offer[order]].mean() * plans["requests"].shape[1]
        real = np.concatenate(self._net_min).mean()
        return Credit(values, {"credit/claimed": float(claimed), "credit/real": float(real)})

    def savings_min(self, days: Plans, kept: list[Any], t: Array, request: Array, key: Array) -> Array:
        """Minutes that each accepted offer to request t[k] saves by the end of its day, float64[K, 16]."""
        return savings_min(self.oracle, days, self.windows(kept, key), t, request, key, self.effect)

    def windows(self, kept: list[Any], key: Array) -> Array:
        """REQUEST[K, C]: what riders agreed to, and of a share of them, drawn by key, what generous offers lead to."""
        both = np.stack(kept)
        return np.asarray(np.where(uniform(key, both.shape[2]) < self.generous, both[:, 1], both[:, 0]))


def savings_min(
    oracle: RoutingOracle,
    days: Plans,
    windows: Array,
    t: Array,
    request: Array,
    key: Array,
    effect: str,
    build: int = BUILD_ITERATIONS,
    price: int = PRICE_ITERATIONS,
) -> Array:
    """Minutes that each accepted offer to request t[k] saves by the end of day k, float64[K, 16].

    `days` are the plans from before that request, and are changed; `windows` REQUEST[K, C] has the later requests.
    """
    customers = windows.shape[1]
    for later in range(int(t.min()) + 1, customers):
        # Who finds no place is left out of this day, for all offers alike: hence no escalation.
        oracle.add(days, windows[:, later], key, build, escalate=(), active=t < later)
    return priced_min(oracle, days, request, key, effect, price)


def priced_min(
    oracle: RoutingOracle, days: Plans, request: Array, key: Array, effect: str, price: int = PRICE_ITERATIONS
) -> Array:
    """Minutes that each accepted offer to request[k] saves on day k, which lacks it, float64[K, 16]."""
    menu = oracle.pooled_menu(days, request, key, effect, iterations=price)
    away_s = days.cost_s + turned_away_s(oracle.problem, request)
    total_s = np.where(menu.status == Status.OK, menu.cost_s, away_s[:, None])
    return np.asarray(np.clip((total_s[:, [NO_CHANGE]] - total_s) / 60.0, -CAP_MIN, CAP_MIN))


def generously(bookings: Bookings, rows: Array) -> Array:
    """Windows of these days' requests, REQUEST[n, C], had every rider been asked for the most that is likely."""
    from shoal.rides.policies.futures import GENEROUS
    from shoal.rides.policies.simple import most_minutes

    chance = bookings.world.true_probability(bookings.rider[rows], bookings.purpose[rows])  # [n, C, 16]
    offer = most_minutes(chance, GENEROUS)
    accepts = bookings.mood[rows] < np.take_along_axis(chance, offer[..., None], 2)[..., 0]
    offer = np.where(accepts, offer, NO_CHANGE)
    effect = EFFECTS[bookings.world.options.offer_effect]
    return effect(bookings.requests[rows], OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])


def uniform(key: Array, count: int) -> Array:
    """float64[K, count] in [0, 1), a function of each key."""
    return np.asarray((_words(key, count) >> np.uint64(11)) * 2.0**-53)


def _words(key: Array, count: int) -> Array:
    with np.errstate(over="ignore"):
        words: Array = mix(mix(key + _DRAW)[:, None] + np.arange(count).astype(np.uint64) * _INCREMENT)
    return words


def drawn(key: Array, t: Array, customers: int, requests: int) -> Array:
    """bool[N]: whether request t[n] is one of the `requests` drawn from the day of this key: a function of these.

    >>> key = np.array([5], np.uint64)
    >>> sum(int(drawn(key, np.array([t]), 30, 12)[0]) for t in range(30))
    12
    """
    words = _words(key, customers)
    own = words[np.arange(len(key)), np.minimum(t, customers - 1)]
    return np.asarray(((words < own[:, None]).sum(1) < requests) & (t < customers))
