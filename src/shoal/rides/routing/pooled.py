"""Pooled pricing: what the whole day costs under each of the 16 offers, compared on common routes.

Sixteen searches of their own would differ by their luck more than by their offers. So the search is run for a few
offers only (the bases), and every plan that it comes across is tested under the windows of all sixteen: whatever
it finds that has nothing to do with the offer helps them all alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.compiled.random import RNG, begin, below
from shoal.rides.routing.improve import attempt
from shoal.rides.routing.insertion import NOWHERE, best_place
from shoal.rides.routing.menu import offer_windows, price_offers
from shoal.rides.routing.problem import Status
from shoal.rides.routing.rescue import alone_fits, bank_space, rescue
from shoal.rides.routing.ruin import keep, undo
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

# The offers that are searched, in this order: no change, all of it, 30 minutes earlier, 30 later.
BASES = np.array([12, 3, 0, 15, 8, 13, 2, 7])
RESCUE = 300  # iterations to find a first plan for a base that has none


def set_windows(day: Any, r: Any, windows: Any) -> None:
    """Windows (pickup open, pickup close, dropoff open, dropoff close) of request `r`."""
    own = day[1]
    own[2 * r, OPEN], own[2 * r, CLOSE] = windows[0], windows[1]
    own[2 * r + 1, OPEN], own[2 * r + 1, CLOSE] = windows[2], windows[3]


def test_offers(day: Any, plan: Any, v: Any, r: Any, windows: Any, fits: Any) -> None:
    """fits[offer]: whether a plan that serves `r` in route `v` is feasible under each offer's windows."""
    travel, own, _ = day
    route = plan[0][v]
    i = 1
    while route[i].node != 2 * r:
        i += 1
    reach_p = np.int64(route[i - 1].earliest) + travel[route[i - 1].node, 2 * r]
    for group in range(4):
        first = 4 * group
        for offer in range(first, first + 4):
            fits[offer] = False
        now = max(reach_p, np.int64(windows[first, 0]))  # the offers of a group share the pickup's opening
        k, at, in_time = i + 1, np.int64(2 * r), reach_p <= windows[first + 3, 1]
        while in_time and route[k].node != 2 * r + 1:
            node = np.int64(route[k].node)
            now = max(now + travel[at, node], np.int64(own[node, OPEN]))
            in_time = now <= own[node, CLOSE]
            at = node
            k += 1
        if not in_time:
            continue
        reach_d = now + travel[at, 2 * r + 1]
        leave_by = np.int64(route[k + 1].latest) - travel[2 * r + 1, route[k + 1].node]
        for offer in range(first, first + 4):
            fits[offer] = (
                reach_p <= windows[offer, 1]
                and reach_d <= windows[offer, 3]
                and max(reach_d, np.int64(windows[offer, 2])) <= leave_by
            )


def note_offers(
    day: Any, plan: Any, v: Any, r: Any, windows: Any, price: Any, fits: Any, prices: Any, stops: Any, lengths: Any
) -> None:
    """Keep a plan for every offer that it is feasible for and cheaper than what that offer has."""
    worst = np.int64(0)
    for offer in range(16):
        worst = max(worst, prices[offer])
    if price >= worst:
        return
    test_offers(day, plan, v, r, windows, fits)
    for offer in range(16):
        if fits[offer] and price < prices[offer]:
            prices[offer] = price
            write_plan(plan, stops[offer], lengths[offer])


def take_out(day: Any, plan: Any, v: Any, r: Any) -> None:
    """Remove request `r` from route `v`."""
    routes, lengths, _ = plan
    kept = 0
    for k in range(1, lengths[v] + 1):
        node = routes[v, k].node
        if node >> 1 != r:
            kept += 1
            routes[v, kept].node = node
    lengths[v] = kept
    time_route(day, plan, v)


def share_offers(
    day: Any, plan: Any, v: Any, r: Any, windows: Any, widen: Any, extras: Any, prices: Any, stops: Any, lengths: Any
) -> None:
    """Take `r` out of `plan`, where it is in route `v`, and put it back under each offer where that beats what it has.

    Unlike `note_offers` this also helps offers under which the plan as it stands is not feasible. Leaves `plan` without
    `r`, and `r` with other windows.
    """
    take_out(day, plan, v, r)
    without = travel_of(plan)
    price_offers(day, plan, r, windows, widen, extras)
    for offer in range(16):
        if without + extras[offer] < prices[offer]:
            prices[offer] = without + extras[offer]
            set_windows(day, r, windows[offer])
            _, u, i, j = best_place(day, plan, r)
            insert_pair(day, plan, u, r, i, j)
            write_plan(plan, stops[offer], lengths[offer])
            take_out(day, plan, u, r)


