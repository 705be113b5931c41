"""The study of step sizes: trains every arm, plays the same days, goes on where it was stopped."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rides import rides_steps
from shoal.learn.policy import Agent


def test_arms_are_trained_played_and_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two days of training: the arm with another credit learns otherwise, on the same days."""
    small = {"customers": 6, "iterations": 2, "history": 2}
    monkeypatch.setattr(rides_steps, "_OWN", rides_steps._OWN | small)
    monkeypatch.setattr(rides_steps, "TRAINED", 16)
    monkeypatch.setattr(rides_steps, "POLISH", 2)
    quick = {"num_envs": 8}
    arms = {
        rides_steps.SHIPPED: rides_steps.Arm(quick, requests=3),
        rides_steps.TWICE: rides_steps.Arm(quick, requests=3, estimates=2),
    }
    monkeypatch.setattr(rides_steps, "ARMS", arms)
    kept: list[Any] = []
    parts = rides_steps.study([], (1,), 3, lambda text: None, lambda parts: kept.append(len(parts)))
    assert kept == [1, 2]
    assert [part["days_trained"] for part in parts] == [16, 16]
    row = rides_steps.summarise(parts)[0]
    ours, theirs = (sum(part["net_min"]) / 3 for part in reversed(parts))
    assert row.value == pytest.approx(ours - theirs, abs=1e-9)
    assert "1 seeds and 3 days" in row.note
    monkeypatch.setattr(Agent, "__init__", lambda *given: pytest.fail("trained again"))
    assert rides_steps.study(parts, (1,), 3, lambda text: None, lambda parts: None) == parts


def test_nothing_stored_says_how_to_make_it() -> None:
    assert "python -m benchmarks.rides.rides_steps --store" in rides_steps.summarise([])[0].note
