"""Cheapest feasible insertion of a request, exact for a given set of routes, by forward and backward time slack.

Every route knows the earliest and the latest start of each stop, so whether a pickup fits at a place is a
question of constant time; the places for the dropoff are then scanned with the delay the pickup causes, until
that delay breaks a window. The travel matrix is closed under the triangle inequality: a pickup that is too late
after one stop is too late after every later one, and no insertion shortens a route.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.rides.routing.schedule import CAPACITY, CLOSE, OPEN, SIZE

NOWHERE = np.int64(1 << 60)  # of an insertion: larger than any cost; never leaves a kernel


def best_in_route(day: Any, plan: Any, v: Any, r: Any, below: Any) -> Any:
    """(extra seconds, pickup after row i, dropoff after row j) of the cheapest place in route `v` under `below`.

    Extra is `below` if there is none.
    """
    travel, windows, limits = day
    route = plan[0][v]
    n = np.int64(plan[1][v])
    p, d = 2 * r, 2 * r + 1
    open_p, close_p = np.int64(windows[p, OPEN]), np.int64(windows[p, CLOSE])
    open_d, close_d = np.int64(windows[d, OPEN]), np.int64(windows[d, CLOSE])
    room = limits[CAPACITY] - windows[p, SIZE]
    direct = np.int64(travel[p, d])
    best: Any = np.int64(below)
    best_i: Any = -1
    best_j: Any = -1
    start = 0
    while start < n and route[start + 1].latest < open_p:
        start += 1
    for k in range(start, n + 1):
        stop, after = route[k], route[k + 1]
        if stop.earliest > close_p:
            break
        to_p, from_p = np.int64(travel[stop.node, p]), np.int64(travel[p, after.node])
        now = stop.earliest + to_p
        if now > close_p:
            break
        now = max(now, open_p)
        detour = to_p + from_p - stop.leg
        if now + from_p > after.latest or detour >= best or stop.load > room:
            continue
        arrive = now + direct
        if arrive > close_d:
            continue
        to_next = np.int64(travel[d, after.node])
        extra = to_p + direct + to_next - stop.leg
        if extra < best and max(arrive, open_d) + to_next <= after.latest:
            best, best_i, best_j = extra, k, k
        now += from_p
        for m in range(k + 1, n + 1):
            stop, after = route[m], route[m + 1]
            now = max(now, np.int64(stop.open))
            if stop.load > room:
                break
            to_d = np.int64(travel[stop.node, d])
            arrive = now + to_d
            if arrive > close_d:
                break
            to_next = np.int64(travel[d, after.node])
            extra = detour + to_d + to_next - stop.leg
            if extra < best and max(arrive, open_d) + to_next <= after.latest:
                best, best_i, best_j = extra, k, m
            now += stop.leg
            if now > after.latest:
                break
    return best, best_i, best_j


def best_place(day: Any, plan: Any, r: Any) -> Any:
    """(extra seconds, route, i, j) of the cheapest place in any route; extra is NOWHERE if there is none."""
    lengths = plan[1]
    best, best_v, best_i, best_j = NOWHERE, -1, -1, -1
    tried_empty = False
    for v in range(lengths.shape[0]):
        if lengths[v] == 0:
            if tried_empty:  # all empty vehicles are alike
                continue
            tried_empty = True
        extra, i, j = best_in_route(day, plan, v, r, best)
        if extra < best:
            best, best_v, best_i, best_j = extra, v, i, j
    return best, best_v, best_i, best_j
