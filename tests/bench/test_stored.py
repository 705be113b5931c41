"""Stored results come back as they were written, and say where they are from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shoal.bench import learning, solve, stored
from shoal.bench.rows import Row


def _solved(seed: int, shoal_s: float, sb3_s: float, solved: bool = True) -> dict[str, Any]:
    one = {"wall_s": 1.0, "import_cpu_s": 1.0, "steps": 1000}
    return {"seed": seed, "commit": "abc", "shoal": {**one, "cpu_s": shoal_s, "solved": solved},
            "sb3": {**one, "cpu_s": sb3_s, "solved": True}}  # fmt: skip


def test_a_result_comes_back(tmp_path: Path) -> None:
    """With command, commit, machine in words, date, versions and rows; without this machine's paths."""
    stored.write("speed", "python benchmarks/speed.py", [Row("r", 2.5, "x", 2.0)], tmp_path, runs=[{"seed": 1}])
    result = stored.read("speed", tmp_path)
    assert result is not None
    assert {"command", "commit", "dirty", "machine", "date", "versions", "rows", "runs"} == set(result)
    assert result["rows"][0]["holds"] is True
    assert "-core" in result["machine"]
    assert str(Path.home()) not in json.dumps(result)
    assert stored.read("nothing", tmp_path) is None


def test_stored_rows_are_marked(tmp_path: Path) -> None:
    """The commits of the runs themselves, when they have any."""
    result = {"commit": "top", "date": "2026-01-02", "runs": [{"commit": "b"}, {"commit": "a"}]}
    row = stored.as_stored([Row("r", 1.0, "x", seeds=[1])], result)[0].to_json()
    assert (row["measured"], row["commit"], row["date"], row["seeds"]) == ("stored", "a, b", "2026-01-02", [1])


def test_solving_counts_seeds_at_half_or_less() -> None:
    """A seed that was not solved never counts, however little it used."""
    runs = [_solved(1, 5.0, 10.0), _solved(2, 5.1, 10.0), _solved(3, 1.0, 10.0, solved=False)]
    row = solve.summarise(runs)[0]
    assert (row.value, row.bar, row.holds) == (1.0, 3.0, False)
    assert row.detail["shoal cpu_s"] == [5.0, 5.1, 1.0]


def test_learning_shows_the_worst_seed_and_never_pools_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three seeds under today's settings are too few for a value."""
    monkeypatch.setattr(learning, "settings_hash", lambda task: "now")
    runs = [
        {"task": "Acrobot-v1", "seed": seed, "mean": mean, "settings": settings}
        for seed, mean, settings in [(101, -80.0, "now"), (102, -95.0, "now"), (103, -70.0, "old")]
    ]
    row = learning.summarise(learning.current(runs))[0]
    assert (row.value, row.holds) == (None, None)
    assert "2 of 3" in row.note
    runs[2]["settings"] = "now"
    row = learning.summarise(learning.current(runs))[0]
    assert (row.value, row.holds) == (-95.0, True)


def test_learning_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is missing is learnt, and each seed is kept as soon as it is there."""
    monkeypatch.setattr(learning, "settings_hash", lambda task: "now")
    learnt, kept = [], []

    def learn(call: str, timeout_s: float, task: str, seed: int) -> dict[str, Any]:
        learnt.append((task, seed))
        return {"task": task, "seed": seed, "mean": 0.0, "steps": 1, "wall_s": 1.0, "settings": "now"}

    monkeypatch.setattr(learning, "in_fresh_process", learn)
    before = [{"task": task, "seed": 101, "mean": 1.0, "settings": "now"} for task in learning.BARS]
    runs = learning.missing(before, lambda text: None, lambda found: kept.append(len(found)))
    assert len(runs) == 9
    assert len(learnt) == 6
    assert 101 not in {seed for _, seed in learnt}
    assert kept == [4, 5, 6, 7, 8, 9]


def test_without_a_stored_result_the_row_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installed shoal has no benchmarks folder."""
    monkeypatch.setattr(stored, "results_folder", lambda: tmp_path)
    rows = learning.rows(lambda text: None, full=False)
    assert all(row.value is None and "classic_control.py" in row.note for row in rows)
