"""What Blue can conclude about held hosts from what it saw and did: more than its belief bits say. Scalar code.

The belief bits forget and overlook: a shell that monitoring missed leaves them at No, a Remove that worked leaves them
at Unknown. Both can be told from the stream of (observation, own action), by four facts about red (cage2-rules.md):

- only Remove and Restore drive red off, and Remove never helps against the SSH sessions of Linux servers, nor on
  User1, where every shell is an SSH session or a privileged one;
- a second scan of a host on which no decoy stands is a shell that monitoring missed, but for B_line's rescans of
  servers;
- B_line scans its next host only once it has escalated on the one before;
- Analyse finds the files of every shell but an SSH session, and those always show as exploits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cage2.simulator.memory import LAST_ANALYSE, LAST_DECOY, LAST_REMOVE, LAST_RESTORE
from shoal.cage2.simulator.network import (
    BELIEF_PRIVILEGED,
    ENTERPRISE0,
    ENTERPRISE1,
    ENTERPRISE2,
    NUM_HOSTS,
    OP_SERVER0,
    USER1,
    USER2,
    USER3,
    USER4,
    belief,
    nth_member,
)
from shoal.cage2.workflows.orders import BETTER, COUNTED

WATCH = np.dtype(
    [
        ("suspected", np.int32),  # hosts that red holds, as far as Blue can tell
        ("doubtful", np.int32),  # hosts where a decoy was hit or a shell was missed: Analyse tells
        ("cleaned", np.int32),  # the host restored in the last step, as a set
        ("cleaned_before", np.int32),  # ... in the last step but one
        ("previous_host", np.int32),  # where the event before the last one showed; -1: nowhere
        ("previous_step", np.int32),
        ("event_host", np.int32),  # the last event, kept to become the previous one
        ("event_step", np.int32),
    ],
    align=True,
)

USERS = 1 << USER1 | 1 << USER2 | 1 << USER3 | 1 << USER4
SERVERS = 1 << ENTERPRISE1 | 1 << ENTERPRISE2
TOUCHABLE = SERVERS | USERS  # where a shell can be missed; the others know SSH alone, which always shows
REMOVABLE = SERVERS | 1 << USER2 | 1 << USER3 | 1 << USER4  # where a Remove can work at all


def begin_watch(w: Any) -> None:
    """Begin an episode with nothing suspected."""
    w.suspected = 0
    w.doubtful = 0
    w.cleaned = 0
    w.cleaned_before = 0
    w.previous_host = -1
    w.previous_step = 0
    w.event_host = -1
    w.event_step = 0


def watch(w: Any, m: Any, bits: Any) -> None:
    """Take in one step, after `memory.remember` has: Blue's memory and its 52 bits."""
    w.cleaned_before = w.cleaned
    w.cleaned = 0
    if m.last_host >= 0:
        own_action(w, m, bits)
    if m.event_host < 0 or m.event_step != m.now:
        return
    w.previous_host = w.event_host
    w.previous_step = w.event_step
    w.event_host = m.event_host
    w.event_step = m.now
    bit = (1 << m.event_host) & COUNTED
    if m.event_activity == 2:
        if m.last_kind == LAST_DECOY and m.last_host == m.event_host and bit & TOUCHABLE != 0:
            w.doubtful |= bit  # a decoy hit reads so too where a decoy was deployed in the same step
        else:
            w.suspected |= bit
            w.doubtful &= ~bit
        return
    if m.wanders == 0:
        progress(w, m)
    if m.scanned_again & bit & TOUCHABLE != 0:
        if m.standing[m.event_host] == 0 and (m.wanders != 0 or bit & USERS != 0):
            w.suspected |= bit
        else:
            w.doubtful |= bit


def own_action(w: Any, m: Any, bits: Any) -> None:
    """What Blue's own action changed."""
    bit = (1 << m.last_host) & COUNTED
    if m.last_kind == LAST_RESTORE:
        w.suspected &= ~bit
        w.doubtful &= ~bit
        w.cleaned = bit
    elif m.last_kind == LAST_REMOVE:
        w.suspected &= ~(bit & REMOVABLE)
    elif m.last_kind == LAST_ANALYSE:
        if belief(bits, m.last_host) == BELIEF_PRIVILEGED:
            w.suspected |= bit
        w.doubtful &= ~bit


def progress(w: Any, m: Any) -> None:
    """B_line's path: what a scan of the next host says about the one before."""
    users = m.scanned_once & USERS
    if users == 0:
        return
    entry = nth_member(users, 0)
    pivot = ENTERPRISE1 if entry in (USER1, USER2) else ENTERPRISE0
    again = w.previous_host == m.event_host and w.previous_step == m.now - 1  # the exploit after a scan
    if m.event_host == pivot:
        if m.scanned_again >> pivot & 1 == 0 or m.seen_step[entry] == m.now - 2:
            w.suspected |= (1 << entry) & ~w.cleaned
    elif m.event_host == ENTERPRISE2 and not again:
        w.suspected |= (1 << pivot) & ~(w.cleaned | w.cleaned_before)
    elif m.event_host == OP_SERVER0 and not again:
        w.suspected |= (1 << ENTERPRISE2) & ~w.cleaned


def due_set(order: int, suspected: int) -> int:
    """The suspected hosts that no other suspected host outranks: a fix of one of them keeps to the order."""
    due = 0
    for host in range(NUM_HOSTS):
        if suspected >> host & 1 and suspected & BETTER[order, host] == 0:
            due |= 1 << host
    return due
