"""The scripted follower of an order: every fix is of the best-ranked host that Blue believes compromised. Scalar code.

Belief is here all that Blue can conclude (suspicion.py), not only its belief bits. Three tempers:

- eager: whatever is suspected is fixed at once, best rank first;
- thrifty: it fixes only what is worth a Restore. A server that red holds or is about to hold is; then the hosts that
  outrank it are fixed first, one a step. A user or operational host is, once Meander has escalated on it, since it
  never comes back to such a host of its own accord. User2 is, against B_line, which mostly fails there.
- literal: eager, with the challenge's belief bits (other than No) in place of suspicion, for comparison.

Between fixes it does what the decoy-first heuristic does: decoys before red scans, Analyse where a shell may have been
missed. None of that is a fix, so none of it can break the order. It decides by nothing but what stands in the
observation of an ordered environment, so that a network can learn to be it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cage2.defenders.decoy_first import (
    BLINE_ORDER,
    MEANDER_ORDER,
    NONE,
    UNKNOWN_ORDER,
    bline_entry,
    decoy_on,
    event_now,
    exploit_now,
    first_decoy,
    look_again,
    pivot_of,
)
from shoal.cage2.simulator.memory import LAST_RESTORE, MEMORY
from shoal.cage2.simulator.network import (
    ANALYSE,
    DEAR_HOSTS,
    ENTERPRISE1,
    ENTERPRISE2,
    REMOVE,
    RESTORE,
    SLEEP,
    USER2,
    action_index,
    nth_member,
)
from shoal.cage2.workflows.suspicion import WATCH, due_set

EAGER, THRIFTY, LITERAL = 0, 1, 2
TEMPERS = ("eager", "thrifty", "literal")
LATE = 90  # from this step of 100 on a Restore that saves a tenth a step comes too late

# What a follower holds between steps.
FOLLOWER = np.dtype([("memory", MEMORY), ("watch", WATCH)], align=True)


def follow(m: Any, w: Any, order: int, temper: int) -> Any:
    """The follower's action, from Blue's memory and suspicions."""
    action = fix(m, w, order, temper)
    if action == NONE:
        action = look_closer(m, w)
    if action == NONE:
        action = next_decoy(m)
    if action == NONE:
        action = look_again(m)
    return SLEEP if action == NONE else action


def fix(m: Any, w: Any, order: int, temper: int) -> int:
    """A fix of a host that nothing suspected outranks, or NONE."""
    due = due_set(order, w.suspected)
    now = exploit_now(m)
    if temper == THRIFTY:
        if not worth_fixing(m, w):
            return NONE
        if due & ~too_early(m):
            due &= ~too_early(m)
    if due == 0:
        return NONE
    if now == NONE or due >> now & 1 == 0:  # where red will escalate next, if that is due; else the dearest
        now = nth_member(due & DEAR_HOSTS if due & DEAR_HOSTS else due, 0)
    elif now == USER2 and m.wanders == 0 and w.suspected == 1 << USER2:
        return action_index(REMOVE, now)  # half of B_line's shells behind decoys can be removed, for nothing
    return action_index(RESTORE, now)


def worth_fixing(m: Any, w: Any) -> Any:
    """Whether something suspected is worth a Restore now."""
    if w.suspected & DEAR_HOSTS:
        return True
    if m.wanders == 0:
        return user2_pays(m, w)
    return w.suspected & ~too_early(m) != 0 and m.now < LATE


def too_early(m: Any) -> Any:
    """A cheap host that Meander has just taken, as a set: it comes back where it could not escalate, so let it.

    Not User2 behind decoys: there red mostly fails, and a Restore keeps it busy.
    """
    now = exploit_now(m)
    if m.wanders == 0 or now == NONE or DEAR_HOSTS >> now & 1 or (now == USER2 and m.shown[USER2] != 0):
        return 0
    return 1 << now


def user2_pays(m: Any, w: Any) -> Any:
    """Whether to answer B_line on User2, where decoys make it fail: at once for nothing, or when it has passed."""
    if w.suspected >> USER2 & 1 == 0 or bline_entry(m) != USER2:
        return False
    return exploit_now(m) == USER2 or (event_now(m) == pivot_of(USER2) and m.now < LATE)


def look_closer(m: Any, w: Any) -> int:
    """Analyse a host that has just met a decoy or been taken unseen."""
    host = event_now(m)
    if host != NONE and w.doubtful >> host & 1 and host in (ENTERPRISE1, ENTERPRISE2, USER2):
        return action_index(ANALYSE, host)
    return NONE


def next_decoy(m: Any) -> Any:
    """The next decoy worth having, by what red is known to be: as decoy-first, from what the observation shows."""
    if m.wanders:
        for host in MEANDER_ORDER:
            if m.scanned_once >> host & 1 == 0:
                action = decoy_on(m, host)
                if action != NONE:
                    return action
        return NONE
    entry = bline_entry(m)
    if entry == NONE:
        return first_decoy(m, UNKNOWN_ORDER, NONE)
    pivot = pivot_of(entry)
    just_restored = m.last_kind == LAST_RESTORE and m.last_host == pivot
    if event_now(m) != pivot and not just_restored:  # a decoy hit reads as an exploit where one is deployed at once
        action = decoy_on(m, pivot)
        if action != NONE:
            return action
    return first_decoy(m, BLINE_ORDER, pivot)
