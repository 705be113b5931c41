"""Orders, classes, encodings, and the judgement of single fixes, by hand and against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.cage2.simulator.blue import blue_act
from shoal.cage2.simulator.network import (
    DEFENDER,
    ENTERPRISE0,
    ENTERPRISE1,
    FTP_TRAVERSAL,
    HTTPS_RFI,
    NUM_HOSTS,
    OP_SERVER0,
    REMOVE,
    RESTORE,
    SLEEP,
    USER0,
    USER1,
    USER2,
    USER3,
    action_index,
)
from shoal.cage2.simulator.red_agents import BLINE, choose
from shoal.cage2.simulator.step import STATE, conclude, start
from shoal.cage2.workflows.conduct import Conduct, tally_step
from shoal.cage2.workflows.orders import (
    COMPLIANT,
    ORDERS,
    PAIR_BITS,
    TALLY,
    VIOLATION,
    WASTED,
    classes,
    fixed_host,
    judge,
    name_of,
    number_of,
)

USERS_FIRST = "user,enterprise,op_server,op_host,defender"
SERVERS_FIRST = "enterprise,op_server,op_host,user,defender"
TYPE = ["defender", *["enterprise"] * 3, *["op_host"] * 3, "op_server", "", *["user"] * 4]


def test_the_orders_are_120_in_24_classes_of_five() -> None:
    """Every order is in one class, whose members differ in Defender's place alone."""
    groups = classes()
    assert len(set(ORDERS)) == 120
    assert len(groups) == 24
    assert sorted(number for group in groups for number in group) == list(range(120))
    for group in groups:
        assert len({tuple(u for u in ORDERS[n] if u != "defender") for n in group}) == 1
        assert sorted(ORDERS[n].index("defender") for n in group) == [0, 1, 2, 3, 4]
        assert ORDERS[group[0]][-1] == "defender"


def test_kendall_distance_by_hand() -> None:
    """Neighbours differ in one pair, an order and its reverse in all ten; it is a metric on the 120."""
    distances = (PAIR_BITS[:, None] != PAIR_BITS[None]).sum(-1)
    assert distances[0, number_of("enterprise,defender,op_server,op_host,user")] == 1
    assert distances[0, number_of(ORDERS[0][::-1])] == 10
    assert (distances == distances.T).all()
    assert (np.diag(distances) == 0).all()
    assert (distances[0][:, None] <= distances[0][None] + distances).all()


def test_encodings() -> None:
    """Ten bits tell all orders apart."""
    assert PAIR_BITS[0].tolist() == [1] * 10
    assert len({bits.tobytes() for bits in PAIR_BITS}) == 120


def test_an_order_can_be_written_in_several_ways() -> None:
    """By names, by number, as a tuple, without Defender; anything else is refused by name."""
    number = number_of(USERS_FIRST)
    assert number == number_of(str(number)) == number_of(tuple(USERS_FIRST.split(",")))
    assert number == number_of("user, enterprise, op_server, op_host")
    assert name_of(number) == USERS_FIRST
    for wrong in ("user,user,op_server,op_host,defender", "user", "", "120"):
        with pytest.raises(ValueError, match="order: expected"):
            number_of(wrong)


@pytest.mark.parametrize(
    ("order", "held", "host", "verdict"),
    [
        (USERS_FIRST, [USER1, ENTERPRISE0], USER1, COMPLIANT),
        (USERS_FIRST, [USER1, ENTERPRISE0], ENTERPRISE0, VIOLATION),
        (SERVERS_FIRST, [USER1, ENTERPRISE0], ENTERPRISE0, COMPLIANT),
        (SERVERS_FIRST, [ENTERPRISE0, ENTERPRISE1], ENTERPRISE1, COMPLIANT),  # the same rank is not better
        (SERVERS_FIRST, [ENTERPRISE0], OP_SERVER0, VIOLATION),  # not even held, and a better one is
        (SERVERS_FIRST, [USER1], OP_SERVER0, WASTED),  # not held, nothing better is
        (SERVERS_FIRST, [USER1], USER2, WASTED),  # not held, of the same rank as one that is
        (SERVERS_FIRST, [], ENTERPRISE0, WASTED),
        (SERVERS_FIRST, [ENTERPRISE0], USER0, WASTED),  # has no rank
        (SERVERS_FIRST, [ENTERPRISE0], DEFENDER, WASTED),  # its place changes nothing
    ],
)
def test_fixes_judged_by_hand(order: str, held: list[int], host: int, verdict: int) -> None:
    """One fix each."""
    assert judge(number_of(order), sum(1 << h for h in held), host) == verdict


