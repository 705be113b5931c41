"""Red's minds: how B_line, Meander and the sleeping red choose (docs/cage2-rules.md). Scalar code.

Each mind is split where chance enters: what it settles and allows, the draw, and what it then remembers.
Sampled play draws; a replay takes the recorded choice and checks that it was allowed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cage2.simulator.network import (
    DISCOVER,
    ENTERPRISE0,
    ENTERPRISE1,
    ENTERPRISE2,
    ENTERPRISE_SERVERS,
    ENTERPRISE_SUBNET,
    ESCALATE,
    EXPLOIT,
    IMPACT,
    OP_SERVER0,
    OPERATIONAL_HOSTS,
    RED_SLEEP,
    SCAN,
    SUCCEEDED,
    USER1,
    USER2,
    USER_SUBNET,
    count_bits,
    nth_member,
)
from shoal.compiled.random import below

REDS = ("bline", "meander", "sleep")
BLINE, MEANDER, SLEEPER = 0, 1, 2

# B_line's path. Targets: a host; ENTRY and PIVOT stand for the user host it drew and the server behind it.
ENTRY, PIVOT = -2, -3
BLINE_TYPE = np.array([1, 2, 3, 4, 2, 3, 4, 1, 2, 3, 4, 2, 3, 4, 5], np.int32)  # int32[k]
BLINE_TARGET = np.array(
    [USER_SUBNET, ENTRY, ENTRY, ENTRY, PIVOT, PIVOT, PIVOT, ENTERPRISE_SUBNET,
     ENTERPRISE2, ENTERPRISE2, ENTERPRISE2, OP_SERVER0, OP_SERVER0, OP_SERVER0, OP_SERVER0],
    np.int32,
)  # fmt: skip
BLINE_ON_SUCCESS = np.array([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 14], np.int32)
BLINE_ON_FAILURE = np.array([0, 1, 2, 2, 2, 2, 5, 5, 5, 5, 9, 9, 9, 12, 13], np.int32)
BLINE_FIRST_SCAN, BLINE_SERVER_EXPLOIT = 1, 12


def choose(s: Any, rng: Any) -> None:
    """Draw red's next action into `s.red_type` and `s.red_target`."""
    if s.red == BLINE:
        bline_advance(s)
        if bline_draws(s):
            s.entry = USER1 + below(rng, 4)
        bline_commit(s)
    elif s.red == MEANDER:
        meander_settle(s)
        kind, allowed = meander_options(s)
        target = nth_member(allowed, below(rng, count_bits(allowed)))
        meander_commit(s, kind, target)
    else:
        s.red_type = RED_SLEEP
        s.red_target = -1


def bline_advance(s: Any) -> None:
    """Move B_line along its path by the result of its last action.

    Exception: about to attack Op_Server0 for the first time with an empty scan of it, it starts over.
    """
    if s.k < 0:
        s.k = 0
        return
    k = BLINE_ON_SUCCESS[s.k] if s.red_success == SUCCEEDED else BLINE_ON_FAILURE[s.k]
    if k == BLINE_SERVER_EXPLOIT and not s.server_attacked:
        if s.scan_empty:
            k = BLINE_FIRST_SCAN
        else:
            s.server_attacked = 1
    s.k = k


def bline_draws(s: Any) -> Any:
    """Whether B_line draws its user host now: when it first gets to scan one."""
    return s.k == BLINE_FIRST_SCAN and s.entry < 0


def bline_commit(s: Any) -> None:
    """Write the action of B_line's present place on its path."""
    s.red_type = BLINE_TYPE[s.k]
    target = BLINE_TARGET[s.k]
    if target == ENTRY:
        target = s.entry
    elif target == PIVOT:
        target = ENTERPRISE1 if s.entry == USER1 or s.entry == USER2 else ENTERPRISE0
    s.red_target = target


def meander_settle(s: Any) -> None:
    """Let Meander draw its conclusions from the result of its last action."""
    bit = 1 << s.red_target if s.red_target >= 0 else 0
    if s.red_type == EXPLOIT:
        if s.red_success == SUCCEEDED:
            s.mapped |= bit
            return
        s.exploited &= ~bit
        lost = s.escalated & OPERATIONAL_HOSTS
        if lost == 0:
            lost = s.escalated & ENTERPRISE_SERVERS
        s.escalated &= ~lost
        s.exploited &= ~lost
    elif (s.red_type == ESCALATE or s.red_type == IMPACT) and s.red_success != SUCCEEDED:
        s.escalated &= ~bit
        if s.mapped & bit:
            s.exploited &= ~bit


def meander_options(s: Any) -> tuple[int, int]:
    """What Meander does next: (action type, set of targets to draw from; subnets for DISCOVER).

    The set is never empty. If every known address were in `exploited`, each would have been exploited and
    escalated with success, the Enterprise subnet would be discovered, and Defender, which never falls, is a
    known address outside `exploited`.
    """
    if s.escalated >> OP_SERVER0 & 1:
        return IMPACT, 1 << OP_SERVER0
    options = s.known_subnets & ~s.scanned_subnets
    if options:
        return DISCOVER, options
    options = s.known_addresses & ~s.scanned_hosts
    if options:
        return SCAN, options
    options = s.known_hostnames & ~s.escalated & (~s.mapped | s.exploited)
    if options:
        return ESCALATE, options
    return EXPLOIT, s.known_addresses & ~s.exploited


def meander_commit(s: Any, kind: int, target: int) -> None:
    """Write Meander's choice and what it remembers of it at once."""
    s.red_type = kind
    s.red_target = target
    bit = 1 << target
    if kind == DISCOVER:
        s.scanned_subnets |= bit
    elif kind == SCAN:
        s.scanned_hosts |= bit
    elif kind == ESCALATE:
        s.escalated |= bit
    elif kind == EXPLOIT:
        s.exploited |= bit
