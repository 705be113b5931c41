"""The decoy-first defender: a hand-written function of what Blue saw and did. Scalar code.

Its ideas, in the order in which they act:

- a valuable host that shows an exploit is restored at once, in the step in which red would escalate;
- red that scans Enterprise2 before showing itself as Meander is B_line, and holds the server before it;
- a scan of a server that was scanned before is a decoy hit or one of the 5 % of shells that monitoring
  misses: Analyse costs nothing and tells;
- Meander never comes back to a user host that it has escalated: let it escalate, then restore, once;
- User2 is the one user host that decoys can protect. Red that saw them there fails mostly and tries again,
  time that it does not spend on the servers, so User2 is answered before red can escalate on it;
- decoys stand before red scans: B_line's first target shows which server comes next; Meander scans once.
"""

from __future__ import annotations

from typing import Any

from shoal.cage2.simulator.memory import LAST_RESTORE
from shoal.cage2.simulator.network import (
    ANALYSE,
    APACHE,
    BELIEF_NO,
    DEAR_HOSTS,
    ENTERPRISE0,
    ENTERPRISE1,
    ENTERPRISE2,
    FEMITTER,
    FIRST_DECOY,
    HARAKA,
    NUM_HOSTS,
    OP_HOST0,
    OP_HOST1,
    OP_HOST2,
    OP_SERVER0,
    REMOVE,
    RESTORE,
    SLEEP,
    SSHD,
    TOMCAT,
    USER0,
    USER1,
    USER2,
    USER3,
    USER4,
    action_index,
    belief,
    can_deploy,
    nth_member,
)

NONE = -1
NEVER = -99
PROTECTABLE_USERS = 1 << USER1 | 1 << USER2 | 1 << USER3 | 1 << USER4
# Decoys by host: what outranks the genuine services first. Vsftpd opens Apache's port and adds nothing.
SERVER_DECOYS = (HARAKA, TOMCAT, APACHE)
USER2_DECOYS = (FEMITTER, TOMCAT, APACHE, SSHD)
MEANDER_ORDER = (USER2, ENTERPRISE0, ENTERPRISE1, ENTERPRISE2, OP_SERVER0, OP_HOST0, OP_HOST1, OP_HOST2)
BLINE_ORDER = (ENTERPRISE2, OP_SERVER0, ENTERPRISE0, ENTERPRISE1)
UNKNOWN_ORDER = (USER2, ENTERPRISE0, ENTERPRISE1, ENTERPRISE2, OP_SERVER0)
FRESH_STEPS = 3  # a host restored so recently need not be restored on suspicion


def decoy_first(hand: Any, bits: Any, rng: Any) -> Any:
    """Decide, with what the decisions before leave: when each host was restored, where red was before."""
    m = hand.memory
    if m.now == 0:
        hand.suspect = 0
        hand.previous = NONE
        for host in range(NUM_HOSTS):
            hand.restored[host] = NEVER
    if m.last_kind == LAST_RESTORE:  # the action that was really taken, whoever chose it
        hand.restored[m.last_host] = m.now - 1
        hand.suspect &= ~(1 << m.last_host)
    action = decide(hand, bits)
    hand.previous = event_now(m)
    return action


def decide(hand: Any, bits: Any) -> Any:
    """The rules, most urgent first; each returns an action or NONE."""
    m = hand.memory
    entry = bline_entry(m)
    action = save_servers(hand, bits, entry)
    if action == NONE:
        action = save_user2(hand, bits, entry)
    if action == NONE:
        action = look_closer(hand)
    if action == NONE and m.wanders:
        action = restore_users(hand, bits)
    if action == NONE:
        action = next_decoy(hand, entry)
    if action == NONE:
        action = look_again(m)
    return SLEEP if action == NONE else action


def event_now(m: Any) -> Any:
    """The host that showed activity in the last step, or NONE."""
    return m.event_host if m.now > 0 and m.event_step == m.now else NONE


def exploit_now(m: Any) -> Any:
    """The host that showed an exploit in the last step, or NONE."""
    return event_now(m) if m.event_activity == 2 else NONE


def bline_entry(m: Any) -> Any:
    """The user host that red works on, while it may be B_line; else NONE."""
    users = m.scanned_once & PROTECTABLE_USERS
    if m.wanders or users == 0 or m.scanned_once >> USER0 & 1:
        return NONE
    return nth_member(users, 0)


def pivot_of(entry: int) -> int:
    """The server that B_line attacks after its user host."""
    if entry == NONE:
        return NONE
    return ENTERPRISE1 if entry in (USER1, USER2) else ENTERPRISE0


def not_worth_it(now: int) -> bool:
    """Whether a Restore that saves a tenth a step comes too late before the end at 30, 50 or 100 steps.

    Blue does not know the horizon. A Restore before step 30 counts in all three scores, one after it in two.
    """
    return 27 <= now < 30 or 46 <= now < 50 or now >= 90


