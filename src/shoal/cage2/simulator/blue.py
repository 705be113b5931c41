"""Blue's moves on the true state (docs/cage2-rules.md). Scalar code for the compiled backend."""

from __future__ import annotations

from typing import Any

from shoal.cage2.simulator.network import (
    ANALYSE,
    BELIEF_NO,
    BELIEF_UNKNOWN,
    FAILED,
    FIRST_DECOY,
    NUM_HOSTS,
    OP_SERVER0,
    REMOVE,
    RESTORE,
    SLEEP,
    SUCCEEDED,
    UNKNOWN,
    USER0,
    belief,
    can_deploy,
)


def blue_act(s: Any, action: int) -> tuple[int, int]:
    """Let Blue's action take effect; returns (deployed, revealed), hosts or -1.

    `deployed`: where a decoy succeeded in this step (it can mask or sharpen what red leaves visible);
    `revealed`: where Analyse found malware (shown at the end of the step).
    """
    s.restored = 0
    if action < 2:
        s.blue_success = UNKNOWN if action == SLEEP else SUCCEEDED
        return -1, -1
    s.blue_success = SUCCEEDED
    kind = (action - 2) // NUM_HOSTS
    host = (action - 2) % NUM_HOSTS
    if kind == ANALYSE:
        return -1, host if s.malware >> host & 1 else -1
    if kind == REMOVE:
        s.user_removable &= ~(1 << host)
        if belief(s.bits, host) != BELIEF_NO:
            believe(s, host, BELIEF_UNKNOWN)
        return -1, -1
    if kind == RESTORE:
        restore(s, host)
        return -1, -1
    decoy = kind - FIRST_DECOY
    if not can_deploy(s.decoys[host], decoy, host):
        s.blue_success = FAILED
        return -1, -1
    s.decoys[host] |= 1 << decoy
    return host, -1


def restore(s: Any, host: int) -> None:
    """Put a host back to its clean image. Red's foothold on User0 returns with it.

    On Op_Server0 the service starts again and can never be stopped by red afterwards: a quirk of the real
    system, measured (docs/cage2-rules.md).
    """
    keep = ~(1 << host)
    s.restored = 1
    s.reset_hosts |= 1 << host
    s.user_removable &= keep
    s.user_fixed &= keep
    s.malware &= keep
    s.decoys[host] = 0
    believe(s, host, BELIEF_NO)
    if host != USER0:
        s.privileged &= keep
    if host == OP_SERVER0:
        s.ot_running = 1
        s.ot_killable = 0


def believe(s: Any, host: int, value: int) -> None:
    """Set Blue's belief about a host: No 00, Unknown 10, User 01, Privileged 11."""
    s.bits[4 * host + 2] = value & 1
    s.bits[4 * host + 3] = value >> 1
