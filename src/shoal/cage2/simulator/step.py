"""One step: state, order of events, Blue's bits, reward (docs/cage2-rules.md). Scalar code."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.cage2.simulator.blue import believe, blue_act
from shoal.cage2.simulator.network import (
    BELIEF_PRIVILEGED,
    BELIEF_USER,
    CHEAP_HOSTS,
    CHEAP_TENTHS,
    DEAR_HOSTS,
    DEAR_TENTHS,
    EXPLOIT,
    IMPACT_TENTHS,
    NUM_BITS,
    NUM_HOSTS,
    RED_SLEEP,
    RESTORE_TENTHS,
    UNKNOWN,
    USER0,
    USER_SUBNET,
    count_bits,
    open_ports,
)
from shoal.cage2.simulator.red import (
    DECOY_EVENT,
    NO_EVENT,
    SCAN_EVENT,
    SHELL_EVENT,
    SSH_EVENT,
    draw_detection,
    draw_exploit,
    red_act,
)
from shoal.cage2.simulator.red_agents import choose

# One environment. Host sets are integers with bit h set; results are FAILED, SUCCEEDED, UNKNOWN. Numbers
# that enter arithmetic are int32: in plain Python NumPy makes 1 << int8 an int8.
STATE = np.dtype(
    [
        # the network
        ("user_removable", np.int32),  # hosts with a user shell that monitoring saw: Remove kills it
        ("user_fixed", np.int32),  # hosts with a user session that Remove cannot kill
        ("privileged", np.int32),
        ("malware", np.int32),
        ("decoys", np.uint8, (NUM_HOSTS,)),  # set of decoys per host
        ("ot_running", np.int32),
        ("ot_killable", np.int32),
        ("ot_known", np.int32),
        # what red knows
        ("red_ports", np.int16, (NUM_HOSTS,)),  # ports seen in the last scan; 0: never scanned
        ("known_addresses", np.int32),
        ("known_hostnames", np.int32),
        ("known_subnets", np.int32),
        # red's mind
        ("red", np.int32),  # BLINE, MEANDER or SLEEPER
        ("k", np.int32),  # B_line: place on its path, -1 before the first action
        ("entry", np.int32),  # B_line: its user host, -1 before the draw
        ("server_attacked", np.int32),  # B_line: k = 12 has been performed
        ("scanned_hosts", np.int32),  # Meander's sets
        ("exploited", np.int32),
        ("escalated", np.int32),
        ("mapped", np.int32),
        ("scanned_subnets", np.int32),
        # red's last action
        ("red_type", np.int32),
        ("red_target", np.int32),
        ("red_exploit", np.int32),
        ("red_success", np.int32),
        ("scan_empty", np.int32),
        ("detected", np.int32),
        ("event", np.int32),
        # Blue's last action and its view
        ("blue_success", np.int32),
        ("restored", np.int32),  # the last action was a Restore
        ("activity_host", np.int32),  # -1: nothing to see
        ("activity", np.int32),
        ("bits", np.uint8, (NUM_BITS,)),  # Blue's observation; beliefs live only here
        ("step", np.int32),
        # the rules: 1 for those of the final leaderboard (docs/cage2-rules.md)
        ("final", np.int32),
        ("reset_hosts", np.int32),  # hosts that Blue has restored in this episode
    ],
    align=True,
)

ACTIVITY_NONE, ACTIVITY_SCAN, ACTIVITY_EXPLOIT = 0, 1, 2
MASKED_BELOW_PORTS = 3  # a scan that saw fewer ports is hidden by a decoy deployed in the same step


def start(s: Any, red: int) -> None:
    """Begin an episode against a red agent, under the present rules."""
    s.final = 0
    s.reset_hosts = 0
    s.user_removable = 0
    s.user_fixed = 0
    s.privileged = 1 << USER0
    s.malware = 0
    s.ot_running = 1
    s.ot_killable = 1
    s.ot_known = 0
    s.known_addresses = 1 << USER0
    s.known_hostnames = 1 << USER0
    s.known_subnets = 1 << USER_SUBNET
    s.red = red
    s.k = -1
    s.entry = -1
    s.server_attacked = 0
    s.scanned_hosts = 0
    s.exploited = 0
    s.escalated = 0
    s.mapped = 0
    s.scanned_subnets = 0
    s.red_type = RED_SLEEP
    s.red_target = -1
    s.red_exploit = -1
    s.red_success = UNKNOWN
    s.scan_empty = 0
    s.detected = 0
    s.event = NO_EVENT
    s.blue_success = UNKNOWN
    s.restored = 0
    s.activity_host = -1
    s.activity = ACTIVITY_NONE
    s.step = 0
    for host in range(NUM_HOSTS):
        s.decoys[host] = 0
        s.red_ports[host] = 0
    for i in range(NUM_BITS):
        s.bits[i] = 0


def advance(s: Any, rng: Any, action: int) -> int:
    """Play one step with sampled outcomes; returns Blue's cost in tenths."""
    deployed, revealed = blue_act(s, action)
    choose(s, rng)
    exploit = -1
    detected = 0
    if s.red_type == EXPLOIT:
        exploit = draw_exploit(s, rng, s.red_target)
        detected = draw_detection(rng)
    return conclude(s, deployed, revealed, exploit, detected)


