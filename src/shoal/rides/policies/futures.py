"""Rollout: what an offer is worth on average over sampled futures of the day.

For every day the rest of the requests is drawn many times from the demand model. Each future is planned around what is
booked so far, and the present request is priced in it under all 16 offers at once (pooled pricing), so that the
offers meet the same futures and compete on the same routes: their differences carry little noise. A refused offer
leaves the request as it was asked, which is the price of no change. In the futures everybody is asked generously,
because room is worth more where others have room too.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.compiled.random import mix
from shoal.core.seeds import Stream, sequence
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import (
    EFFECTS,
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    Status,
    turned_away_s,
)

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.options import RidesOptions
    from shoal.rides.policies.simple import Policy

Array = np.ndarray[Any, Any]
FUTURES = 24
# Iterations after each request of a future, and of pooled pricing in it. Measured on 4,480 branches of training days
# at equal cost: with fewer the savings are overstated, with more there is time for too few futures.
BUILD_ITERATIONS = 2
PRICE_ITERATIONS = 30
# For features, which a network weighs: what a minute of CPU time tells most, by how well it and the lookahead predict
# the mean of 64 thorough futures together.
QUICK_BUILD_ITERATIONS = 1
QUICK_PRICE_ITERATIONS = 10
TRUST = 0.9  # about the slope of what offers saved in the end on what futures promised, on the same branches
POOL_DAYS = 2048
GENEROUS = 0.7  # P(accept) from which a future's rider is asked
_MOST_ROWS = 4096  # days planned at once: 10 kB each
_FUTURE = np.uint64(0xE7037ED1A0B428DB)  # sets the draws of futures apart from the oracle's
_POOL = 0xF07  # spawn key of the days that futures are taken from


def rollout(
    futures: int = FUTURES, build: int = BUILD_ITERATIONS, price: int = PRICE_ITERATIONS, trust: float = TRUST
) -> Policy:
    """The largest expected net gain over sampled futures. Slow: half a second of CPU time a day."""
    if futures < 1 or build < 0 or price < 0:
        raise ValueError(f"expected at least 1 future and 0 iterations, got {futures} futures, {build} and {price}")

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        from shoal.rides.policies.simple import best_or_none

        return best_or_none(rollout_scores(env, futures, build, price, trust))

    return choose


def rollout_scores(
    env: RidesVectorEnv,
    futures: int = FUTURES,
    build: int = BUILD_ITERATIONS,
    price: int = PRICE_ITERATIONS,
    trust: float = TRUST,
) -> Array:
    """Expected net gain of each offer in minutes, float64[N, 16]: what the policy maximises, and others may learn."""
    value_min = trust * future_values(env, futures, build, price).mean(1)
    return env.menu.expected_min(value_min, *env.options.burden_rates)


def future_values(
    env: RidesVectorEnv,
    futures: int,
    build: int = QUICK_BUILD_ITERATIONS,
    price: int = QUICK_PRICE_ITERATIONS,
    first: int = 0,
) -> Array:
    """Minutes that each accepted offer saves by the day's end in each sampled future, float64[N, futures, 16].

    Zeros for days that have ended. A day's futures are the same whatever is beside it, and the first of many are those
    of a few; `first` numbers them from there, for others that are independent of these.
    """
    rows, chunk = np.flatnonzero(env.bookings.t < env.bookings.customers), max(1, _MOST_ROWS // futures)
    values = np.zeros((env.num_envs, futures, NUM_OFFERS))
    for low in range(0, len(rows), chunk):
        part = rows[low : low + chunk]
        values[part] = _values(env, part, np.arange(first, first + futures), build, price)
    return values


def _values(env: RidesVectorEnv, days: Array, numbers: Array, build: int, price: int) -> Array:
    bookings, oracle = env.bookings, env.oracle
    customers = bookings.customers
    pool, futures = future_days(env.believed), len(numbers)
    keys, which = draws(env, days, numbers)
    request = np.repeat(bookings.now(bookings.requests)[days], futures)
    step = np.repeat(bookings.t[days], futures)

    plans = Plans(env.world.problem, len(which), customers)
    plans.copy_rows(bookings.plans, np.repeat(days, futures), slice(None))
    for t in range(int(step.min()) + 1, customers):
        # Who finds no place is left out of this future, for all offers alike: hence no escalation.
        oracle.add(plans, pool[which, t], keys, build, escalate=(), active=step < t)
    return savings_min(env, plans, request, keys, price).reshape(len(days), futures, NUM_OFFERS)


def draws(env: RidesVectorEnv, days: Array, numbers: Array) -> tuple[Array, Array]:
    """Keys uint64[days * numbers] and days of the pool int64[days * numbers], of each day's futures of these numbers.

    A key belongs to the future, not to the offer: all offers meet the same futures and the same search.
    """
    with np.errstate(over="ignore"):
        keys = mix(mix(env.bookings.step_keys()[days] + _FUTURE)[:, None] + numbers.astype(np.uint64)).ravel()
    return keys, ((keys >> np.uint64(32)) * np.uint64(POOL_DAYS) >> np.uint64(32)).astype(np.int64)


def savings_min(env: RidesVectorEnv, plans: Plans, request: Array, keys: Array, iterations: int) -> Array:
    """Minutes that each accepted offer to request[k] saves on plan k, which lacks it, float64[K, 16]."""
    menu = env.oracle.pooled_menu(plans, request, keys, env.options.offer_effect, iterations=iterations)
    away_s = plans.cost_s + turned_away_s(env.world.problem, request)
    total_s = np.where(menu.status == Status.OK, menu.cost_s, away_s[:, None])
    return np.asarray((total_s[:, [NO_CHANGE]] - total_s) / 60.0)


class Callers(NamedTuple):
    """Who may call on the days that futures are taken from, as they ask and as they would answer."""

    requests: Array  # REQUEST[POOL_DAYS, C], as asked
    rider: Array  # int32[POOL_DAYS, C]
    purpose: Array  # int8[POOL_DAYS, C]
    mood: Array  # float64[POOL_DAYS, C]


@functools.lru_cache(maxsize=8)
def callers(options: RidesOptions) -> Callers:
    """Training riders, whoever calls today: what an operator has seen. They answer as their kind does."""
    from shoal.rides.world.world import make_world

    source = make_world(options).days("train", again=True)
    seeds = sequence(options.population_seed, Stream.ACT, _POOL).generate_state(POOL_DAYS, np.uint32)
    days = [source.draw(int(seed)) for seed in seeds]
    return Callers(*(np.stack([getattr(day, name) for day in days]) for name in Callers._fields))


@functools.lru_cache(maxsize=8)
def future_days(options: RidesOptions) -> Array:
    """Requests that may come, REQUEST[POOL_DAYS, C], with the windows that generous offers lead to."""
    from shoal.rides.policies.simple import most_minutes
    from shoal.rides.world.world import make_world

    known = callers(options)
    chance = make_world(options).true_probability(known.rider, known.purpose)
    offer = most_minutes(chance, GENEROUS)
    accepts = known.mood < np.take_along_axis(chance, offer[..., None], 2)[..., 0]
    offer = np.where(accepts, offer, NO_CHANGE)
    agreed = EFFECTS[options.offer_effect](known.requests, OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
    agreed.setflags(write=False)
    return agreed
