"""The credit study: trains, plays and prices arm by arm, and goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.rides import credit_arms, rides_credit
from shoal.rides.options import RidesOptions

SMALL = {"futures": 0, "held_out_days": 0, "start": "none", "prices": "insertion", "iterations": 2}


def test_the_study_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two seeds of one way to train on four days: priced on the first two, then on all; nothing is made twice."""
    arm = credit_arms.Arm(SMALL, "myopic", 0.0, {"episodes": 16, "num_envs": 8})
    monkeypatch.setattr(credit_arms, "EXAMINED", 2)
    for module in (credit_arms, rides_credit):
        monkeypatch.setattr(module, "ARMS", {"scratch": arm})
    monkeypatch.setattr(rides_credit, "OWN_ITERATIONS", 2)
    monkeypatch.setattr(rides_credit, "REFERENCE", (2, 1))
    monkeypatch.setattr(rides_credit, "SEEDS", (201, 202))
    said: list[str] = []

    def study(parts: list[Any], priced: tuple[int, ...]) -> list[Any]:
        return rides_credit.study(
            parts, tmp_path, said.append, lambda parts: None, arms=["scratch"], seeds=(201, 202), days=4, priced=priced
        )

    parts = study([], (2,))
    assert [part["name"] for part in parts] == ["scratch seed 201", "scratch seed 202", "myopic"]
    assert [(len(part["own"]), len(part["reference"])) for part in parts] == [(4, 2)] * 3
    days, cpu_s, *nets = parts[0]["curve"][-1]
    assert (days, len(nets)) == (16, 2)
    assert 0 < cpu_s <= parts[0]["train_cpu_s"] + 0.1
    rows = {row.name: row for row in rides_credit.summarise(parts, days=4)}
    row = rows["rides, scratch: trained less myopic, net gain a day, by the reference prices"]
    gain = [sum(part["reference"]) / 2 for part in parts]
    assert f"mean {(gain[0] + gain[1]) / 2 - gain[2]:.2f}" in row.note
    assert "2 days; 2 seeds" in row.note
    said.clear()
    more = study(parts, (2, 4))
    assert [len(part["reference"]) for part in more] == [4, 4, 4]
    assert [part["reference"][:2] for part in more] == [part["reference"][:2] for part in parts]
    assert len(said) == 3  # priced, and neither trained nor played


def test_a_second_generation_goes_on_from_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its weights before it learns are those of the same seed, and it is compared with that training."""
    quick = {"episodes": 8, "num_envs": 8}
    first = credit_arms.Arm(SMALL, "myopic", None, quick)
    again = SMALL | {"credit": "negotiated", "credit_requests": 2, "customers": 8}
    arms = {
        "scratch": credit_arms.Arm(SMALL | {"customers": 8}, first.against, None, quick),
        "again": credit_arms.Arm(again, "scratch", None, quick | {"learning_rate": 1e-9}, goes_on_from="scratch"),
    }
    for module in (credit_arms, rides_credit):
        monkeypatch.setattr(module, "ARMS", arms)
    monkeypatch.setattr(credit_arms, "EXAMINED", 1)
    credit_arms.train("again", 202, tmp_path, lambda text: None)
    one, two = (credit_arms.load(name, 202, tmp_path).network.state_dict() for name in ("scratch", "again"))
    assert all(np.allclose(one[name], two[name], atol=1e-6) for name in one)
    assert rides_credit._against("again", (201, 202)) == ["scratch seed 201", "scratch seed 202"]
    with np.load(credit_arms.weights_file("scratch", 202, tmp_path)) as before:
        assert before["flexibility.evidence"].any()


def test_generations_are_chained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The third goes on from the second, which goes on from the first: one call trains what is missing, with one seed,
    and the third is compared with the second."""
    quick = {"episodes": 8, "num_envs": 8, "learning_rate": 1e-9}
    negotiated = SMALL | {"credit": "negotiated", "credit_requests": 2, "customers": 8}
    arms = {
        "scratch": credit_arms.Arm(SMALL | {"customers": 8}, "myopic", None, quick),
        "again": credit_arms.Arm(negotiated, "scratch", None, quick, goes_on_from="scratch"),
        "third": credit_arms.Arm(negotiated, "again", None, quick, goes_on_from="again"),
    }
    for module in (credit_arms, rides_credit):
        monkeypatch.setattr(module, "ARMS", arms)
    monkeypatch.setattr(credit_arms, "EXAMINED", 1)
    credit_arms.train("third", 203, tmp_path, lambda text: None)
    assert all(credit_arms.weights_file(name, 203, tmp_path).exists() for name in arms)
    first, second, third = (credit_arms.load(name, 203, tmp_path) for name in arms)
    for part, value in first.network.state_dict().items():
        assert np.allclose(value, third.network.state_dict()[part], atol=1e-6)
    # A rider's evidence grows from generation to generation.
    evidence = [np.abs(one.entrant.flexibility["evidence"]).sum() for one in (first, second, third)]
    assert evidence[0] < evidence[1] < evidence[2]
    assert rides_credit._against("third", (203,)) == ["again seed 203"]


