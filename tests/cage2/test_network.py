"""Facts of the scenario against the challenge's own lists."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

from shoal.cage2.simulator.network import (
    CHEAP_HOSTS,
    DEAR_HOSTS,
    DECOY_SLOTS,
    DECOYS,
    NUM_ACTIONS,
    USER0,
    action_name,
    can_deploy,
    count_bits,
    nth_member,
)


def test_the_action_list_is_the_challenges(data: Path) -> None:
    """All 145 names stand in the challenge's order."""
    with open(data / "action_list.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [f"{row['action']} {row['host']}".strip() for row in rows] == [action_name(i) for i in range(NUM_ACTIONS)]


def test_decoys_work_where_the_specification_says() -> None:
    """The (decoy, host) pairs that succeed on a clean machine equal the table of docs/cage2-rules.md."""
    expected = {
        "Apache": [0, 1, 4, 5, 6, 7, 8, 9, 10],
        "Femitter": [2, 3, 10],
        "HarakaSMPT": [0, 1, 4, 5, 6, 7],
        "Smss": [8, 9],
        "SSHD": [10, 11],
        "Svchost": [8, 9],
        "Tomcat": [0, 1, 4, 5, 6, 7, 8, 9, 10],
        "Vsftpd": [0, 1, 4, 5, 6, 7, 11, 12],
    }
    got = {name: [h for d, h in DECOY_SLOTS if DECOYS[d] == name] for name in DECOYS}
    assert got == expected


def test_vsftpd_opens_port_80() -> None:
    """It can be deployed again and after Apache, and blocks a later Apache."""
    apache, vsftpd = DECOYS.index("Apache"), DECOYS.index("Vsftpd")
    assert can_deploy(1 << vsftpd, vsftpd, 1)
    assert can_deploy(1 << apache, vsftpd, 1)
    assert not can_deploy(1 << vsftpd, apache, 1)


def test_every_host_but_user0_has_a_value() -> None:
    """Cheap and dear hosts are disjoint and cover all but User0."""
    assert CHEAP_HOSTS & DEAR_HOSTS == 0
    assert CHEAP_HOSTS | DEAR_HOSTS | 1 << USER0 == 0b1_1111_1111_1111


def test_sets_as_integers() -> None:
    """count_bits and nth_member agree with Python on every set of 13."""
    for mask in itertools.chain(range(1, 300), range(8000, 8192)):
        members = [i for i in range(13) if mask >> i & 1]
        assert count_bits(mask) == len(members)
        assert [nth_member(mask, n) for n in range(len(members))] == members
