"""Red's moves on the true state (docs/cage2-rules.md). Its minds are in minds.py. Scalar code.

Every random outcome (target, exploit, detection) is an argument of `red_act`, so that sampled play and the
replay of a recording run the same code.
"""

from __future__ import annotations

from typing import Any

from shoal.cage2.simulator.network import (
    BLUE_KEEP,
    DETECTION,
    DISCOVER,
    ENTERPRISE_SERVERS,
    ESCALATE,
    ETERNAL_BLUE,
    EXPLOIT,
    EXPLOIT_AT,
    FAILED,
    FTP_TRAVERSAL,
    GENUINE,
    HARAKA_RCE,
    HTTP_RFI,
    HTTPS_RFI,
    IMPACT,
    LINKED,
    NO_SERVICE,
    OP_SERVER0,
    OPERATIONAL_SUBNET,
    P21,
    P22,
    P25,
    P80,
    P139,
    P443,
    P3389,
    P3390,
    PRIVILEGED_SHELL,
    REFUSES,
    SCAN,
    SQL_INJECTION,
    SSH_BRUTE_FORCE,
    SUBNET_HOSTS,
    SUBNET_OF,
    SUCCEEDED,
    TOP_CHOICE,
    TRAPS,
    UNKNOWN,
    USER_SHELL,
    count_bits,
    open_ports,
)
from shoal.compiled.random import below, chance

# What red's action leaves for monitoring to see, on its target.
NO_EVENT, SCAN_EVENT, TOUCH_EVENT, DECOY_EVENT, SHELL_EVENT, SSH_EVENT = range(6)


def sessions(s: Any) -> Any:
    """The hosts on which red has a session of any level."""
    return s.user_removable | s.user_fixed | s.privileged


def reach(s: Any, host: int) -> Any:
    """Whether red's packets get to a host: Operational is open only from a held Enterprise server."""
    return SUBNET_OF[host] != OPERATIONAL_SUBNET or sessions(s) & ENTERPRISE_SERVERS != 0


def exploit_candidates(ports: int) -> int:
    """The set of exploits that red thinks possible, from the ports it remembers."""
    found = 0
    if ports & P21:
        found |= 1 << FTP_TRAVERSAL
    if ports & P25:
        found |= 1 << HARAKA_RCE
    if ports & P3390 and ports & (P80 | P443):
        found |= 1 << SQL_INJECTION
    if ports & P443:
        found |= 1 << HTTPS_RFI
    if ports & P80:
        found |= 1 << HTTP_RFI
    if ports & P139:
        found |= 1 << ETERNAL_BLUE
    if ports & P3389:
        found |= 1 << BLUE_KEEP
    if ports & P22:
        found |= 1 << SSH_BRUTE_FORCE
    return found


def draw_exploit(s: Any, rng: Any, host: int) -> Any:
    """Draw red's exploit against a host; -1 where it knows none."""
    candidates = exploit_candidates(s.red_ports[host])
    number = count_bits(candidates)
    if number < 2 or chance(rng, TOP_CHOICE):
        return EXPLOIT_AT[candidates, 0]
    return EXPLOIT_AT[candidates, 1 + below(rng, number - 1)]


def draw_detection(rng: Any) -> int:
    """Draw whether monitoring would catch a new shell."""
    return 1 if chance(rng, DETECTION) else 0


def red_act(s: Any, exploit: int, detected: int) -> int:
    """Let the chosen action (`s.red_type`, `s.red_target`) take effect; returns the event it leaves."""
    kind = s.red_type
    target = s.red_target
    s.scan_empty = 0
    if kind == SCAN:
        return scan(s, target)
    if kind == EXPLOIT:
        return attack(s, target, exploit, detected)
    if kind == ESCALATE:
        escalate(s, target)
    elif kind == IMPACT:
        impact(s)
    elif kind == DISCOVER:
        discover(s, target)
    else:
        s.red_success = UNKNOWN
    return NO_EVENT


def discover(s: Any, subnet: int) -> None:
    """DiscoverRemoteSystems: learn a subnet's addresses. Leaves no trace."""
    s.red_success = FAILED
    if subnet != OPERATIONAL_SUBNET or sessions(s) & ENTERPRISE_SERVERS:
        s.red_success = SUCCEEDED
        s.known_addresses |= SUBNET_HOSTS[subnet]
        s.known_subnets |= 1 << subnet


def scan(s: Any, host: int) -> int:
    """DiscoverNetworkServices: remember a host's open ports. Reports success even where nothing answered."""
    s.red_success = SUCCEEDED
    if not reach(s, host):
        s.scan_empty = 1
        return NO_EVENT
    seen = open_ports(s, host)
    s.red_ports[host] = s.red_ports[host] | seen if s.final else seen  # final rules: nothing is forgotten
    s.known_addresses |= 1 << host
    return SCAN_EVENT


def attack(s: Any, host: int, exploit: int, detected: int) -> int:
    """ExploitRemoteService with a given exploit. A genuine service answers before a decoy does."""
    s.red_success = FAILED
    if exploit < 0 or s.red_ports[host] == 0 or not reach(s, host):
        return NO_EVENT
    result = GENUINE[host, exploit]
    if result == NO_SERVICE:
        if s.decoys[host] & TRAPS[exploit] == 0:
            return NO_EVENT
        return SSH_EVENT if exploit == SSH_BRUTE_FORCE else DECOY_EVENT
    if result == REFUSES:
        return SSH_EVENT
    if result != USER_SHELL and result != PRIVILEGED_SHELL:
        return NO_EVENT
    if s.final and exploit == HARAKA_RCE and s.reset_hosts >> host & 1:
        return TOUCH_EVENT  # final rules: a restored mail server's version is not recognised; the connection shows
    s.red_success = SUCCEEDED
    bit = 1 << host
    s.known_hostnames |= bit
    if exploit == SSH_BRUTE_FORCE:
        s.user_fixed |= bit
        return SSH_EVENT
    s.malware |= bit
    if result == PRIVILEGED_SHELL:
        s.privileged |= bit
    elif detected:
        s.user_removable |= bit
    else:
        s.user_fixed |= bit
    return SHELL_EVENT if detected else TOUCH_EVENT


def escalate(s: Any, host: int) -> None:
    """PrivilegeEscalate: any session becomes a privileged one. Leaves no trace."""
    bit = 1 << host
    if sessions(s) & bit == 0:
        s.red_success = FAILED
        return
    s.red_success = SUCCEEDED
    if s.privileged & bit == 0:
        s.privileged |= bit
        s.malware |= bit
    s.known_addresses |= bit
    s.known_subnets |= 1 << SUBNET_OF[host]
    if LINKED[host] >= 0:
        s.known_addresses |= 1 << LINKED[host]
    if host == OP_SERVER0:
        s.ot_known = 1


def impact(s: Any) -> None:
    """Impact: stop the service of Op_Server0, unless a Restore has made it unstoppable. Leaves no trace."""
    if sessions(s) >> OP_SERVER0 & 1 == 0 or s.ot_known == 0:
        s.red_success = FAILED
        return
    s.red_success = SUCCEEDED
    if s.ot_killable:
        s.ot_running = 0
