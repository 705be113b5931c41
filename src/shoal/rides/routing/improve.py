"""The search itself: ruin-and-recreate steps, accepted or undone, from a plan to a better one."""

from __future__ import annotations

from typing import Any

from shoal.compiled.random import below
from shoal.rides.routing.insertion import NOWHERE
from shoal.rides.routing.ruin import exchange_tails, keep, recreate, ruin, undo
from shoal.rides.routing.schedule import copy_plan, note_plan, travel_of

FOCUS_16THS = 4  # how often, of 16, a ruin is around the new request rather than anywhere


def attempt(
    day: Any, plan: Any, where: Any, known: Any, focus: Any, total: Any, settings: Any, notes: Any, rng: Any
) -> Any:
    """One ruin-and-recreate, in place, of a plan of `total` travel; the new travel, or NOWHERE if it is no good."""
    _, margin, strings, longest = settings
    seed = focus if focus >= 0 and below(rng, 16) < FOCUS_16THS else below(rng, known)
    count = ruin(day, plan, where, seed, known, 1 + below(rng, strings), longest, notes, rng)
    price = recreate(day, plan, where, count, total + margin, notes, rng)
    if price < NOWHERE:
        exchange_tails(day, plan, where, notes)
        price = travel_of(plan)
    return price


def improve(
    day: Any,
    plans: Any,
    where: Any,
    known: Any,
    focus: Any,
    iterations: Any,
    settings: Any,
    notes: Any,
    rng: Any,
) -> Any:
    """Ruin-and-recreate from a complete plan in plans[0]; leaves the best plan there, returns its travel.

    `focus` is the request to work around, or -1 for the whole day. settings = (heat, margin, strings, longest): a
    candidate is accepted if it is at most a random part of `heat` seconds longer, which cools down to 0; its tails are
    exchanged if it is less than `margin` seconds longer; a ruin takes up to `longest` requests out of each of up to
    `strings` routes.
    """
    current, candidate, best = plans
    touched = notes[1]
    touched[:] = False
    copy_plan(current, candidate)
    copy_plan(current, best)
    total = travel_of(current)
    record = total
    for step in range(iterations):
        price = attempt(day, candidate, where, known, focus, total, settings, notes, rng)
        slack = below(rng, 1 + settings[0] * (iterations - step) // iterations)
        if price <= total + slack:
            total = price
            keep(current, candidate, touched)
            if total < record:
                record = total
                copy_plan(current, best)
        else:
            undo(current, candidate, where, touched)
    if record < total:
        copy_plan(best, current)
        note_plan(current, where)
    return record
