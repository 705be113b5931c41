"""Facts of Scenario2: hosts, ports, links, values, decoys and exploits (docs/cage2-rules.md).

Hosts are numbered 0..12 in the challenge's order, and a set of hosts is an integer with bit h set. Ports and
exploits are numbered as in recordings (docs/cage2-recordings.md). The functions at the end are scalar code that the
compiled backend turns into kernels: plain branches on module constants.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# What docs/cage2-rules.md describes; a score is only comparable under the same rules.
RULES = "cage-challenge-2@26ce1c1, Scenario2"
# What the challenge's published leaderboard was made with (August 2022); two fixes lie between.
FINAL_RULES = "cage-challenge-2@606813b, Scenario2"
RULES_BY_NAME = {"present": RULES, "final": FINAL_RULES}  # --rules


def is_final(rules: str) -> int:
    """1 for the final rules, 0 for the present ones."""
    if rules not in RULES_BY_NAME:
        raise ValueError(f"rules: expected {' or '.join(RULES_BY_NAME)}, got {rules!r}")
    return int(rules == "final")


HOSTS = (
    "Defender", "Enterprise0", "Enterprise1", "Enterprise2", "Op_Host0", "Op_Host1", "Op_Host2",
    "Op_Server0", "User0", "User1", "User2", "User3", "User4",
)  # fmt: skip
NUM_HOSTS = 13
DEFENDER, ENTERPRISE0, ENTERPRISE1, ENTERPRISE2 = 0, 1, 2, 3
OP_HOST0, OP_HOST1, OP_HOST2, OP_SERVER0 = 4, 5, 6, 7
USER0, USER1, USER2, USER3, USER4 = 8, 9, 10, 11, 12

# Subnets: 0 User, 1 Enterprise, 2 Operational.
SUBNETS = ("User", "Enterprise", "Operational")
USER_SUBNET, ENTERPRISE_SUBNET, OPERATIONAL_SUBNET = 0, 1, 2
SUBNET_OF = np.array([1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0], np.int32)  # int32[host]
SUBNET_HOSTS = np.array([0b1_1111_0000_0000, 0b1111, 0b1111_0000], np.int32)  # int32[subnet], host sets

ENTERPRISE_SERVERS = 0b1110  # Enterprise0-2: a session on one of them opens the way into Operational
OPERATIONAL_HOSTS = 0b1111_0000
DEAR_HOSTS = 0b1000_1110  # Enterprise0-2 and Op_Server0 cost 1 a step when privileged
CHEAP_HOSTS = 0b1_1110_0111_0001  # Defender, Op_Host0-2 and User1-4 cost 0.1; User0 costs nothing
DEAR_TENTHS, CHEAP_TENTHS, RESTORE_TENTHS, IMPACT_TENTHS = 10, 1, 10, 100

# The address that red learns by escalating on a host; -1: none.
LINKED = np.array([-1, -1, -1, OP_SERVER0, -1, -1, -1, -1, -1, 2, 2, 1, 1], np.int32)  # int32[host]

PORTS = (21, 22, 25, 53, 68, 80, 135, 139, 443, 445, 3389, 3390)
P21, P22, P25, P53, P68, P80 = 1, 2, 4, 8, 16, 32
P135, P139, P443, P445, P3389, P3390 = 64, 128, 256, 512, 1024, 2048
_WINDOWS_SERVER = P22 | P80 | P135 | P139 | P443 | P445 | P3389
CLEAN_PORTS = np.array(
    [
        P22 | P53 | P68,
        P22,
        _WINDOWS_SERVER,
        _WINDOWS_SERVER,
        P22,
        P22,
        P22,
        P22,
        P21 | P22,
        P21 | P22,
        P135 | P139 | P445 | P3389,
        P25 | P80 | P443 | P3389,
        P22 | P25 | P80 | P443 | P3390,
    ],
    np.int32,
)  # int32[host], port sets
WINDOWS = 0b0_0111_0000_1100  # Enterprise1-2, User0-2

# Exploits, numbered as in the traces.
EXPLOITS = (
    "EternalBlue", "BlueKeep", "HTTPRFI", "HTTPSRFI",
    "SSHBruteForce", "SQLInjection", "HarakaRCE", "FTPDirectoryTraversal",
)  # fmt: skip
NUM_EXPLOITS = 8
ETERNAL_BLUE, BLUE_KEEP, HTTP_RFI, HTTPS_RFI, SSH_BRUTE_FORCE, SQL_INJECTION, HARAKA_RCE, FTP_TRAVERSAL = range(8)
# Red prefers the first of these that it believes possible.
_RANKED = (
    FTP_TRAVERSAL, HARAKA_RCE, SQL_INJECTION, HTTPS_RFI,
    HTTP_RFI, ETERNAL_BLUE, BLUE_KEEP, SSH_BRUTE_FORCE,
)  # fmt: skip
# int8[set of exploits, place]: the members of a set in that order, -1 beyond the last.
EXPLOIT_AT = np.array(
    [
        ([x for x in _RANKED if members >> x & 1] + [-1] * NUM_EXPLOITS)[:NUM_EXPLOITS]
        for members in range(1 << NUM_EXPLOITS)
    ],
    np.int8,
)
TOP_CHOICE = 0.75  # probability of the best-ranked exploit where there are several
DETECTION = 0.95  # probability that monitoring catches a new shell

# What a genuine service gives: 0 no such service (a decoy may answer), 1 user shell, 2 privileged shell,
# 3 a service that the exploit does not open (silent), 4 one that refuses and logs it.
NO_SERVICE, USER_SHELL, PRIVILEGED_SHELL, NOT_VULNERABLE, REFUSES = 0, 1, 2, 3, 4
#                     EB BK HTTP HTTPS SSH SQL HAR FTP
_SSH_ONLY = [0, 0, 0, 0, USER_SHELL, 0, 0, 0]
_SERVER = [NOT_VULNERABLE, PRIVILEGED_SHELL, USER_SHELL, USER_SHELL, USER_SHELL, 0, 0, 0]
_FTP_AND_SSH = [0, 0, 0, 0, USER_SHELL, 0, 0, PRIVILEGED_SHELL]
GENUINE = np.array(
    [
        [0, 0, 0, 0, REFUSES, 0, 0, 0],
        _SSH_ONLY,
        _SERVER,
        _SERVER,
        _SSH_ONLY,
        _SSH_ONLY,
        _SSH_ONLY,
        _SSH_ONLY,
        _FTP_AND_SSH,
        _FTP_AND_SSH,
        [PRIVILEGED_SHELL, USER_SHELL, 0, 0, 0, 0, 0, 0],
        [0, NOT_VULNERABLE, USER_SHELL, USER_SHELL, 0, 0, PRIVILEGED_SHELL, 0],
        [0, 0, USER_SHELL, USER_SHELL, USER_SHELL, PRIVILEGED_SHELL, PRIVILEGED_SHELL, 0],
    ],
    np.int32,
)  # int32[host, exploit]

DECOYS = ("Apache", "Femitter", "HarakaSMPT", "Smss", "SSHD", "Svchost", "Tomcat", "Vsftpd")
NUM_DECOYS = 8
APACHE, FEMITTER, HARAKA, SMSS, SSHD, SVCHOST, TOMCAT, VSFTPD = range(8)
DECOY_NEEDS_FREE = np.array([P80, P21, P25, P139, P22, P3389, P443, P21], np.int32)  # int32[decoy], ports
DECOY_OPENS = np.array([P80, P21, P25, P139, P22, P3389, P443, P80], np.int32)  # Vsftpd opens 80, not 21
_LINUX = 0b1_1111_1111_1111 & ~WINDOWS
_ANY = 0b1_1111_1111_1111
DECOY_HOSTS = np.array([_ANY, WINDOWS, _LINUX, WINDOWS, _ANY, WINDOWS, _ANY, _LINUX], np.int32)  # host sets
# The decoys (a set, bit = decoy) that imitate the service an exploit attacks.
TRAPS = np.array(
    [
        1 << SMSS,
        1 << SVCHOST,
        1 << APACHE | 1 << VSFTPD,
        1 << TOMCAT,
        1 << SSHD,
        0,
        1 << HARAKA,
        1 << FEMITTER,
    ],
    np.int32,
)  # int32[exploit]
# The ports that a set of decoys opens: int32[256].
PORTS_OF_DECOYS = np.array(
    [np.bitwise_or.reduce(DECOY_OPENS[[d for d in range(8) if mask >> d & 1]]) for mask in range(256)],
    np.int32,
)
# The (decoy, host) pairs that can ever succeed, decoy by decoy: every later failure is a port already open.
DECOY_SLOTS = tuple(
    (decoy, host)
    for decoy in range(NUM_DECOYS)
    for host in range(NUM_HOSTS)
    if DECOY_HOSTS[decoy] >> host & 1 and not CLEAN_PORTS[host] & DECOY_NEEDS_FREE[decoy]
)

# Blue's 145 actions: 0 Sleep, 1 Monitor, then 11 kinds x 13 hosts.
KINDS = ("Analyse", "Remove", *(f"Decoy{name}" for name in DECOYS), "Restore")
ANALYSE, REMOVE, FIRST_DECOY, RESTORE = 0, 1, 2, 10
SLEEP, MONITOR = 0, 1
NUM_ACTIONS = 145

# Red's action types, numbered as in the traces.
RED_ACTIONS = (
    "Sleep",
    "DiscoverRemoteSystems",
    "DiscoverNetworkServices",
    "Exploit",
    "PrivilegeEscalate",
    "Impact",
)
RED_SLEEP, DISCOVER, SCAN, EXPLOIT, ESCALATE, IMPACT = range(6)

# Three-valued results, as in the traces.
FAILED, SUCCEEDED, UNKNOWN = 0, 1, 2

BELIEFS = ("No", "Unknown", "User", "Privileged")
BELIEF_NO, BELIEF_UNKNOWN, BELIEF_USER, BELIEF_PRIVILEGED = range(4)
NUM_BITS = 52  # Blue's observation: 13 hosts x (active, exploited, two bits of belief)


def action_index(kind: int, host: int) -> int:
    """The number of a Blue action on a host.

    >>> action_index(RESTORE, USER4)
    144
    """
    return 2 + kind * NUM_HOSTS + host


def action_name(action: int) -> str:
    """The name of a Blue action, as in the challenge's action list.

    >>> action_name(0), action_name(28)
    ('Sleep', 'DecoyApache Defender')
    """
    if action < 2:
        return ("Sleep", "Monitor")[action]
    return f"{KINDS[(action - 2) // NUM_HOSTS]} {HOSTS[(action - 2) % NUM_HOSTS]}"


def count_bits(mask: int) -> int:
    """How many members a set of up to 16 has."""
    mask = (mask & 0x5555) + ((mask >> 1) & 0x5555)
    mask = (mask & 0x3333) + ((mask >> 2) & 0x3333)
    mask = (mask & 0x0F0F) + ((mask >> 4) & 0x0F0F)
    return (mask & 0xFF) + (mask >> 8)


def nth_member(mask: int, n: int) -> int:
    """The n-th smallest member of a set (n from 0); the set must have more than n members."""
    for _ in range(n):
        mask &= mask - 1
    return count_bits((mask & -mask) - 1)


def belief(bits: Any, host: int) -> Any:
    """Blue's belief about a host, from its 52 bits."""
    return bits[4 * host + 2] + 2 * bits[4 * host + 3]


def open_ports(s: Any, host: int) -> Any:
    """The ports open on a host now: its own and its decoys'."""
    return CLEAN_PORTS[host] | PORTS_OF_DECOYS[s.decoys[host]]


def can_deploy(decoys: int, decoy: int, host: int) -> Any:
    """Whether a decoy would succeed on a host that carries this set of decoys."""
    if not DECOY_HOSTS[decoy] >> host & 1:
        return False
    return (CLEAN_PORTS[host] | PORTS_OF_DECOYS[decoys]) & DECOY_NEEDS_FREE[decoy] == 0