def start_base(
    day: Any, plans: Any, where: Any, r: Any, stops: Any, lengths: Any, price: Any, pool_stops: Any, pool_lengths: Any,
    banks: Any, settings: Any, notes: Any, rng: Any,
) -> Any:  # fmt: skip
    """A plan that serves `r` under its present windows, into plans[0]; False if none was found.

    The day's plan with `r` at its cheapest place, or what the pool has at `price` if that is cheaper.
    """
    current = plans[0]
    read_plan(day, current, stops, lengths)
    note_plan(current, where)
    extra, v, i, j = best_place(day, current, r)
    if extra < NOWHERE and travel_of(current) + extra <= price:
        insert_pair(day, current, v, r, i, j)
        where[r] = v
        return True
    if price < NOWHERE:
        read_plan(day, current, pool_stops, pool_lengths)
        note_plan(current, where)
        return True
    banks[0][0] = r
    return alone_fits(day, r) and rescue(day, plans, where, r + 1, banks, 1, RESCUE, settings[1], notes, rng) == 0


def pooled_range(
    travel_s: Any,
    limits: Any,
    requests: Any,
    count: Any,
    stops: Any,
    lengths: Any,
    new: Any,
    active: Any,
    keys: Any,
    earlier_s: Any,
    later_s: Any,
    widen: Any,
    bases: Any,
    iterations: Any,
    settings: Any,
    cost_s: Any,
    status: Any,
    pool_stops: Any,
    pool_lengths: Any,
    low: Any,
    high: Any,
) -> Any:
    """Pooled prices of new[n] under every offer, for the days low <= n < high."""
    max_requests = requests.shape[1]
    memory = allocate(max_requests, lengths.shape[1])
    day, plans, where, notes = borrow(memory, limits)
    current, candidate, spare = plans
    touched = notes[1]
    banks = bank_space(max_requests)
    known = np.empty(max_requests, requests.dtype)
    windows = np.empty((16, 4), np.int32)
    prices, extras = np.empty(16, np.int64), np.empty(16, np.int64)
    fits = np.empty(16, np.bool_)
    rng = np.zeros(1, RNG)[0]
    for n in range(low, high):
        if not active[n]:
            continue
        r = np.int64(count[n])
        for k in range(r):
            known[k] = requests[n, k]
        known[r] = new[n]
        gather(travel_s, limits, known, r + 1, day)
        offer_windows(new[n], earlier_s, later_s, widen, windows)
        pool, pool_counts = pool_stops[n], pool_lengths[n]
        prices[:] = NOWHERE
        for base in range(bases):
            begin(rng, keys[n], np.uint64(base))
            offer = BASES[base]
            set_windows(day, r, windows[offer])
            if not start_base(day, plans, where, r, stops[n], lengths[n], prices[offer], pool[offer],
                              pool_counts[offer], banks, settings, notes, rng):  # fmt: skip
                continue
            touched[:] = False
            copy_plan(current, candidate)
            total = travel_of(current)
            record = total + 1
            for step in range(iterations + 1):
                if total < record:
                    record = total
                    copy_plan(current, spare)
                    share_offers(day, spare, where[r], r, windows, widen, extras, prices, pool, pool_counts)
                    set_windows(day, r, windows[offer])
                if step == iterations:
                    break
                price = attempt(day, candidate, where, r + 1, r, total, settings, notes, rng)
                if price < NOWHERE:
                    note_offers(day, candidate, where[r], r, windows, price, fits, prices, pool, pool_counts)
                if price <= total + below(rng, 1 + settings[0] * (iterations - step) // iterations):
                    total = price
                    keep(current, candidate, touched)
                else:
                    undo(current, candidate, where, touched)
        for offer in range(16):
            found = prices[offer] < NOWHERE
            cost_s[n, offer] = prices[offer] if found else 0
            status[n, offer] = Status.OK if found else Status.UNKNOWN
    return len(memory)  # so that it lives to here: see `borrow`