def conclude(s: Any, deployed: int, revealed: int, exploit: int, detected: int) -> int:
    """Red's chosen action, then what Blue sees and pays. Shared by sampled play and replay."""
    event = red_act(s, exploit, detected)
    s.red_exploit = exploit
    s.event = event
    s.detected = 1 if event == SHELL_EVENT else 0
    show(s, event, deployed, revealed)
    s.step += 1
    return cost_tenths(s)


def show(s: Any, event: int, deployed: int, revealed: int) -> None:
    """Blue's activity and beliefs at the end of the step."""
    if s.activity_host >= 0:
        s.bits[4 * s.activity_host] = 0
        s.bits[4 * s.activity_host + 1] = 0
    s.activity_host = -1
    s.activity = ACTIVITY_NONE
    if event != NO_EVENT:
        host = s.red_target
        activity = visible(event, deployed == host, count_bits(open_ports(s, host)))
        if activity != ACTIVITY_NONE:
            s.activity_host = host
            s.activity = activity
            s.bits[4 * host] = 1
            if activity == ACTIVITY_EXPLOIT:
                s.bits[4 * host + 1] = 1
                believe(s, host, BELIEF_USER)
    if revealed >= 0:
        believe(s, revealed, BELIEF_PRIVILEGED)


def visible(event: int, deployed_here: bool, ports: int) -> int:
    """The activity that monitoring reports for an event on a host with so many distinct open ports."""
    if event in (SHELL_EVENT, SSH_EVENT):
        return ACTIVITY_EXPLOIT
    if not deployed_here:
        return ACTIVITY_SCAN
    if event == DECOY_EVENT:
        return ACTIVITY_EXPLOIT
    if event == SCAN_EVENT and ports >= MASKED_BELOW_PORTS:
        return ACTIVITY_SCAN
    return ACTIVITY_NONE


def cost_tenths(s: Any) -> int:
    """What the present state and Blue's last action cost, in tenths: exact, where sums of 0.1 are not."""
    cost = CHEAP_TENTHS * count_bits(s.privileged & CHEAP_HOSTS)
    cost += DEAR_TENTHS * count_bits(s.privileged & DEAR_HOSTS)
    if not s.ot_running:
        cost += IMPACT_TENTHS
    if s.restored:
        cost += RESTORE_TENTHS
    return cost


def write_bits(s: Any, out: Any) -> None:
    """Copy Blue's 52 bits: per host activity (none 00, scan 10, exploit 11) and belief (see `believe`)."""
    for i in range(NUM_BITS):
        out[i] = s.bits[i]
