"""Kernels over ranges of days: add a request to each, or polish what is there."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.compiled.random import RNG, begin
from shoal.rides.routing.improve import improve
from shoal.rides.routing.insertion import NOWHERE, best_place
from shoal.rides.routing.problem import Status
from shoal.rides.routing.rescue import alone_fits, bank_space, rescue
from shoal.rides.routing.schedule import allocate, borrow, gather, insert_pair, note_plan, read_plan, write_plan


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
    iterations: Any,
    settings: Any,
    escalate: Any,
    status: Any,
    low: Any,
    high: Any,
) -> Any:
    """Give new[n] a place and improve the routes around it, for the days low <= n < high."""
    memory = allocate(requests.shape[1], lengths.shape[1])
    day, plans, where, notes = borrow(memory, limits)
    banks = bank_space(requests.shape[1])
    rng = np.zeros(1, RNG)[0]
    for n in range(low, high):
        if not active[n]:
            continue
        r = np.int64(count[n])
        requests[n, r] = new[n]
        count[n] = r + 1
        begin(rng, keys[n], np.uint64(0))
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
                if banked > 0:  # every level starts anew from the plan as it was
                    read_plan(day, plans[0], stops[n], lengths[n])
                    note_plan(plans[0], where)
                    banks[0][0] = r
                    begin(rng, keys[n], np.uint64(level + 1))
                    banked = rescue(day, plans, where, r + 1, banks, 1, escalate[level], settings[1], notes, rng)
            if banked > 0:
                status[n], served[n, r] = Status.UNSERVED, False
                continue
        status[n], served[n, r] = Status.OK, True
        improve(day, plans, where, r + 1, r, iterations, settings, notes, rng)
        cost_s[n] = write_plan(plans[0], stops[n], lengths[n])
    return len(memory)  # so that it lives to here: see `borrow`


def polish_range(
    travel_s: Any,
    limits: Any,
    requests: Any,
    count: Any,
    stops: Any,
    lengths: Any,
    cost_s: Any,
    active: Any,
    keys: Any,
    iterations: Any,
    settings: Any,
    low: Any,
    high: Any,
) -> Any:
    """Improve the routes of the days low <= n < high as a whole."""
    memory = allocate(requests.shape[1], lengths.shape[1])
    day, plans, where, notes = borrow(memory, limits)
    rng = np.zeros(1, RNG)[0]
    for n in range(low, high):
        if not active[n] or cost_s[n] == 0:
            continue
        begin(rng, keys[n], np.uint64(0))
        gather(travel_s, limits, requests[n], count[n], day)
        read_plan(day, plans[0], stops[n], lengths[n])
        note_plan(plans[0], where)
        improve(day, plans, where, np.int64(count[n]), -1, iterations, settings, notes, rng)
        cost_s[n] = write_plan(plans[0], stops[n], lengths[n])
    return len(memory)  # so that it lives to here: see `borrow`
