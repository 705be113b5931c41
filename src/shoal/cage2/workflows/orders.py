"""Workflows: the 120 orders in which Blue may fix its hosts, and whether it kept to one (docs/workflows.md).

An order ranks the five unit types. User0 belongs to none and Defender can never be held, so neither ever counts as
compromised, by the true state or by Blue's belief, and a fix of one of them is always wasted: only so does Defender's
place in an order change nothing, and the 120 orders form 24 classes of five. `judge` and `count` are scalar code that
the compiled backend turns into kernels; the tables that they read are made here.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from shoal.cage2.simulator.network import (
    BELIEF_NO,
    NUM_HOSTS,
    REMOVE,
    RESTORE,
    belief,
    count_bits,
)

Order = tuple[str, ...]

UNITS = ("defender", "enterprise", "op_server", "op_host", "user")
NUM_UNITS = 5
UNIT_OF = np.array([0, 1, 1, 1, 3, 3, 3, 2, -1, 4, 4, 4, 4], np.int32)  # int32[host]; User0 has none
DEFENDER_UNIT = 0
COUNTED = 0b1_1110_1111_1110  # the hosts that can count as compromised: all but Defender and User0

ORDERS: tuple[Order, ...] = tuple(itertools.permutations(UNITS))  # lexicographic in UNITS
NUM_ORDERS = 120
PAIRS = tuple(itertools.combinations(range(NUM_UNITS), 2))
NUM_PAIRS = 10

# int32[order, unit]: the place of a unit type, 0 is fixed first.
PLACE = np.array([[order.index(unit) for unit in UNITS] for order in ORDERS], np.int32)
# uint8[order, 10]: of each pair of unit types, whether the first comes first. Kendall's distance is Hamming's on these.
PAIR_BITS = np.array([[place[a] < place[b] for a, b in PAIRS] for place in PLACE], np.uint8)


def _better_sets() -> np.ndarray:
    """int32[order, host]: the set of counted hosts whose type has a strictly better rank than the host's."""
    better = np.zeros((NUM_ORDERS, NUM_HOSTS), np.int32)
    for place, row in zip(PLACE, better, strict=True):
        for host in range(NUM_HOSTS):
            if COUNTED >> host & 1:
                row[host] = sum(
                    1 << other
                    for other in range(NUM_HOSTS)
                    if COUNTED >> other & 1 and place[UNIT_OF[other]] < place[UNIT_OF[host]]
                )
    return better


BETTER = _better_sets()

NO_FIX, COMPLIANT, VIOLATION, WASTED = 0, 1, 2, 3

# What an episode adds up, twice: by the true state, and by Blue's belief.
COUNTS = np.dtype(
    [
        ("compliant", np.int32),
        ("violations", np.int32),
        ("wasted", np.int32),
        ("held_steps", np.int32),  # compromised host-steps
        ("answered", np.int32),  # ... in which that very host was fixed
    ],
    align=True,
)
TALLY = np.dtype([("true", COUNTS), ("believed", COUNTS), ("steps", np.int32)], align=True)


def fixed_host(action: int) -> int:
    """The host that an action fixes (Remove or Restore), or -1."""
    kind = (action - 2) // NUM_HOSTS
    if action >= 2 and kind in (REMOVE, RESTORE):
        return (action - 2) % NUM_HOSTS
    return -1


def judge(order: int, held: int, host: int) -> int:
    """A fix of `host` under an order, while the hosts of the set `held` are compromised.

    >>> first_users = number_of("user,op_host,op_server,enterprise,defender")
    >>> judge(first_users, 1 << 1 | 1 << 9, 9), judge(first_users, 1 << 1 | 1 << 9, 1), judge(first_users, 0, 1)
    (1, 2, 3)
    """
    if held & BETTER[order, host] != 0:
        return VIOLATION
    return COMPLIANT if held >> host & 1 else WASTED


def believed_set(bits: Any) -> int:
    """The hosts that Blue believes compromised: belief other than No in its 52 bits."""
    held = 0
    for host in range(NUM_HOSTS):
        if belief(bits, host) != BELIEF_NO:
            held |= 1 << host
    return held & COUNTED


def count(counts: Any, order: int, held: int, host: int) -> int:
    """Take one step into COUNTS: the compromised hosts before Blue's action, and the host it fixes (or -1)."""
    counts.held_steps += count_bits(held)
    if host < 0:
        return NO_FIX
    verdict = judge(order, held, host)
    if verdict == COMPLIANT:
        counts.compliant += 1
    elif verdict == VIOLATION:
        counts.violations += 1
    else:
        counts.wasted += 1
    if held >> host & 1:
        counts.answered += 1
    return verdict


def number_of(order: str | int | Order) -> int:
    """An order's place in ORDERS, given as a number, as names with commas, or as a tuple of names.

    >>> number_of("defender,enterprise,op_server,op_host,user"), number_of(("user", *UNITS[:4]))
    (0, 96)
    """
    if isinstance(order, str) and order.isdecimal():
        order = int(order)
    if isinstance(order, int | np.integer):
        if not 0 <= order < NUM_ORDERS:
            raise ValueError(f"order: expected a number from 0 to {NUM_ORDERS - 1}, got {order}")
        return int(order)
    names = tuple(part.strip() for part in order.split(",")) if isinstance(order, str) else tuple(order)
    if sorted(names) == sorted(UNITS[1:]):
        names = (*names, UNITS[DEFENDER_UNIT])  # its place changes nothing
    if sorted(names) != sorted(UNITS):
        raise ValueError(
            f"order: expected the five unit types {','.join(UNITS)} in some order (defender may be left out), "
            f"or a number below {NUM_ORDERS}; got {','.join(map(str, names)) if names else order!r}"
        )
    return ORDERS.index(names)


def name_of(order: int) -> str:
    """An order in words, from first to last.

    >>> name_of(0)
    'defender,enterprise,op_server,op_host,user'
    """
    return ",".join(ORDERS[order])


def classes() -> list[list[int]]:
    """The 24 classes of orders that differ in Defender's place alone, each with its five members.

    The first member of a class puts Defender last; the classes are sorted by it.
    """
    found: dict[Order, list[int]] = {}
    for number, order in enumerate(ORDERS):
        found.setdefault(tuple(unit for unit in order if unit != UNITS[DEFENDER_UNIT]), []).append(number)
    groups = [sorted(members, key=lambda n: -int(PLACE[n, DEFENDER_UNIT])) for members in found.values()]
    return sorted(groups)
