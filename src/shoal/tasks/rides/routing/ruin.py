"""Ruin and recreate: take out a few requests that are near each other in time and space, put them back better.

After Schrimpf et al. 2000 ("Record breaking optimization results using the ruin and recreate principle"); the
strings of neighbouring requests follow Christiaens & Vanden Berghe 2020 ("Slack induction by string removals").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.tasks.rides.routing.insertion import NOWHERE, best_place
from shoal.tasks.rides.routing.problem import Status
from shoal.tasks.rides.routing.schedule import (
    CAPACITY,
    CLOSE,
    CLOSE_S,
    NODE,
    OPEN,
    OPEN_S,
    SIZE,
    copy_route,
    gather,
    insert_pair,
    read_plan,
    time_route,
    travel_of,
    write_plan,
)
from shoal.vector.rng import RNG, begin, below


def relatedness(day: Any, a: int, b: int) -> int:
    """How far two requests are from each other, in seconds of travel and of time of day."""
    travel, windows, _ = day
    space = np.int64(travel[2 * a, 2 * b]) + travel[2 * a + 1, 2 * b + 1]
    pickup_apart = abs(np.int64(windows[2 * a, OPEN]) - windows[2 * b, OPEN])
    return space + pickup_apart


def ruin(
    day: Any, plan: Any, where: Any, seed: int, known: int, strings: int, longest: int, notes: Any, rng: Any
) -> int:
    """Take out strings of requests near `seed`; how many. notes = (removed, touched, nearest, nearness)."""
    removed, touched, nearest, nearness = notes
    routes, lengths, _ = plan
    vehicles = lengths.shape[0]
    for v in range(vehicles):
        nearness[v] = NOWHERE
    for r in range(known):
        v = where[r]
        if v >= 0:
            far = relatedness(day, seed, r)
            if far < nearness[v]:
                nearness[v], nearest[v] = far, r
    count = 0
    if where[seed] >= 0:
        nearness[where[seed]], nearest[where[seed]] = -1, seed
    for _ in range(strings):
        v = 0
        for other in range(1, vehicles):
            if nearness[other] < nearness[v]:
                v = other
        if nearness[v] == NOWHERE:
            break
        nearness[v] = NOWHERE
        touched[v] = True
        n = lengths[v]
        wanted = min(1 + below(rng, longest), n >> 1)
        # The string: `wanted` pickups in the order of the route, the nearest request among them.
        before = below(rng, wanted)
        position = 0
        for k in range(1, n + 1):
            if routes[v, k, NODE] == 2 * nearest[v]:
                position = k
        start, seen = position, 0
        while start > 1 and seen < before:
            start -= 1
            if routes[v, start, NODE] & 1 == 0:
                seen += 1
        taken = 0
        for k in range(start, n + 1):
            node = routes[v, k, NODE]
            if node & 1 == 0 and taken < wanted:
                removed[count] = node >> 1
                where[node >> 1] = -1
                count += 1
                taken += 1
        keep = 0
        for k in range(1, n + 1):
            node = routes[v, k, NODE]
            if where[node >> 1] >= 0:
                keep += 1
                routes[v, keep, NODE] = node
        lengths[v] = keep
        time_route(day, plan, v)
    return count


def recreate(day: Any, plan: Any, where: Any, count: int, notes: Any, rng: Any) -> bool:
    """Put `count` removed requests back, cheapest place first come; False as soon as one finds no place."""
    removed, touched, _, _ = notes
    for k in range(count):
        pick = k + below(rng, count - k)
        r = removed[pick]
        removed[pick] = removed[k]
        removed[k] = r
        extra, v, i, j = best_place(day, plan, r)
        if extra == NOWHERE:
            return False
        touched[v] = True
        where[r] = v
        insert_pair(day, plan, v, r, i, j)
    return True


def note_route(plan: Any, where: Any, v: int) -> None:
    """`where` for the requests of route `v`."""
    routes, lengths, _ = plan
    for k in range(1, lengths[v] + 1):
        where[routes[v, k, NODE] >> 1] = v


def note_plan(plan: Any, where: Any) -> None:
    """The route of every request into `where`, -1 for those in none."""
    where[:] = -1
    for v in range(plan[1].shape[0]):
        note_route(plan, where, v)


def improve(
    day: Any, plans: Any, where: Any, known: int, focus: int, iterations: int, heat: int, notes: Any, rng: Any
) -> int:
    """Ruin-and-recreate from a complete plan in plans[0]; leaves the best plan there, returns its travel.

    `focus` is the request to work around, or -1 for the whole day.
    """
    current, candidate, best = plans
    touched = notes[1]
    vehicles = current[1].shape[0]
    for v in range(vehicles):
        copy_route(current, candidate, v)
        copy_route(current, best, v)
        touched[v] = False
    total = travel_of(current)
    record = total
    for step in range(iterations):
        if focus >= 0 and (step == 0 or below(rng, 2) == 0):
            seed = focus
        else:
            seed = below(rng, known)
        strings, longest = 1 + below(rng, 3), 3
        count = ruin(day, candidate, where, seed, known, strings, longest, notes, rng)
        complete = recreate(day, candidate, where, count, notes, rng)
        price = travel_of(candidate)
        if complete and price < total + 1 + below(rng, heat):
            total = price
            for v in range(vehicles):
                if touched[v]:
                    copy_route(candidate, current, v)
                    touched[v] = False
            if total < record:
                record = total
                for v in range(vehicles):
                    copy_route(current, best, v)
        else:
            for v in range(vehicles):
                if touched[v]:
                    copy_route(current, candidate, v)
                    note_route(current, where, v)
                    touched[v] = False
    if record < total:
        for v in range(vehicles):
            copy_route(best, current, v)
            note_route(best, where, v)
    return record


def recreate_some(
    day: Any, plan: Any, where: Any, count: int, bank: Any, absent: Any, notes: Any, rng: Any
) -> tuple[int, int]:
    """As `recreate`, but who finds no place goes to the bank: (how many, the sum of their absences)."""
    removed, touched, _, _ = notes
    banked, absences = 0, 0
    for k in range(count):
        pick = k + below(rng, count - k)
        r = removed[pick]
        removed[pick] = removed[k]
        removed[k] = r
        extra, v, i, j = best_place(day, plan, r)
        if extra == NOWHERE:
            bank[banked] = r
            banked += 1
            absences += absent[r]
        else:
            touched[v] = True
            where[r] = v
            insert_pair(day, plan, v, r, i, j)
    return banked, absences


def rescue(
    day: Any, plans: Any, where: Any, known: int, banks: Any, banked: int, iterations: int, notes: Any, rng: Any
) -> int:
    """Find a place for the `banked` requests in banks[0], putting others aside for a while; how many are left over.

    plans[0] is the plan without them. A request that was often left over weighs more, so that the search keeps it in and
    tries to do without another (the absence counters of Christiaens & Vanden Berghe 2020, section 4.3).
    """
    current, candidate, _ = plans
    bank, other_bank, absent = banks
    removed, touched = notes[0], notes[1]
    vehicles = current[1].shape[0]
    for v in range(vehicles):
        copy_route(current, candidate, v)
        touched[v] = False
    for r in range(known):
        absent[r] = 1
    absences = banked
    total = travel_of(current)
    for _ in range(iterations):
        if below(rng, 4) == 0:
            seed = below(rng, known)
        else:
            seed = np.int64(bank[below(rng, banked)])
        strings, longest = 1 + below(rng, min(vehicles, 4)), 1 + below(rng, 6)
        count = ruin(day, candidate, where, seed, known, strings, longest, notes, rng)
        for k in range(banked):
            removed[count] = bank[k]
            count += 1
        left, left_absences = recreate_some(day, candidate, where, count, other_bank, absent, notes, rng)
        price = travel_of(candidate)
        better = left_absences < absences or (left <= banked and left_absences == absences and price < total + 600)
        for k in range(left):
            absent[other_bank[k]] += 1
        if better:
            total, banked, absences = price, left, 0
            for k in range(left):
                bank[k] = other_bank[k]
            for v in range(vehicles):
                if touched[v]:
                    copy_route(candidate, current, v)
                    touched[v] = False
            if banked == 0:
                return 0
        else:
            absences = 0
            for v in range(vehicles):
                if touched[v]:
                    copy_route(current, candidate, v)
                    note_route(current, where, v)
                    touched[v] = False
            for k in range(banked):
                where[bank[k]] = -1
        for k in range(banked):
            absences += absent[bank[k]]
    return banked


def alone_fits(day: Any, r: int) -> bool:
    """Whether an empty vehicle could serve request `r`."""
    travel, windows, limits = day
    depot = travel.shape[0] - 1
    p, d = 2 * r, 2 * r + 1
    at_p = max(np.int64(windows[p, OPEN]), limits[OPEN_S] + travel[depot, p])
    at_d = max(np.int64(windows[d, OPEN]), at_p + travel[p, d])
    return (
        at_p <= windows[p, CLOSE]
        and at_d <= windows[d, CLOSE]
        and at_d + travel[d, depot] <= limits[CLOSE_S]
        and windows[p, SIZE] <= limits[CAPACITY]
    )


def add_range(
    travel_s: Any,
    limits: Any,
    requests: Any,
    served: Any,
    count: Any,
    stops: Any,
    lengths: Any,
    cost_s: Any,
    new: Any,
    active: Any,
    keys: Any,
    iterations: int,
    heat: int,
    escalate: Any,
    status: Any,
    low: int,
    high: int,
) -> int:
    """Insert new[n] and improve around it, for the days low <= n < high."""
    max_requests, vehicles = requests.shape[1], lengths.shape[1]
    size = 2 * max_requests + 1
    day = (np.empty((size, size), np.int32), np.empty((size, 3), np.int32), limits)
    routes = np.empty((3, vehicles, size + 1, 4), np.int32)
    rows = np.empty((3, vehicles), np.int32)
    costs = np.empty((3, vehicles), np.int64)
    plans = ((routes[0], rows[0], costs[0]), (routes[1], rows[1], costs[1]), (routes[2], rows[2], costs[2]))
    where = np.empty(max_requests, np.int32)
    notes = (
        np.empty(max_requests, np.int32),
        np.zeros(vehicles, np.bool_),
        np.empty(vehicles, np.int32),
        np.empty(vehicles, np.int64),
    )
    banks = (np.empty(max_requests, np.int32), np.empty(max_requests, np.int32), np.empty(max_requests, np.int64))
    rng = np.zeros(1, RNG)[0]
    for n in range(low, high):
        if not active[n]:
            continue
        begin(rng, keys[n], np.uint64(0))
        r = np.int64(count[n])
        requests[n, r] = new[n]
        count[n] = r + 1
        gather(travel_s, limits, requests[n], r + 1, day)
        read_plan(day, plans[0], stops[n], lengths[n])
        note_plan(plans[0], where)
        extra, v, i, j = best_place(day, plans[0], r)
        if extra < NOWHERE:
            insert_pair(day, plans[0], v, r, i, j)
            where[r] = v
        else:
            banked = 1
            for level in range(escalate.shape[0] if alone_fits(day, r) else 0):
                if banked > 0:
                    read_plan(day, plans[0], stops[n], lengths[n])
                    note_plan(plans[0], where)
                    banks[0][0] = r
                    begin(rng, keys[n], np.uint64(level + 1))
                    banked = rescue(day, plans, where, r + 1, banks, 1, escalate[level], notes, rng)
            if banked > 0:
                status[n], served[n, r] = Status.UNSERVED, False
                continue
        status[n], served[n, r] = Status.OK, True
        improve(day, plans, where, r + 1, r, iterations, heat, notes, rng)
        cost_s[n] = write_plan(plans[0], stops[n], lengths[n])
    return 0
