"""Hindsight: what could be had if every request and every answer of a day were known at its start.

A joint search over routes and offers: ruin and recreate, in which each request that is put back takes the place
*and* the offer that are cheapest together, among the offers its rider would accept; an offer costs `patience` for its
minutes. It starts from several days of offers (nobody's, everybody's widest, what other policies would have got) and
keeps what is best when the day is booked again with it, request by request, as the environment does. It is a heuristic:
a lower bound of what perfect information is worth.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.compiled.random import RNG, begin, below, mix
from shoal.compiled.threads import Pool
from shoal.rides.routing.insertion import NOWHERE, best_place
from shoal.rides.routing.machine import BARE, compiled
from shoal.rides.routing.menu import offer_windows, price_offers
from shoal.rides.routing.problem import (
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    OFFER_MIN,
    turned_away_s,
)
from shoal.rides.routing.ruin import exchange_tails, keep, ruin, undo
from shoal.rides.routing.schedule import (
    CLOSE,
    OPEN,
    allocate,
    borrow,
    copy_plan,
    gather,
    insert_pair,
    note_plan,
    read_plan,
    time_route,
    travel_of,
    write_plan,
)
from shoal.rides.routing.settings import Effort, search_settings

if TYPE_CHECKING:
    from shoal.rides.bookings import Bookings
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.options import RidesOptions
    from shoal.rides.policies.simple import Policy

Array = np.ndarray[Any, Any]
ITERATIONS = 4000  # of the joint search, from each start
EFFORT = Effort(heat=0.2, margin=0.85, strings=3, longest=4)
STARTS = 4  # days of offers that the search starts from: see `book_starts`
_SEARCH = np.uint64(0xA0761D6478BD642F)  # sets the draws of the search apart from the oracle's
_KEPT_DAYS = 100_000


def hindsight(iterations: int = ITERATIONS) -> Policy:
    """Knows all requests and answers of the day. Plans a day when it first meets it: 0.15 s of CPU time each."""
    if iterations < 0:
        raise ValueError(f"expected 0 or more iterations, got {iterations}")
    planned: dict[tuple[RidesOptions, bytes], Array] = {}

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        bookings = env.bookings
        names = [(env.options, _name(bookings, row)) for row in range(bookings.num_days)]
        if any(name not in planned for name in names):
            if len(planned) > _KEPT_DAYS:
                planned.clear()
            rows = np.array([row for row, name in enumerate(names) if name not in planned])
            for row, offers in zip(rows, best_offers(bookings, rows, env.options.iterations, iterations), strict=True):
                planned[names[row]] = offers
        at = np.minimum(bookings.t, bookings.customers - 1)
        return np.array([planned[name][t] for name, t in zip(names, at, strict=True)], np.int64)

    return choose


def _name(bookings: Bookings, row: int) -> bytes:
    """Names a day by all that its plan depends on; two days loaded from files may share a seed."""
    parts = (bookings.key[row], bookings.requests[row], bookings.rider[row], bookings.purpose[row], bookings.mood[row])
    return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()


def best_offers(bookings: Bookings, rows: Array, oracle_iterations: int, iterations: int = ITERATIONS) -> Array:
    """Offers int8[n, C] for the days in these rows, from full knowledge; every one of them would be accepted.

    Of what the search found from each start the best is kept, by its own routes and by those of the oracle that books
    request by request; unless that oracle does better still with one of the starts.
    """
    starts = book_starts(bookings, rows, oracle_iterations)
    start_min, start_offers = loss_min(starts), starts.offer.copy()  # before the search plans the days anew
    found, found_s = search(starts, iterations)
    again = _days_again(bookings, np.repeat(rows, STARTS))
    for t in range(again.customers):
        again.put(found[:, t].astype(np.int64), np.ones(again.num_days, np.bool_), oracle_iterations)
    found_min = loss_min(again)

    each = np.arange(len(rows))
    best = (found_min + found_s / 60).reshape(-1, STARTS).argmin(1) + STARTS * each
    best_start = start_min.reshape(-1, STARTS).argmin(1) + STARTS * each
    use_start = start_min[best_start] < found_min[best]
    return np.asarray(np.where(use_start[:, None], start_offers[best_start], found[best]))


def answers_known(bookings: Bookings) -> Array:
    """bool[N, C, 16]: the offers that each rider of the day would accept."""
    chance = bookings.world.true_probability(bookings.rider, bookings.purpose)
    accepts = bookings.mood[..., None] < chance
    accepts[..., NO_CHANGE] = True
    return np.asarray(accepts)


def book_starts(bookings: Bookings, rows: Array, oracle_iterations: int) -> Bookings:
    """Every day booked to its end in four ways, in neighbouring rows, with accepted offers only.

    No offers; the widest that each rider accepts; the widest among those with P of at least 0.7 (what max change gets);
    the largest saving at once (what informed greedy gets).
    """
    from shoal.rides.observe import make_menu

    days = _days_again(bookings, np.repeat(rows, STARTS))
    accepts = answers_known(days)
    chance = bookings.world.true_probability(days.rider, days.purpose)
    patience, _ = bookings.world.options.burden_rates
    widest = np.where(accepts, OFFER_MIN, -1).argmax(-1)
    likely = np.where(accepts & (chance >= 0.7), OFFER_MIN, -1).argmax(-1)
    offers = np.full((days.num_days, days.customers), NO_CHANGE)
    offers[1::STARTS], offers[2::STARTS] = widest[1::STARTS], likely[2::STARTS]
    greedy = np.arange(3, days.num_days, STARTS)  # the fourth: the best saving now, as the informed policy would
    for t in range(days.customers):
        request = days.now(days.requests)
        extra_s, status = days.oracle.insertion_menu(days.plans, request, days.world.options.offer_effect)
        gain = make_menu(days, extra_s, status, chance[:, t]).saving_min - patience * OFFER_MIN
        gain = np.where(accepts[:, t], gain, -np.inf)
        offers[greedy, t] = np.where(gain.max(1) > 0, gain.argmax(1), NO_CHANGE)[greedy]
        days.put(offers[:, t], np.ones(days.num_days, np.bool_), oracle_iterations)
    return days


def _days_again(bookings: Bookings, rows: Array) -> Bookings:
    """The days of these rows, nothing booked yet."""
    from shoal.rides.bookings import Bookings

    days = Bookings(bookings.world, len(rows), bookings.oracle, with_base=False)
    for name in ("requests", "rider", "purpose", "mood", "key"):
        getattr(days, name)[:] = getattr(bookings, name)[rows]
    return days


def loss_min(days: Bookings) -> Array:
    """float64[N]: route minutes and the price of the minutes agreed to."""
    patience, _ = days.world.options.burden_rates
    return np.asarray(days.cost_s() / 60 + patience * days.agreed_min().sum(1))


def search(days: Bookings, iterations: int = ITERATIONS) -> tuple[Array, Array]:
    """Improve offers and routes of whole days together, from what was booked: (offers int8[N, C], loss_s int64[N]).

    `days` must be booked to the end without a refusal. Its plans become those of the search.
    """
    world, plans = days.world, days.plans
    problem, (patience, _) = world.problem, world.options.burden_rates
    offers = np.where(plans.served, days.offer, NO_CHANGE).astype(np.int8)
    limits = np.array([problem.depot, problem.open_s, problem.close_s, problem.capacity], np.int64)
    burden_s = np.rint(60 * patience * OFFER_MIN).astype(np.int64)
    loss_s = np.zeros(days.num_days, np.int64)
    with np.errstate(over="ignore"):
        keys = mix(mix(days.key + _SEARCH) + np.arange(days.num_days, dtype=np.uint64) % np.uint64(STARTS))
    arguments = (
        *(np.ascontiguousarray(problem.travel_s), limits, days.requests, answers_known(days), burden_s),
        *(turned_away_s(problem, days.requests), 60 * OFFER_EARLIER_MIN.astype(np.int64)),
        *(60 * OFFER_LATER_MIN.astype(np.int64), world.options.offer_effect == "widen", keys, int(iterations)),
        search_settings(problem.travel_s, EFFORT),
        *(offers, plans.served, plans.stops, plans.lengths, plans.cost_s, loss_s),
    )
    machine_code = compiled(search_range, (*arguments, 0, days.num_days))
    pool = Pool(days.oracle.threads)
    try:
        pool.run(machine_code, arguments, days.num_days)
    finally:
        pool.close()
    plans.penalty_s[:] = np.where(plans.served, 0, turned_away_s(problem, days.requests)).sum(1)
    return offers, loss_s


# -- compiled: plain scalar Python in the tuples of routing/schedule.py -----------------------------------


def open_to(day: Any, r: Any, offered: Any, offer: Any) -> None:
    """Give request `r` the windows of an offer, from int32[16, 4]."""
    windows = day[1]
    windows[2 * r, OPEN], windows[2 * r, CLOSE] = offered[offer, 0], offered[offer, 1]
    windows[2 * r + 1, OPEN], windows[2 * r + 1, CLOSE] = offered[offer, 2], offered[offer, 3]


def put_back(day: Any, plan: Any, r: Any, offered: Any, allowed: Any, burden_s: Any, away_s: Any, widen: Any,
             extras: Any) -> Any:  # fmt: skip
    """Insert `r` at the place and with the offer that are cheapest together: (route, offer), or (-1, no change)."""
    price_offers(day, plan, r, offered, widen, extras)
    best, cheapest = -1, np.int64(away_s)
    for offer in range(NUM_OFFERS):
        if allowed[offer] and extras[offer] < NOWHERE and extras[offer] + burden_s[offer] < cheapest:
            best, cheapest = offer, extras[offer] + burden_s[offer]
    if best < 0:
        open_to(day, r, offered, NO_CHANGE)
        return -1, NO_CHANGE
    open_to(day, r, offered, best)
    _, v, i, j = best_place(day, plan, r)
    insert_pair(day, plan, v, r, i, j)
    return v, best


def loss_of(plan: Any, where: Any, offers: Any, burden_s: Any, away_s: Any) -> Any:
    """Travel, burden and penalties of a plan."""
    total = travel_of(plan)
    for r in range(offers.shape[0]):
        total += burden_s[offers[r]] if where[r] >= 0 else away_s[r]
    return total


def narrow(day: Any, plan: Any, where: Any, offers: Any, offered: Any, allowed: Any, burden_s: Any) -> None:
    """Give up minutes that the routes do not use."""
    for r in range(offers.shape[0]):
        v, kept = where[r], offers[r]
        if v < 0:
            continue
        for offer in range(NUM_OFFERS):
            if allowed[r, offer] and burden_s[offer] < burden_s[kept]:
                open_to(day, r, offered[r], offer)
                if time_route(day, plan, v):
                    kept = offer
        open_to(day, r, offered[r], kept)
        time_route(day, plan, v)
        offers[r] = kept


def search_range(
    travel_s: Any,
    limits: Any,
    requests: Any,
    allowed: Any,
    burden_s: Any,
    away_s: Any,
    earlier_s: Any,
    later_s: Any,
    widen: Any,
    keys: Any,
    iterations: Any,
    settings: Any,
    offers: Any,
    served: Any,
    stops: Any,
    lengths: Any,
    cost_s: Any,
    loss_s: Any,
    low: Any,
    high: Any,
) -> Any:
    """Ruin-and-recreate over routes and offers, for the days low <= n < high; threshold falling from `heat` to 0."""
    known = requests.shape[1]
    memory = allocate(known, lengths.shape[1])
    day, plans, where, notes = borrow(memory, limits)
    current, candidate, best = plans
    removed, touched = notes[0], notes[1]
    heat, margin, strings, longest = settings
    own = (np.empty((known, NUM_OFFERS, 4), np.int32), np.empty((3, known), np.int64), np.empty(NUM_OFFERS, np.int64))
    offered, extras = BARE(own[0]), BARE(own[2])
    now, trial, kept = BARE(own[1])[0], BARE(own[1])[1], BARE(own[1])[2]
    rng = np.zeros(1, RNG)[0]
    for n in range(low, high):
        begin(rng, keys[n], np.uint64(0))
        gather(travel_s, limits, requests[n], known, day)
        for r in range(known):
            now[r] = trial[r] = kept[r] = offers[n, r]
            offer_windows(requests[n, r], earlier_s, later_s, widen, offered[r])
            open_to(day, r, offered[r], now[r])
        read_plan(day, current, stops[n], lengths[n])
        copy_plan(current, candidate)
        copy_plan(current, best)
        touched[:] = False
        note_plan(current, where)
        total = loss_of(current, where, trial, burden_s, away_s[n])
        record = total
        for step in range(iterations):
            ruin(day, candidate, where, below(rng, known), known, 1 + below(rng, strings), longest, notes, rng)
            count = 0
            for r in range(known):
                if where[r] < 0:  # those turned away get another chance too
                    removed[count] = r
                    count += 1
            for k in range(count):
                pick = k + below(rng, count - k)
                r = removed[pick]
                removed[pick], removed[k] = removed[k], r
                v, offer = put_back(day, candidate, r, offered[r], allowed[n, r], burden_s, away_s[n, r], widen, extras)
                where[r], trial[r] = v, offer
                if v >= 0:
                    touched[v] = True
            price = loss_of(candidate, where, trial, burden_s, away_s[n])
            if price < total + margin:
                exchange_tails(day, candidate, where, notes)
                price = loss_of(candidate, where, trial, burden_s, away_s[n])
            if price <= total + below(rng, 1 + heat * (iterations - step) // iterations):
                total = price
                keep(current, candidate, touched)
                for k in range(count):
                    now[removed[k]] = trial[removed[k]]
                if total < record:
                    record = total
                    copy_plan(current, best)
                    kept[:] = now
            else:
                for k in range(count):
                    r = removed[k]
                    where[r] = -1
                    trial[r] = now[r]
                    open_to(day, r, offered[r], now[r])
                undo(current, candidate, where, touched)
        for r in range(known):
            now[r] = kept[r]
            open_to(day, r, offered[r], kept[r])
        for v in range(lengths.shape[1]):
            time_route(day, best, v)
        note_plan(best, where)
        narrow(day, best, where, now, offered, allowed[n], burden_s)
        loss_s[n] = loss_of(best, where, now, burden_s, away_s[n])
        cost_s[n] = write_plan(best, stops[n], lengths[n])
        for r in range(known):
            offers[n, r], served[n, r] = now[r], where[r] >= 0
    return len(memory) + len(own)  # so that they live to here: see `borrow`
