"""Defenders to be measured against: functions of what Blue saw and did, and nothing else. Scalar code.

A policy is `policy(hand, bits, rng) -> action`: `hand` is what this defender remembers (HAND), `bits` Blue's
last observation, `rng` its own stream of chance. The decoy-first heuristic is in heuristic.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cage2.simulator.memory import MEMORY, shown_host
from shoal.cage2.simulator.network import (
    ANALYSE,
    BELIEF_NO,
    BELIEF_PRIVILEGED,
    BELIEF_UNKNOWN,
    BELIEF_USER,
    DEFENDER,
    FIRST_DECOY,
    HOSTS,
    KINDS,
    MONITOR,
    NUM_ACTIONS,
    NUM_DECOYS,
    NUM_HOSTS,
    REMOVE,
    RESTORE,
    SLEEP,
    USER0,
    action_index,
    belief,
)
from shoal.compiled.random import below, uniform

# What a defender holds between steps: its memory of the stream, and its place in a list of things to do once.
HAND = np.dtype(
    [
        ("memory", MEMORY),
        ("next", np.int32),
        ("restored", np.int16, (NUM_HOSTS,)),  # decoy-first: the step of a host's last Restore
        ("suspect", np.int32),  # decoy-first: hosts that must hold a shell that monitoring missed
        ("previous", np.int32),  # decoy-first: where the last event but one showed
    ],
    align=True,
)

# D2's list (docs/cage2-recordings.md), as actions: int32[22].
_D2_ORDER = (
    "Femitter@Enterprise2 HarakaSMPT@Enterprise0 Tomcat@Enterprise0 Femitter@Enterprise1 "
    "HarakaSMPT@Op_Server0 Tomcat@Op_Server0 Apache@Op_Server0 Vsftpd@Op_Server0 Apache@Enterprise0 "
    "Femitter@User2 Tomcat@User1 Apache@User1 Smss@User1 Svchost@User1 Tomcat@User2 Apache@User2 "
    "SSHD@User2 SSHD@User3 Vsftpd@User4 HarakaSMPT@Op_Host0 HarakaSMPT@Op_Host1 HarakaSMPT@Op_Host2"
)


def decoy_actions(order: str) -> np.ndarray:
    """Decoys written as `Femitter@User2 Tomcat@User1`, as actions: int32[n].

    >>> decoy_actions("Femitter@User2").tolist() == [action_index(KINDS.index("DecoyFemitter"), 10)]
    True
    """
    pairs = [entry.split("@") for entry in order.split()]
    return np.array([action_index(KINDS.index(f"Decoy{d}"), HOSTS.index(h)) for d, h in pairs], np.int32)


D2_DECOYS = decoy_actions(_D2_ORDER)
NUM_D2_DECOYS = len(D2_DECOYS)


def sleep(hand: Any, bits: Any, rng: Any) -> int:
    """Do nothing."""
    return SLEEP


def random(hand: Any, bits: Any, rng: Any) -> Any:
    """Any of the 145 actions."""
    return below(rng, NUM_ACTIONS)


def react_restore(hand: Any, bits: Any, rng: Any) -> int:
    """Restore the host that just showed an exploit, else Monitor. (Not the challenge's BlueReactRestore.)"""
    host = shown_host(bits)
    if host >= 0 and bits[4 * host + 1]:
        return action_index(RESTORE, host)
    return MONITOR


def d1(hand: Any, bits: Any, rng: Any) -> int:
    """Restore the first host other than User0 that is believed held, else Sleep (docs/cage2-recordings.md)."""
    for host in range(NUM_HOSTS):
        if host != USER0 and belief(bits, host) >= BELIEF_USER:
            return action_index(RESTORE, host)
    return SLEEP


def d2(hand: Any, bits: Any, rng: Any) -> Any:
    """Answer the first suspected host other than User0, else the next decoy of a list (docs/cage2-recordings.md)."""
    for host in range(NUM_HOSTS):
        now = belief(bits, host)
        if host != USER0 and now != BELIEF_NO:
            return action_index(REMOVE if now == BELIEF_USER else RESTORE, host)
    if hand.next < NUM_D2_DECOYS:
        hand.next += 1
        return D2_DECOYS[hand.next - 1]
    return SLEEP


def noisy(hand: Any, bits: Any, rng: Any) -> Any:
    """The stochastic defender of the `heuristic` recordings (docs/cage2-recordings.md)."""
    draw = uniform(rng)
    for host in range(NUM_HOSTS):
        now = belief(bits, host)
        if host in (DEFENDER, USER0) or now == BELIEF_NO:
            continue
        if now == BELIEF_PRIVILEGED:
            return action_index(RESTORE, host)
        if now == BELIEF_UNKNOWN:
            return action_index(RESTORE if draw < 0.5 else ANALYSE, host)
        if draw < 0.5:
            return action_index(REMOVE, host)
        return action_index(ANALYSE if draw < 0.75 else RESTORE, host)
    if draw < 0.8:
        return action_index(FIRST_DECOY + below(rng, NUM_DECOYS), below(rng, NUM_HOSTS))
    if draw < 0.9:
        return action_index(ANALYSE, below(rng, NUM_HOSTS))
    return SLEEP