def test_judge_is_the_definition() -> None:
    """Against docs/workflows.md, word by word, for random sets of held hosts."""
    rng = np.random.default_rng(0)
    hosts = [h for h in range(NUM_HOSTS) if h not in (DEFENDER, USER0)]
    for _ in range(3000):
        number = int(rng.integers(120))
        rank = [ORDERS[number].index(unit) if unit else 9 for unit in TYPE]
        held = [h for h in hosts if rng.random() < 0.3]
        host = int(rng.choice(hosts))
        better = any(rank[other] < rank[host] for other in held)
        expected = VIOLATION if better else COMPLIANT if host in held else WASTED
        assert judge(number, sum(1 << h for h in held), host) == expected


def test_which_actions_are_fixes() -> None:
    """Remove and Restore, on their host; nothing else of the 145."""
    fixes = {a: fixed_host(a) for a in range(145) if fixed_host(a) >= 0}
    assert fixes == {action_index(kind, h): h for kind in (REMOVE, RESTORE) for h in range(NUM_HOSTS)}


def episode(order: str, script: list[tuple[int, int, int]]) -> Any:
    """Play Blue's actions against B_line on User1, with red's exploits and detections given; the tally."""
    s = np.zeros(1, STATE).view(np.recarray)[0]
    tallies = np.zeros(1, TALLY).view(np.recarray)
    start(s, BLINE)
    s.entry = USER1
    for action, exploit, detected in script:
        tally_step(tallies[0], s, number_of(order), action)
        deployed, revealed = blue_act(s, action)
        choose(s, None)
        conclude(s, deployed, revealed, exploit, detected)
    return tallies


def numbers(counts: Any) -> list[int]:
    """compliant, violations, wasted, held host-steps, answered."""
    return [int(counts[name][0]) for name in ("compliant", "violations", "wasted", "held_steps", "answered")]


WORKED = [
    (SLEEP, -1, 0),  # red discovers the user subnet
    (SLEEP, -1, 0),  # scans User1
    (SLEEP, FTP_TRAVERSAL, 1),  # takes it, privileged, seen
    (SLEEP, -1, 0),  # held: User1. Red escalates, which changes nothing
    (SLEEP, -1, 0),  # held: User1. Scans Enterprise1
    (SLEEP, HTTPS_RFI, 1),  # held: User1. Takes Enterprise1, seen
    (action_index(RESTORE, ENTERPRISE1), -1, 0),  # held: User1, Enterprise1. Its escalation fails
    (action_index(RESTORE, USER1), HTTPS_RFI, 1),  # held: User1. Takes Enterprise1 again
    (action_index(RESTORE, USER3), -1, 0),  # held: Enterprise1. Escalates there
    (action_index(REMOVE, ENTERPRISE1), -1, 0),  # held: Enterprise1; a Remove too late is still a fix of it
]


def test_a_worked_episode_under_two_orders() -> None:
    """Ten steps with four fixes, counted by hand: 8 compromised host-steps, 3 of them answered."""
    users = episode(USERS_FIRST, WORKED)
    assert numbers(users["true"]) == [2, 1, 1, 8, 3]
    servers = episode(SERVERS_FIRST, WORKED)
    assert numbers(servers["true"]) == [3, 1, 0, 8, 3]
    assert numbers(users["believed"]) == numbers(users["true"])  # all was seen
    conduct = Conduct.of(users)
    assert conduct.compliance.mean == pytest.approx(2 / 3)
    assert conduct.coverage.mean == pytest.approx(3 / 8)
    assert conduct.wasted.mean == pytest.approx(1 / 4)


def test_a_worked_episode_that_monitoring_missed() -> None:
    """A shell that was missed counts by the true state; by Blue's belief the same fix was wasted."""
    script = [*WORKED[:2], (SLEEP, FTP_TRAVERSAL, 0), (action_index(RESTORE, USER1), -1, 0)]
    tally = episode(USERS_FIRST, script)
    assert numbers(tally["true"]) == [1, 0, 0, 1, 1]
    assert numbers(tally["believed"]) == [0, 0, 1, 0, 0]


def test_a_worked_episode_with_a_belief_that_lags() -> None:
    """After a Remove that worked Blue still believes: fixing it again is wasted by the truth, compliant by belief."""
    again = (action_index(REMOVE, ENTERPRISE1), -1, 0)
    script = [*WORKED[:6], again, (action_index(RESTORE, ENTERPRISE1), -1, 0)]
    tally = episode(SERVERS_FIRST, script)
    assert numbers(tally["true"])[:3] == [1, 0, 1]
    assert numbers(tally["believed"])[:3] == [2, 0, 0]


def test_an_episode_without_a_judged_fix_has_no_compliance() -> None:
    """It is neither 0 nor a half, and does not enter the mean."""
    idle = episode(USERS_FIRST, [(SLEEP, -1, 0)] * 4)
    assert Conduct.of(idle).compliance.mean is None
    both = np.concatenate([idle, episode(USERS_FIRST, WORKED)])
    assert Conduct.of(both).compliance.mean == pytest.approx(2 / 3)
    assert Conduct.of(both).compliance.episodes == 1
