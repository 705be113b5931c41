"""One day inside a kernel: its own small travel matrix and routes that know how early and how late they can be.

These functions are plain scalar Python; `machine.kernel` compiles them. They share these tuples:

* `day` = (travel int32[M, M], windows int32[M, 3], limits int64[4]): node 2r is the pickup of request r, 2r + 1 its
  dropoff, the last node (M - 1) the depot. Gathering a day's own matrix costs a few microseconds and keeps it in the
  fastest cache while hundreds of insertions are tried.
* `plan` = (routes int32[V, M + 1, 4], lengths int32[V], costs int64[V]): a route's rows 0 and length + 1 are the depot.
* `notes` = (removed int32[C], touched bool[V], nearest int32[V], nearness int64[V], spare int32[M]): scratch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Columns of a route's rows.
NODE = 0
EARLIEST = 1  # when service can start, at the earliest
LATEST = 2  # when it must start at the latest for the rest of the route to stay in its windows
LOAD = 3  # riders aboard after the stop

# Columns of `windows`.
OPEN, CLOSE, SIZE = 0, 1, 2

# Entries of `limits`.
DEPOT_ZONE, OPEN_S, CLOSE_S, CAPACITY = 0, 1, 2, 3


def workspace(max_requests: Any, vehicles: Any, limits: Any) -> Any:
    """(day, three working plans, where int32[C]: the route of every request, notes), all uninitialised."""
    size = 2 * max_requests + 1
    day = (np.empty((size, size), np.int32), np.empty((size, 3), np.int32), limits)
    routes = np.empty((3, vehicles, size + 1, 4), np.int32)
    lengths = np.zeros((3, vehicles), np.int32)
    costs = np.zeros((3, vehicles), np.int64)
    plans = ((routes[0], lengths[0], costs[0]), (routes[1], lengths[1], costs[1]), (routes[2], lengths[2], costs[2]))
    where = np.full(max_requests, -1, np.int32)
    notes = (
        np.empty(max_requests, np.int32),
        np.zeros(vehicles, np.bool_),
        np.empty(vehicles, np.int32),
        np.empty(vehicles, np.int64),
        np.empty(size, np.int32),
    )
    return day, plans, where, notes


def gather(travel_s: Any, limits: Any, requests: Any, known: Any, day: Any) -> None:
    """Fill `day` with the first `known` requests."""
    travel, windows, _ = day
    depot = travel.shape[0] - 1
    windows[depot, OPEN], windows[depot, CLOSE], windows[depot, SIZE] = limits[OPEN_S], limits[CLOSE_S], 0
    for r in range(known):
        put_windows(day, r, requests[r])
    depot_zone = limits[DEPOT_ZONE]
    travel[depot, depot] = 0
    for a in range(2 * known):
        zone = requests[a >> 1].dropoff if a & 1 else requests[a >> 1].pickup
        travel[depot, a] = travel_s[depot_zone, zone]
        travel[a, depot] = travel_s[zone, depot_zone]
        for r in range(known):
            travel[a, 2 * r] = travel_s[zone, requests[r].pickup]
            travel[a, 2 * r + 1] = travel_s[zone, requests[r].dropoff]


def put_windows(day: Any, r: Any, request: Any) -> None:
    """Windows and size of one request into `day`."""
    windows = day[1]
    windows[2 * r, OPEN], windows[2 * r, CLOSE] = request.pickup_open, request.pickup_close
    windows[2 * r + 1, OPEN], windows[2 * r + 1, CLOSE] = request.dropoff_open, request.dropoff_close
    windows[2 * r, SIZE], windows[2 * r + 1, SIZE] = request.size, -request.size


def time_route(day: Any, plan: Any, v: Any) -> Any:
    """Recompute earliest, latest, load and cost of route `v` from its nodes; False if a window or the load breaks."""
    travel, windows, limits = day
    routes, lengths, costs = plan
    route = routes[v]
    n = lengths[v]
    depot = travel.shape[0] - 1
    route[0, NODE], route[0, EARLIEST], route[0, LOAD] = depot, limits[OPEN_S], 0
    route[n + 1, NODE] = depot
    at, now, load, cost, feasible = depot, np.int64(limits[OPEN_S]), np.int64(0), np.int64(0), True
    for k in range(1, n + 2):
        node = route[k, NODE]
        leg = travel[at, node]
        cost += leg
        now = max(now + leg, np.int64(windows[node, OPEN]))
        load += windows[node, SIZE]
        feasible = feasible and now <= windows[node, CLOSE] and load <= limits[CAPACITY]
        route[k, EARLIEST], route[k, LOAD] = now, load
        at = node
    latest = np.int64(limits[CLOSE_S])
    route[n + 1, LATEST] = latest
    after = np.int64(depot)
    for step in range(n + 1):
        k = n - step
        node = route[k, NODE]
        latest = min(latest - travel[node, after], np.int64(windows[node, CLOSE]))
        route[k, LATEST] = latest
        after = node
    costs[v] = cost if n > 0 else 0
    return feasible


def read_plan(day: Any, plan: Any, stops: Any, stop_counts: Any) -> None:
    """The routes of one stored day into a working plan."""
    routes, lengths, _ = plan
    for v in range(lengths.shape[0]):
        lengths[v] = stop_counts[v]
        for k in range(stop_counts[v]):
            routes[v, k + 1, NODE] = stops[v, k]
        time_route(day, plan, v)


def write_plan(plan: Any, stops: Any, stop_counts: Any) -> Any:
    """A working plan into the arrays of a stored day; its travel seconds."""
    routes, lengths, costs = plan
    total = np.int64(0)
    for v in range(lengths.shape[0]):
        stop_counts[v] = lengths[v]
        total += costs[v]
        for k in range(lengths[v]):
            stops[v, k] = routes[v, k + 1, NODE]
        stops[v, lengths[v] :] = 0  # equal routes are equal bytes
    return total


def copy_route(source: Any, target: Any, v: Any) -> None:
    """Route `v` of one working plan into another."""
    rows = source[1][v] + 2
    for k in range(rows):
        for column in range(4):
            target[0][v, k, column] = source[0][v, k, column]
    target[1][v] = source[1][v]
    target[2][v] = source[2][v]


def copy_plan(source: Any, target: Any) -> None:
    """All routes of one working plan into another."""
    for v in range(source[1].shape[0]):
        copy_route(source, target, v)


def note_route(plan: Any, where: Any, v: Any) -> None:
    """`where` for the requests of route `v`."""
    routes, lengths, _ = plan
    for k in range(1, lengths[v] + 1):
        where[routes[v, k, NODE] >> 1] = v


def note_plan(plan: Any, where: Any) -> None:
    """The route of every request into `where`, -1 for those in none."""
    where[:] = -1
    for v in range(plan[1].shape[0]):
        note_route(plan, where, v)


def travel_of(plan: Any) -> Any:
    """Travel seconds of all routes."""
    total = np.int64(0)
    for v in range(plan[2].shape[0]):
        total += plan[2][v]
    return total


def insert_pair(day: Any, plan: Any, v: Any, r: Any, i: Any, j: Any) -> None:
    """Put the pickup of `r` after row `i` of route `v` and its dropoff after row `j` (rows before the insertion)."""
    routes, lengths, _ = plan
    route = routes[v]
    n = lengths[v]
    for step in range(n - j):
        route[n + 2 - step, NODE] = route[n - step, NODE]
    route[j + 2, NODE] = 2 * r + 1
    for step in range(j - i):
        route[j + 1 - step, NODE] = route[j - step, NODE]
    route[i + 1, NODE] = 2 * r
    lengths[v] = n + 2
    time_route(day, plan, v)
