"""The study of thinking: plays both, pairs the days, goes on where it was stopped."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.rides import rides_think


def test_days_are_played_with_and_without_thinking_and_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The taught policy on two days; what has been played is not played again."""
    monkeypatch.setattr(rides_think, "FUTURES", 1)
    monkeypatch.setattr(rides_think, "ITERATIONS", 2)
    monkeypatch.setattr(rides_think, "_trained", rides_think._taught)
    given = rides_think.parsed(["--days", "2", "--think", "1", "--equal", "2", "--closed", "1"])
    kept: list[Any] = []
    parts = rides_think.study(given, [], lambda parts: kept.append(len(parts)))
    assert kept == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [len(part["net_min"]) for part in parts] == [2] * 8
    rows = rides_think.summarise(parts)
    plain, thinking, equal, closed = (sum(part["net_min"]) / 2 for part in parts[:4])
    assert f"{thinking:.2f} with and {plain:.2f} without" in rows[0].note
    assert rows[2].name == "rides, taught: 1 more futures in a closed loop less none, net gain a day"
    assert rows[3].name == "rides, taught: 1 more futures in a closed loop less 2 in an open one, net gain a day"
    assert f"{closed:.2f} with and {equal:.2f} without" in rows[3].note
    assert rides_think.study(given, parts, lambda parts: pytest.fail("played again")) == parts


def test_nothing_stored_says_how_to_make_it() -> None:
    assert "python -m benchmarks.rides.rides_think --store" in rides_think.summarise([])[0].note
