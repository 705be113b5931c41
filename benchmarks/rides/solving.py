"""One day solved at leisure, all requests known: built from the parts of the incremental oracle.

Used where a day is to be as good as this package can make it, and to check the router on public instances.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.compiled.random import RNG, begin
from shoal.core.arrays import Array
from shoal.rides.routing.improve import improve
from shoal.rides.routing.machine import compiled
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import REQUEST, Problem
from shoal.rides.routing.rescue import bank_space, recreate_some, rescue
from shoal.rides.routing.schedule import allocate, borrow, gather, note_plan, read_plan, write_plan
from shoal.rides.routing.settings import THOROUGH, kernel_limits, search_settings

ANNEALS = 3  # with a time limit: each starts from the best plan, and hot
ROUND = 2_000  # iterations after which the clock is read while requests are still without a place


@dataclass(frozen=True)
class Solution:
    """The best plan that was found for one day."""

    routes: list[list[int]]
    cost_s: int  # travel of the routes
    unserved: list[int]  # requests without a place, empty if all is well
    iterations: int


def solve(
    problem: Problem, requests: Array, *, seconds: float = 2.0, iterations: int | None = None, key: int = 0
) -> Solution:
    """Plan a whole day: everybody gets a place first, then the routes are annealed.

    Stops after `seconds`, or after `iterations`, which makes the result a function of the key alone.
    """
    if requests.dtype != REQUEST or requests.ndim != 1 or not len(requests):
        raise ValueError(f"expected at least one request as REQUEST[C], got {requests.dtype}{list(requests.shape)}")
    plans = Plans(problem, 1, len(requests))
    plans.requests[0] = requests
    zones = np.unique(np.concatenate([requests["pickup"], requests["dropoff"], [problem.depot]]))
    settings = search_settings(problem.travel_s[np.ix_(zones, zones)], THOROUGH)
    limits = kernel_limits(problem)
    travel_s = np.require(problem.travel_s, np.int32, ["C", "W"])
    rounds = done = 0

    def run(count: int) -> float:
        nonlocal rounds, done
        arguments = (travel_s, limits, plans.requests[0], plans.served[0], plans.stops[0], plans.lengths[0],
                     np.uint64(key), np.uint64(rounds), count, settings)  # fmt: skip
        work = compiled(solve_round, arguments)
        started = time.perf_counter()
        plans.cost_s[0] = work(*arguments)
        rounds, done = rounds + 1, done + count
        return time.perf_counter() - started

    run(0)  # compiles; gives the first plan
    started = time.perf_counter()
    while not plans.served[0].all() and (
        done < iterations if iterations is not None else time.perf_counter() - started < seconds
    ):
        run(ROUND if iterations is None else min(ROUND, iterations - done))
    if iterations is not None:
        if done < iterations:
            run(iterations - done)
    else:
        pace_s = run(ROUND) / ROUND
        for rounds_left in range(ANNEALS, 0, -1):  # a few: the pace of a shared machine changes
            left_s = seconds - (time.perf_counter() - started)
            count = int(left_s / rounds_left / pace_s)
            if count > ROUND:
                pace_s = run(count) / count
    unserved = [int(r) for r in np.flatnonzero(~plans.served[0])]
    return Solution(plans.routes(0), int(plans.cost_s[0]), unserved, done)


def solve_round(
    travel_s: Any,
    limits: Any,
    requests: Any,
    served: Any,
    stops: Any,
    lengths: Any,
    key: Any,
    number: Any,
    iterations: Any,
    settings: Any,
) -> Any:
    """One round on one day: place those who have no place, or anneal if everybody has; travel of the routes."""
    known = requests.shape[0]
    memory = allocate(known, lengths.shape[0])
    day, plans, where, notes = borrow(memory, limits)
    banks = bank_space(known)
    rng = np.zeros(1, RNG)[0]
    begin(rng, key, number)
    gather(travel_s, limits, requests, known, day)
    read_plan(day, plans[0], stops, lengths)
    note_plan(plans[0], where)
    banked = 0
    for r in range(known):
        if where[r] < 0:
            notes[0][banked] = r
            banked += 1
    if banked > 0:
        banks[2][:] = 1
        banked, _ = recreate_some(day, plans[0], where, banked, banks[0], banks[2], notes, rng)
    if banked > 0:
        rescue(day, plans, where, known, banks, banked, iterations, settings[1], notes, rng)
    else:
        improve(day, plans, where, known, -1, iterations, settings, notes, rng)
    for r in range(known):
        served[r] = where[r] >= 0
    total = write_plan(plans[0], stops, lengths)
    return total if len(memory) > 0 else 0  # the memory lives to here: see `borrow`
