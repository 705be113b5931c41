"""What Blue can remember: features of the stream of (observation, own action), and nothing else. Scalar code.

The kernel keeps a MEMORY inside its state and the adapter to the real CybORG keeps one beside it; both call
`remember` after every step and `write_features` to look. Every feature is one bit, so no scaling is needed;
counts and times are spelt out as bits. `feature_names` gives the order, FEATURES_VERSION its name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cage2.simulator.network import (
    ANALYSE,
    BELIEF_NO,
    BELIEF_PRIVILEGED,
    BELIEF_UNKNOWN,
    DECOY_SLOTS,
    DECOYS,
    DEFENDER,
    FIRST_DECOY,
    HOSTS,
    NUM_BITS,
    NUM_DECOYS,
    NUM_HOSTS,
    REMOVE,
    RESTORE,
    SUBNET_OF,
    USER0,
    USER_SUBNET,
    VSFTPD,
    belief,
    can_deploy,
    count_bits,
)

FEATURES_VERSION = "cage2-memory-v1"

MEMORY = np.dtype(
    [
        ("now", np.int32),  # steps taken
        ("standing", np.uint8, (NUM_HOSTS,)),  # decoys Blue has standing: exact, it knows which attempts fail
        ("shown", np.uint8, (NUM_HOSTS,)),  # decoys standing when the host last showed a scan
        ("seen_step", np.int16, (NUM_HOSTS,)),  # when the host last showed activity; 0: never
        ("scanned_once", np.int32),  # hosts that showed a scan, ever
        ("scanned_again", np.int32),  # ... at least twice
        ("exploited_once", np.int32),  # hosts that showed an exploit, ever
        ("exploited_again", np.int32),  # ... since their last Restore
        ("analysed", np.int32),  # hosts analysed since their last activity
        ("cleaned", np.int32),  # hosts that Blue has restored, ever
        ("event_step", np.int32),  # when anything last showed; 0: never
        ("event_host", np.int32),  # where; -1: never
        ("event_activity", np.int32),
        ("last_kind", np.int32),  # Blue's last action: a LAST_* code; -1 at the start
        ("last_host", np.int32),  # its host; -1: none
        ("wanders", np.int32),  # two user hosts were scanned: only Meander does that
        ("direct", np.int32),  # an exploit showed while fewer than two user hosts had been scanned: B_line
    ],
    align=True,
)

LAST_IDLE, LAST_ANALYSE, LAST_REMOVE, LAST_DECOY, LAST_RESTORE, LAST_FAILED = range(6)
LAST_NAMES = ("idle", "analyse", "remove", "decoy", "restore", "failed decoy")
AGES = 3  # ages in steps that get a bit of their own
STEPS = np.array([1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50, 60, 75, 90], np.int32)
EVENT_AGES = np.array([1, 2, 3, 4, 6, 9], np.int32)
NUM_STEPS, NUM_EVENT_AGES, NUM_LAST = len(STEPS), len(EVENT_AGES), len(LAST_NAMES)
# The decoy slots that get features: not Defender and not User0, where decoys change nothing for Blue.
_USED = [(d, h) for d, h in DECOY_SLOTS if h not in (DEFENDER, USER0)]
SLOT_DECOY = np.array([d for d, _ in _USED], np.int32)
SLOT_HOST = np.array([h for _, h in _USED], np.int32)
NUM_USED = len(_USED)

PLAIN_FEATURES = NUM_BITS
AT_STANDING = PLAIN_FEATURES
AT_SHOWN = AT_STANDING + NUM_USED
AT_HOSTS = AT_SHOWN + NUM_USED
PER_HOST = 6 + AGES
AT_LAST = AT_HOSTS + PER_HOST * NUM_HOSTS
AT_LAST_HOST = AT_LAST + NUM_LAST
AT_EVENT = AT_LAST_HOST + NUM_HOSTS
AT_EVENT_HOST = AT_EVENT + 2
AT_EVENT_AGE = AT_EVENT_HOST + NUM_HOSTS
AT_STEP = AT_EVENT_AGE + NUM_EVENT_AGES
AT_RED = AT_STEP + NUM_STEPS
MEMORY_FEATURES = AT_RED + 2


def forget(m: Any) -> None:
    """Begin an episode with nothing to remember."""
    m.now = 0
    m.scanned_once = 0
    m.scanned_again = 0
    m.exploited_once = 0
    m.exploited_again = 0
    m.analysed = 0
    m.cleaned = 0
    m.event_step = 0
    m.event_host = -1
    m.event_activity = 0
    m.last_kind = -1
    m.last_host = -1
    m.wanders = 0
    m.direct = 0
    for host in range(NUM_HOSTS):
        m.standing[host] = 0
        m.shown[host] = 0
        m.seen_step[host] = 0


def remember(m: Any, action: int, host: int, activity: int) -> None:
    """Take in one step: Blue's action, and the host that then showed activity (1 scan, 2 exploit) or -1."""
    m.now += 1
    remember_action(m, action)
    if host < 0:
        return
    bit = 1 << host
    m.analysed &= ~bit
    m.seen_step[host] = m.now
    m.event_step = m.now
    m.event_host = host
    m.event_activity = activity
    if activity == 1:
        m.shown[host] = m.standing[host]
        m.scanned_again |= m.scanned_once & bit
        m.scanned_once |= bit
        users = m.scanned_once >> USER0
        if SUBNET_OF[host] == USER_SUBNET and count_bits(users) > 1:
            m.wanders = 1
    else:
        m.exploited_again |= bit
        m.exploited_once |= bit
        if m.wanders == 0:
            m.direct = 1


