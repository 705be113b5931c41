"""One day inside a kernel: its own small travel matrix and routes that know how early and how late they can be.

These functions are plain scalar Python; `machine.compiled` compiles them. They share these tuples:

* `day` = (travel int32[M, M], windows int32[M, 3], limits int64[4]): node 2r is the pickup of request r, 2r + 1 its
  dropoff, the last node (M - 1) the depot. Gathering a day's own matrix costs a few microseconds and keeps it in the
  fastest cache while hundreds of insertions are tried.
* `plan` = (routes STOP[V, M + 1], lengths int32[V], costs int64[V]): rows 0 and length + 1 of a route are the depot.
* `notes` = (removed int32[C], touched bool[V], nearest int32[V], nearness int64[V], spare int32[M], cuts CUT[V, M + 1],
  cut_counts int32[V]): scratch of the search.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.rides.routing.machine import BARE

STOP = np.dtype(
    [
        ("node", "u4"),  # unsigned: as an index it needs no test for a negative
        ("earliest", "i4"),  # when service can start, at the earliest
        ("latest", "i4"),  # when it must start at the latest for the rest of the route to stay in its windows
        ("load", "i4"),  # riders aboard after the stop
        ("leg", "i4"),  # travel to the next row
        ("open", "i4"),  # of the stop's window
    ]
)
CUT = np.dtype(  # a leg of a route that is driven empty
    [
        ("row", "i4"),  # it leaves from
        ("node", "u4"),  # of that row
        ("earliest", "i4"),  # of that row
        ("leg", "i4"),
        ("next", "u4"),  # node of the row it leads to
        ("latest", "i4"),  # of the row it leads to
    ]
)

# Columns of `windows`; a node's size is what it adds to the load.
OPEN, CLOSE, SIZE = 0, 1, 2

# Entries of `limits`.
DEPOT_ZONE, OPEN_S, CLOSE_S, CAPACITY = 0, 1, 2, 3


def allocate(max_requests: Any, vehicles: Any) -> Any:
    """The memory of a kernel, as a tuple of arrays; see `borrow`."""
    size = 2 * max_requests + 1
    return (
        np.empty((size, size), np.int32),  # travel
        np.empty((size, 3), np.int32),  # windows
        np.empty((3, vehicles, size + 1), STOP),
        np.zeros((3, vehicles), np.int32),  # lengths
        np.zeros((3, vehicles), np.int64),  # costs
        np.empty(max_requests, np.int32),  # where
        np.empty(max_requests, np.int32),  # removed
        np.zeros(vehicles, np.bool_),  # touched
        np.empty(vehicles, np.int32),  # nearest
        np.empty(vehicles, np.int64),  # nearness
        np.empty(size, np.int32),  # spare
        np.empty((vehicles, size + 1), CUT),
        np.empty(vehicles, np.int32),  # how many cuts
    )


def borrow(memory: Any, limits: Any) -> Any:
    """(day, three working plans, where int32[C]: the route of every request, notes) in the given memory.

    Numba counts the references to an array with atomic instructions, at every slice and every unpacked tuple: half
    of the time of a search. So kernels work on bare arrays, which are not counted, and the memory must outlive them:
    a kernel has to mention it after its last use of what is borrowed.
    """
    routes, lengths, costs = BARE(memory[2]), BARE(memory[3]), BARE(memory[4])
    day = (BARE(memory[0]), BARE(memory[1]), BARE(limits))
    plans = ((routes[0], lengths[0], costs[0]), (routes[1], lengths[1], costs[1]), (routes[2], lengths[2], costs[2]))
    removed, touched, nearest, nearness = BARE(memory[6]), BARE(memory[7]), BARE(memory[8]), BARE(memory[9])
    notes = (removed, touched, nearest, nearness, BARE(memory[10]), BARE(memory[11]), BARE(memory[12]))
    return day, plans, BARE(memory[5]), notes


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
    depot = np.uint32(travel.shape[0] - 1)
    route[0].node, route[0].earliest, route[0].load, route[0].open = depot, limits[OPEN_S], 0, limits[OPEN_S]
    route[n + 1].node, route[n + 1].leg = depot, 0
    at, now, load, cost, feasible = depot, np.int64(limits[OPEN_S]), np.int64(0), np.int64(0), True
    for k in range(n + 1):
        stop = route[k + 1]
        node = stop.node
        leg = travel[at, node]
        route[k].leg = leg
        cost += leg
        now = max(now + leg, np.int64(windows[node, OPEN]))
        load += windows[node, SIZE]
        feasible = feasible and now <= windows[node, CLOSE] and load <= limits[CAPACITY]
        stop.earliest, stop.load, stop.open = now, load, windows[node, OPEN]
        at = node
    latest = np.int64(limits[CLOSE_S])
    route[n + 1].latest = latest
    for step in range(n + 1):
        stop = route[n - step]
        latest = min(latest - stop.leg, np.int64(windows[stop.node, CLOSE]))
        stop.latest = latest
    costs[v] = cost if n > 0 else 0
    return feasible


def read_plan(day: Any, plan: Any, stops: Any, stop_counts: Any) -> None:
    """The routes of one stored day into a working plan."""
    routes, lengths, _ = plan
    for v in range(lengths.shape[0]):
        lengths[v] = stop_counts[v]
        for k in range(stop_counts[v]):
            routes[v, k + 1].node = stops[v, k]
        time_route(day, plan, v)


def write_plan(plan: Any, stops: Any, stop_counts: Any) -> Any:
    """A working plan into the arrays of a stored day; its travel seconds."""
    routes, lengths, costs = plan
    total = np.int64(0)
    for v in range(lengths.shape[0]):
        stop_counts[v] = lengths[v]
        total += costs[v]
        for k in range(lengths[v]):
            stops[v, k] = routes[v, k + 1].node
        stops[v, lengths[v] :] = 0  # equal routes are equal bytes
    return total


def copy_route(source: Any, target: Any, v: Any) -> None:
    """Route `v` of one working plan into another."""
    rows = source[1][v] + 2
    for k in range(rows):
        target[0][v, k] = source[0][v, k]
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
        where[routes[v, k].node >> 1] = v


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
        route[n + 2 - step].node = route[n - step].node
    route[j + 2].node = 2 * r + 1
    for step in range(j - i):
        route[j + 1 - step].node = route[j - step].node
    route[i + 1].node = 2 * r
    lengths[v] = n + 2
    time_route(day, plan, v)
