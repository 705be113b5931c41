"""Red's minds: B_line's path and Meander's sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.cage2.simulator.network import (
    ESCALATE,
    EXPLOIT,
    FAILED,
    IMPACT,
    OP_SERVER0,
    SCAN,
    SUCCEEDED,
    USER1,
    USER3,
)
from shoal.cage2.simulator.red_agents import (
    BLINE,
    MEANDER,
    bline_advance,
    bline_commit,
    choose,
    meander_commit,
    meander_options,
    meander_settle,
)
from shoal.cage2.simulator.step import STATE, advance, start
from shoal.compiled.random import RNG, begin


def begun(red: int) -> Any:
    s = np.zeros(1, STATE).view(np.recarray)[0]
    start(s, red)
    return s


def test_bline_walks_its_path_while_it_succeeds() -> None:
    """Fifteen successes lead from the sweep of User to Impact, and there it stays."""
    s = begun(BLINE)
    s.entry = USER3
    seen = []
    for _ in range(16):
        bline_advance(s)
        bline_commit(s)
        s.red_success = SUCCEEDED
        seen.append((int(s.red_type), int(s.red_target)))
    path = [(1, 0), (2, 11), (3, 11), (4, 11), (2, 1), (3, 1), (4, 1), (1, 1), (2, 3), (3, 3), (4, 3)]
    assert seen == [*path, (2, 7), (3, 7), (4, 7), (5, 7), (5, 7)]


@pytest.mark.parametrize(
    ("k", "back"),
    [(0, 0), (1, 1), (2, 2), (3, 2), (4, 2), (5, 2), (6, 5), (9, 5), (10, 9), (12, 9), (13, 12), (14, 13)],
)
def test_bline_falls_back_where_the_specification_says(k: int, back: int) -> None:
    """A failure at each place leads to the place of docs/cage2-rules.md."""
    s = begun(BLINE)
    s.entry, s.k, s.red_success, s.server_attacked = USER1, k, FAILED, 1
    bline_advance(s)
    assert s.k == back


def test_bline_starts_over_after_an_empty_scan_of_the_server() -> None:
    """Before its first attack on Op_Server0 an empty scan sends it to k = 1; afterwards no more."""
    s = begun(BLINE)
    s.entry, s.k, s.red_success, s.scan_empty = USER1, 11, SUCCEEDED, 1
    bline_advance(s)
    assert s.k == 1
    s.k, s.server_attacked = 11, 1
    bline_advance(s)
    assert s.k == 12


def test_meander_unmarks_the_enterprise_when_an_exploit_fails() -> None:
    """A failed exploit takes all escalated servers out of both sets, user hosts never."""
    s = begun(MEANDER)
    servers, user = 0b0110, 1 << USER1
    s.escalated = s.exploited = servers | user
    s.red_type, s.red_target, s.red_success = EXPLOIT, USER3, FAILED
    meander_settle(s)
    assert (s.escalated, s.exploited) == (user, user)


def test_meander_unmarks_operational_first() -> None:
    """With an Operational host escalated, only those are unmarked."""
    s = begun(MEANDER)
    s.escalated = s.exploited = 0b1001_0110
    s.red_type, s.red_target, s.red_success = EXPLOIT, USER3, FAILED
    meander_settle(s)
    assert s.escalated == 0b0110


def test_meander_retries_a_host_it_had_mapped() -> None:
    """A failed escalation on a host exploited before makes it a target again."""
    s = begun(MEANDER)
    bit = 1 << USER1
    s.escalated = s.exploited = s.mapped = bit
    s.red_type, s.red_target, s.red_success = ESCALATE, USER1, FAILED
    meander_settle(s)
    assert (s.escalated, s.exploited) == (0, 0)


def test_meander_prefers_impact_then_subnets_scans_escalations_exploits() -> None:
    """The first rule that applies decides."""
    s = begun(MEANDER)
    order = []
    for _ in range(4):
        kind, allowed = meander_options(s)
        order.append(int(kind))
        meander_commit(s, kind, int(allowed).bit_length() - 1)
        s.red_success = SUCCEEDED
    assert order == [1, SCAN, ESCALATE, EXPLOIT]
    s.escalated |= 1 << OP_SERVER0
    assert meander_options(s)[0] == IMPACT


def test_meander_always_has_a_target() -> None:
    """No run-out in 2,000 steps of random Blue play in plain Python."""
    s = begun(MEANDER)
    rng = np.zeros(1, RNG).view(np.recarray)[0]
    actions = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        begin(rng, np.uint64(7), np.uint64(0))
        for t in range(2000):
            if t % 100 == 0:
                start(s, MEANDER)
            advance(s, rng, int(actions.integers(145)))
            assert s.red_type != 0


def test_the_sleeping_red_sleeps() -> None:
    """Its action is Sleep and has no target."""
    s = begun(2)
    choose(s, None)
    assert (s.red_type, s.red_target) == (0, -1)
