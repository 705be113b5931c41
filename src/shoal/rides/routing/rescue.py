"""Making room for requests that fit nowhere: others step aside into a bank until everybody has a place."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.compiled.random import below
from shoal.rides.routing.insertion import NOWHERE, best_place
from shoal.rides.routing.ruin import keep, ruin, undo
from shoal.rides.routing.schedule import (
    CAPACITY,
    CLOSE,
    CLOSE_S,
    OPEN,
    OPEN_S,
    SIZE,
    copy_plan,
    insert_pair,
    travel_of,
)

MAX_STRINGS = 4
MAX_STRING = 6


def alone_fits(day: Any, r: Any) -> Any:
    """Whether an empty vehicle could serve request `r`: if not, no search can."""
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


def bank_space(max_requests: Any) -> Any:
    """(bank int32[C], the candidate's bank int32[C], absences int64[C])."""
    return np.empty(max_requests, np.int32), np.empty(max_requests, np.int32), np.empty(max_requests, np.int64)


def recreate_some(day: Any, plan: Any, where: Any, count: Any, bank: Any, absent: Any, notes: Any, rng: Any) -> Any:
    """Put `count` removed requests back; who finds no place goes to the bank: (how many, their absences)."""
    removed, touched = notes[0], notes[1]
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
    day: Any, plans: Any, where: Any, known: Any, banks: Any, banked: Any, iterations: Any, margin: Any,
    notes: Any, rng: Any,
) -> Any:  # fmt: skip
    """Find places for the `banked` requests in banks[0]; how many are left over. plans[0] is the plan without them.

    A request that was often left over weighs more, so that the search learns to keep it in and to do without
    another (the absence counters of Christiaens & Vanden Berghe 2020).
    """
    current, candidate, _ = plans
    bank, other_bank, absent = banks
    removed, touched = notes[0], notes[1]
    vehicles = current[1].shape[0]
    touched[:] = False
    absent[:] = 1
    copy_plan(current, candidate)
    absences = banked
    total = travel_of(current)
    for _ in range(iterations):
        seed = below(rng, known) if below(rng, 4) == 0 else np.int64(bank[below(rng, banked)])
        strings, longest = 1 + below(rng, min(vehicles, MAX_STRINGS)), 1 + below(rng, MAX_STRING)
        count = ruin(day, candidate, where, seed, known, strings, longest, notes, rng)
        for k in range(banked):
            removed[count] = bank[k]
            count += 1
        left, left_absences = recreate_some(day, candidate, where, count, other_bank, absent, notes, rng)
        price = travel_of(candidate)
        better = left_absences < absences or (left_absences == absences and left <= banked and price < total + margin)
        for k in range(left):
            absent[other_bank[k]] += 1
        if better:
            total, banked = price, left
            for k in range(left):
                bank[k] = other_bank[k]
            keep(current, candidate, touched)
            if banked == 0:
                break
        else:
            undo(current, candidate, where, touched)
            for k in range(banked):
                where[bank[k]] = -1
        absences = 0
        for k in range(banked):
            absences += absent[bank[k]]
    return banked