def test_a_generation_depends_on_all_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other settings of the first are another third, which is trained and played anew."""
    before = {name: credit_arms.settings(arm) for name, arm in credit_arms.ARMS.items()}
    assert len({before[name] for name in ("scratch", "again", "third")}) == 3
    other = dataclasses.replace(credit_arms.ARMS["scratch"], options={"episodes": 256})
    monkeypatch.setitem(credit_arms.ARMS, "scratch", other)
    after = {name: credit_arms.settings(arm) for name, arm in credit_arms.ARMS.items()}
    assert {name for name in before if before[name] != after[name]} == {"scratch", "again", "third"}


def test_from_nothing_with_futures_shown() -> None:
    """8 in training and 32 when it is played, as today's default, but nothing taught."""
    arm = credit_arms.ARMS["scratch-8"]
    options = RidesOptions(**json.loads(credit_arms.config_of(arm, 201).env_kwargs))
    assert (options.start, options.futures, options.credited, arm.shown) == ("none", 8, True, 32)
    assert arm.against == credit_arms.TODAY


def test_a_possible_default_is_compared_with_all_seeds_of_todays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It plays the weights of another arm with futures shown, which that arm was trained without; nothing is trained
    or played for the other side."""
    quick = {"episodes": 8, "num_envs": 8}
    arms = {
        "scratch": credit_arms.Arm(SMALL, "myopic", None, quick),
        "shown": credit_arms.Arm(SMALL, credit_arms.TODAY, 0.0, quick, same_as="scratch", shown=2),
    }
    for module in (credit_arms, rides_credit):
        monkeypatch.setattr(module, "ARMS", arms)
    monkeypatch.setattr(credit_arms, "EXAMINED", 1)
    monkeypatch.setattr(rides_credit, "OWN_ITERATIONS", 2)
    monkeypatch.setattr(rides_credit, "SEEDS", (201,))
    today = {"seed 101": np.array([1.0, 2.0]), "seed 102": np.array([3.0, 2.0])}
    monkeypatch.setattr(rides_credit, "todays", lambda prices: today)
    assert credit_arms.weights_file("shown", 201, tmp_path) == credit_arms.weights_file("scratch", 201, tmp_path)
    parts = rides_credit.study(
        [], tmp_path, lambda text: None, lambda parts: None, arms=["shown"], seeds=(201,), days=2, priced=()
    )
    assert [part["name"] for part in parts] == ["shown seed 201"]
    assert credit_arms.load("shown", 201, tmp_path).entrant.changes["futures"] == 2
    assert credit_arms.load("scratch", 201, tmp_path).entrant.changes["futures"] == 0
    rows = {row.name: row for row in rides_credit.summarise(parts, days=2)}
    row = rows["rides, shown: trained less today's default, net gain a day, by the own prices"]
    assert f"mean {np.mean(parts[0]['own']) - 2.0:.2f}" in row.note


def test_no_arm_is_compared_with_itself() -> None:
    """`taught` is the name of a baseline and of an arm."""
    for arm in credit_arms.ARMS:
        assert not any(name.startswith(f"{arm} seed ") for name in rides_credit._against(arm, (201,)))
    assert rides_credit._against("taught", (201, 202)) == ["taught"]
