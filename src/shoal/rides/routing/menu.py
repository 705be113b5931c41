"""The menu: what the cheapest insertion of a request costs under each of the 16 offers, all in one scan.

Offers come in four groups that share how much earlier the pickup may be. Within a group a place has to be found and
its delays followed only once: the offers differ in their deadlines alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.rides.routing.insertion import NOWHERE
from shoal.rides.routing.problem import Status
from shoal.rides.routing.schedule import (
    CAPACITY,
    CLOSE,
    CLOSE_S,
    DEPOT_ZONE,
    OPEN,
    OPEN_S,
    SIZE,
    allocate,
    borrow,
    put_windows,
    read_plan,
)


def offer_windows(request: Any, earlier_s: Any, later_s: Any, widen: Any, windows: Any) -> None:
    """Pickup open, pickup close, dropoff open, dropoff close under each offer, into int32[16, 4]."""
    for offer in range(windows.shape[0]):
        early, late = earlier_s[offer], later_s[offer]
        windows[offer, 0] = request.pickup_open - early
        windows[offer, 1] = request.pickup_close + (late if widen else -early)
        windows[offer, 2] = request.dropoff_open + (-early if widen else late)
        windows[offer, 3] = request.dropoff_close + late


def offers_in_route(day: Any, plan: Any, v: Any, r: Any, windows: Any, first: Any, extras: Any) -> None:
    """Lower extras[first : first + 4] to the cheapest place in route `v`; the four offers share the pickup's opening.

    They must also close in order: `later` grows from one to the next.
    """
    travel, own, limits = day
    route = plan[0][v]
    n = np.int64(plan[1][v])
    p, d = 2 * r, 2 * r + 1
    room = limits[CAPACITY] - own[p, SIZE]
    direct = np.int64(travel[p, d])
    open_p, last_p, last_d = np.int64(windows[first, 0]), windows[first + 3, 1], windows[first + 3, 3]
    start = 0
    while start < n and route[start + 1].latest < open_p:
        start += 1
    for k in range(start, n + 1):
        stop, after = route[k], route[k + 1]
        to_p, from_p = np.int64(travel[stop.node, p]), np.int64(travel[p, after.node])
        reach_p = stop.earliest + to_p
        if reach_p > last_p:
            break
        now = max(reach_p, open_p)
        detour = to_p + from_p - stop.leg
        worst = max(max(extras[first], extras[first + 1]), max(extras[first + 2], extras[first + 3]))
        if now + from_p > after.latest or detour >= worst or stop.load > room:
            continue
        arrive = now + direct
        if arrive > last_d:
            continue
        to_next = np.int64(travel[d, after.node])
        extra = to_p + direct + to_next - stop.leg
        _lower(windows, first, extras, reach_p, arrive, extra, after.latest - to_next)
        now += from_p
        for m in range(k + 1, n + 1):
            stop, after = route[m], route[m + 1]
            now = max(now, np.int64(stop.open))
            if stop.load > room:
                break
            to_d = np.int64(travel[stop.node, d])
            arrive = now + to_d
            if arrive > last_d:
                break
            to_next = np.int64(travel[d, after.node])
            extra = detour + to_d + to_next - stop.leg
            _lower(windows, first, extras, reach_p, arrive, extra, after.latest - to_next)
            now += stop.leg
            if now > after.latest:
                break


def _lower(windows: Any, first: Any, extras: Any, reach_p: Any, reach_d: Any, extra: Any, leave_by: Any) -> None:
    """Note one place for the offers it is feasible for and cheaper than what they have."""
    for offer in range(first, first + 4):
        if (
            extra < extras[offer]
            and reach_p <= windows[offer, 1]
            and reach_d <= windows[offer, 3]
            and max(reach_d, np.int64(windows[offer, 2])) <= leave_by
        ):
            extras[offer] = extra


def gather_routes(travel_s: Any, limits: Any, requests: Any, stops: Any, stop_counts: Any, r: Any, day: Any) -> None:
    """As schedule.gather, but only the legs of the given routes and those from and to request `r`."""
    travel, windows, _ = day
    depot = travel.shape[0] - 1
    home = limits[DEPOT_ZONE]
    p_zone, d_zone = requests[r].pickup, requests[r].dropoff
    p, d = 2 * r, 2 * r + 1
    windows[depot, OPEN], windows[depot, CLOSE], windows[depot, SIZE] = limits[OPEN_S], limits[CLOSE_S], 0
    travel[depot, depot] = 0
    travel[depot, p], travel[depot, d] = travel_s[home, p_zone], travel_s[home, d_zone]
    travel[p, depot], travel[d, depot] = travel_s[p_zone, home], travel_s[d_zone, home]
    travel[p, d] = travel_s[p_zone, d_zone]
    put_windows(day, r, requests[r])
    for v in range(stop_counts.shape[0]):
        at, zone = depot, home
        for k in range(stop_counts[v]):
            node = np.int64(stops[v, k])
            request = requests[node >> 1]
            if node & 1 == 0:
                put_windows(day, node >> 1, request)
            there = request.dropoff if node & 1 else request.pickup
            travel[at, node] = travel_s[zone, there]
            travel[node, p], travel[node, d] = travel_s[there, p_zone], travel_s[there, d_zone]
            travel[p, node], travel[d, node] = travel_s[p_zone, there], travel_s[d_zone, there]
            at, zone = node, np.int64(there)
        travel[at, depot] = travel_s[zone, home]


def menu_range(
    travel_s: Any,
    limits: Any,
    requests: Any,
    count: Any,
    stops: Any,
    lengths: Any,
    new: Any,
    active: Any,
    earlier_s: Any,
    later_s: Any,
    widen: Any,
    extra_s: Any,
    status: Any,
    low: Any,
    high: Any,
) -> Any:
    """Insertion prices of new[n] under every offer, for the days low <= n < high."""
    max_requests = requests.shape[1]
    memory = allocate(max_requests + 1, lengths.shape[1])  # the new request may be one more than a day can keep
    day, plans, _, _ = borrow(memory, limits)
    plan = plans[0]
    known = np.empty(max_requests + 1, requests.dtype)
    windows = np.empty((16, 4), np.int32)
    extras = np.empty(16, np.int64)
    for n in range(low, high):
        if not active[n]:
            continue
        r = count[n]
        for k in range(r):
            known[k] = requests[n, k]
        known[r] = new[n]
        gather_routes(travel_s, limits, known, stops[n], lengths[n], r, day)
        read_plan(day, plan, stops[n], lengths[n])
        offer_windows(new[n], earlier_s, later_s, widen, windows)
        price_offers(day, plan, r, windows, widen, extras)
        for offer in range(16):
            found = extras[offer] < NOWHERE
            extra_s[n, offer] = extras[offer] if found else 0
            status[n, offer] = Status.OK if found else Status.UNKNOWN
    return len(memory)  # so that it lives to here: see `borrow`


def price_offers(day: Any, plan: Any, r: Any, windows: Any, widen: Any, extras: Any) -> None:
    """The cheapest insertion of `r` under each of the 16 offers into extras int64[16]; NOWHERE if there is none."""
    extras[:] = NOWHERE
    lengths = plan[1]
    for group in range(4):
        first = 12 - 4 * group  # from no change to the earliest: what a narrower offer found holds for a wider
        if widen and group > 0:
            for offer in range(first, first + 4):
                extras[offer] = extras[offer + 4]
        tried_empty = False
        for v in range(lengths.shape[0]):
            if lengths[v] == 0:
                if tried_empty:
                    continue
                tried_empty = True
            offers_in_route(day, plan, v, r, windows, first, extras)