def save_servers(hand: Any, bits: Any, entry: int) -> int:
    """Restore a valuable host that red holds or is about to hold."""
    m = hand.memory
    host = exploit_now(m)
    if host != NONE and DEAR_HOSTS >> host & 1:
        return action_index(RESTORE, host)
    for host in range(NUM_HOSTS):
        if DEAR_HOSTS >> host & 1 and belief(bits, host) != BELIEF_NO:
            return action_index(RESTORE, host)
    pivot = pivot_of(entry)
    if pivot != NONE and event_now(m) == ENTERPRISE2 and m.now - hand.restored[pivot] > FRESH_STEPS:
        return action_index(RESTORE, pivot)
    return NONE


def save_user2(hand: Any, bits: Any, entry: int) -> int:
    """Keep red failing on User2, where decoys work.

    Against B_line half of its successes there can be removed for nothing; a scan of the next server shows
    that one could not, and then a Restore sends it back to User2. Meander's are restored at once.
    """
    m = hand.memory
    if entry == USER2:
        if exploit_now(m) == USER2:
            return action_index(REMOVE, USER2)
        passed = event_now(m) == pivot_of(entry) and belief(bits, USER2) != BELIEF_NO
        if passed and m.now - hand.restored[USER2] > FRESH_STEPS and not not_worth_it(m.now):
            return action_index(RESTORE, USER2)
    elif m.wanders and exploit_now(m) == USER2 and m.shown[USER2] and m.now < 90:
        return action_index(RESTORE, USER2)
    return NONE


def look_closer(hand: Any) -> int:
    """A host that shows a scan for a second time met a decoy, or red has a shell that monitoring missed."""
    m = hand.memory
    host = event_now(m)
    if host == NONE or m.event_activity == 2 or m.scanned_again >> host & 1 == 0:
        return NONE
    if host in (ENTERPRISE1, ENTERPRISE2, USER2):
        return action_index(ANALYSE, host)
    if m.wanders and host >= USER1:
        hand.suspect |= 1 << host  # no decoys stand there: it was a shell
    return NONE


def restore_users(hand: Any, bits: Any) -> int:
    """Restore a user host once Meander has escalated on it, which is the step after its exploit."""
    m = hand.memory
    if not_worth_it(m.now):
        return NONE
    for host in range(USER1, NUM_HOSTS):
        held = belief(bits, host) != BELIEF_NO or hand.suspect >> host & 1
        if held and m.now > m.seen_step[host]:
            return action_index(RESTORE, host)
    return NONE


def next_decoy(hand: Any, entry: int) -> Any:
    """The next decoy worth having, by what red is known to be."""
    m = hand.memory
    if m.wanders:
        for host in MEANDER_ORDER:
            if m.scanned_once >> host & 1 == 0:
                action = decoy_on(m, host)
                if action != NONE:
                    return action
        return NONE
    if entry == NONE:
        return first_decoy(m, UNKNOWN_ORDER, NONE)
    pivot = pivot_of(entry)
    if m.now == 2 and entry == USER1:
        return decoy_on(m, USER2)  # one decoy suffices on Enterprise1, and this may still be Meander
    # A decoy hit reads as an exploit where a decoy is deployed in the same step: not while red attacks there.
    attacked = event_now(m) == pivot and hand.previous != pivot
    if not attacked and m.now - hand.restored[pivot] > 1:
        action = decoy_on(m, pivot)
        if action != NONE:
            return action
    return first_decoy(m, BLINE_ORDER, pivot)


def first_decoy(m: Any, hosts: Any, but: int) -> int:
    """The next decoy for the first of these hosts that needs one, or NONE."""
    for host in hosts:
        action = decoy_on(m, host) if host != but else NONE
        if action != NONE:
            return action
    return NONE


def decoy_on(m: Any, host: int) -> int:
    """The next decoy for a host, or NONE when it has all it needs."""
    if host in (ENTERPRISE1, ENTERPRISE2):
        return deploy(m, host, FEMITTER)
    if host == USER2:
        for decoy in USER2_DECOYS:
            if can_deploy(m.standing[host], decoy, host):
                return deploy(m, host, decoy)
        return NONE
    for decoy in SERVER_DECOYS:
        if can_deploy(m.standing[host], decoy, host):
            return deploy(m, host, decoy)
    return NONE


def deploy(m: Any, host: int, decoy: int) -> int:
    """The action that deploys a decoy, or NONE where it would fail."""
    return action_index(FIRST_DECOY + decoy, host) if can_deploy(m.standing[host], decoy, host) else NONE


def look_again(m: Any) -> int:
    """With nothing better to do, analyse the servers where a shell can have been missed."""
    for host in (ENTERPRISE1, ENTERPRISE2):
        if m.seen_step[host] > 0 and m.analysed >> host & 1 == 0:
            return action_index(ANALYSE, host)
    return NONE