def remember_action(m: Any, action: int) -> None:
    """Blue's own action. Whether a decoy succeeded follows from what Blue has deployed before."""
    m.last_kind = LAST_IDLE
    m.last_host = -1
    if action < 2:
        return
    kind = (action - 2) // NUM_HOSTS
    host = (action - 2) % NUM_HOSTS
    m.last_host = host
    if kind == ANALYSE:
        m.last_kind = LAST_ANALYSE
        m.analysed |= 1 << host
    elif kind == REMOVE:
        m.last_kind = LAST_REMOVE
    elif kind == RESTORE:
        m.last_kind = LAST_RESTORE
        m.standing[host] = 0
        m.exploited_again &= ~(1 << host)
        m.cleaned |= 1 << host
    elif can_deploy(m.standing[host], kind - FIRST_DECOY, host):
        m.last_kind = LAST_DECOY
        m.standing[host] |= 1 << (kind - FIRST_DECOY)
    else:
        m.last_kind = LAST_FAILED


def shown_host(bits: Any) -> int:
    """The host with activity in Blue's 52 bits; -1: none. There is never more than one."""
    for host in range(NUM_HOSTS):
        if bits[4 * host]:
            return host
    return -1


def remember_bits(m: Any, bits: Any, action: int) -> None:
    """Take in one step from the observation alone: what the adapter and the baselines do."""
    host = shown_host(bits)
    activity = 0
    if host >= 0:
        activity = 1 + bits[4 * host + 1]
    remember(m, action, host, activity)


def write_features(m: Any, out: Any) -> None:
    """Everything after the 52 bits, in the order of `feature_names`."""
    for slot in range(NUM_USED):
        host = SLOT_HOST[slot]
        out[AT_STANDING + slot] = m.standing[host] >> SLOT_DECOY[slot] & 1
        out[AT_SHOWN + slot] = m.shown[host] >> SLOT_DECOY[slot] & 1
    for host in range(NUM_HOSTS):
        at = AT_HOSTS + PER_HOST * host
        out[at] = m.scanned_once >> host & 1
        out[at + 1] = m.scanned_again >> host & 1
        out[at + 2] = m.exploited_once >> host & 1
        out[at + 3] = m.exploited_again >> host & 1
        out[at + 4] = m.analysed >> host & 1
        out[at + 5] = m.cleaned >> host & 1
        age = m.now - m.seen_step[host]
        if m.seen_step[host] == 0:
            age = 0
        for i in range(AGES):
            out[at + 6 + i] = age == i + 1
    for i in range(AT_LAST, MEMORY_FEATURES):
        out[i] = 0
    if m.last_kind >= 0:
        out[AT_LAST + m.last_kind] = 1
    if m.last_host >= 0:
        out[AT_LAST_HOST + m.last_host] = 1
    if m.event_host >= 0:
        out[AT_EVENT + m.event_activity - 1] = 1
        out[AT_EVENT_HOST + m.event_host] = 1
        age = m.now - m.event_step
        for i in range(NUM_EVENT_AGES):
            out[AT_EVENT_AGE + i] = age >= EVENT_AGES[i]
    for i in range(NUM_STEPS):
        out[AT_STEP + i] = m.now >= STEPS[i]
    out[AT_RED] = m.wanders
    out[AT_RED + 1] = m.direct


def write_useful(standing: Any, bits: Any, mask: Any) -> None:
    """Which of the 145 actions could do Blue any good, from its 52 bits and the decoys it has standing.

    Left out: Monitor (equals Sleep), everything on Defender and User0, decoys that cannot succeed or stand
    already, Analyse where the belief is Privileged already, Remove where no shell was seen since the last.
    """
    mask[0] = 1
    mask[1] = 0
    for host in range(NUM_HOSTS):
        counts = host != DEFENDER and host != USER0
        now = belief(bits, host)
        mask[2 + ANALYSE * NUM_HOSTS + host] = counts and now != BELIEF_PRIVILEGED
        mask[2 + REMOVE * NUM_HOSTS + host] = counts and now != BELIEF_NO and now != BELIEF_UNKNOWN
        mask[2 + RESTORE * NUM_HOSTS + host] = counts
        for decoy in range(NUM_DECOYS):
            mask[2 + (FIRST_DECOY + decoy) * NUM_HOSTS + host] = (
                counts
                and can_deploy(standing[host], decoy, host)
                and not (decoy == VSFTPD and standing[host] >> VSFTPD & 1)
            )


def feature_names() -> list[str]:
    """The name of every feature, in order: 52 bits of the challenge, then what memory adds.

    >>> names = feature_names()
    >>> len(names), names[0], names[52]
    (295, 'Defender active', 'Apache stands on Enterprise0')
    """
    names = []
    for host in HOSTS:
        names += [f"{host} active", f"{host} exploited now", f"{host} belief bit 0", f"{host} belief bit 1"]
    names += [f"{DECOYS[d]} stands on {HOSTS[h]}" for d, h in _USED]
    names += [f"{DECOYS[d]} stood on {HOSTS[h]} at its last scan" for d, h in _USED]
    for host in HOSTS:
        names += [f"{host} scanned", f"{host} scanned twice", f"{host} exploited"]
        names += [
            f"{host} exploited since its Restore",
            f"{host} analysed since it showed",
            f"{host} was restored",
        ]
        names += [f"{host} showed {i + 1} steps ago" for i in range(AGES)]
    names += [f"last action: {name}" for name in LAST_NAMES]
    names += [f"last action on {host}" for host in HOSTS]
    names += ["last event: scan", "last event: exploit"]
    names += [f"last event on {host}" for host in HOSTS]
    names += [f"last event {age} or more steps ago" for age in EVENT_AGES]
    names += [f"step {step} or later" for step in STEPS]
    names += ["two user hosts were scanned", "an exploit showed before two user hosts were scanned"]
    return names
