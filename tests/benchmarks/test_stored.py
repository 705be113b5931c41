"""Stored results come back as they were written, and say where they are from."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as bench
from benchmarks.harness import interleave, stored
from benchmarks.harness.rows import Row
from benchmarks.ppo import cartpole_solve, classic_control
from benchmarks.search import bandit_speed
from shoal.runs import provenance


def _solved(seed: int, shoal_s: float, sb3_s: float, solved: bool = True) -> dict[str, Any]:
    one = {"wall_s": 1.0, "import_cpu_s": 1.0, "steps": 1000}
    return {"seed": seed, "commit": "abc", "shoal": {**one, "cpu_s": shoal_s, "solved": solved},
            "sb3": {**one, "cpu_s": sb3_s, "solved": True}}  # fmt: skip


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if everything were committed."""
    monkeypatch.setattr(provenance, "code", lambda: {"shoal": "0", "commit": "abc", "dirty": False})


@pytest.mark.usefixtures("clean")
def test_a_result_comes_back(tmp_path: Path) -> None:
    """With command, commit, machine in words, date, versions and rows; without this machine's paths."""
    stored.write(
        "speed", "python -m benchmarks.vector.speed --store", [Row("r", 2.5, "x", 2.0)], tmp_path, runs=[{"seed": 1}]
    )
    result = stored.read("speed", tmp_path)
    assert result is not None
    assert {"command", "commit", "dirty", "machine", "date", "versions", "rows", "runs"} == set(result)
    assert result["rows"][0]["met"] is True
    assert "-core" in result["machine"]
    assert str(Path.home()) not in json.dumps(result)
    assert stored.read("nothing", tmp_path) is None


@pytest.mark.parametrize(
    ("code", "said"), [({"commit": "abc", "dirty": True}, "commit them"), ({"commit": None, "dirty": None}, "checkout")]
)
def test_nothing_is_stored_from_a_tree_that_nobody_could_find_again(
    code: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Changes that are not committed, or no commit at all: refused before measuring, and again before writing."""
    monkeypatch.setattr(provenance, "code", lambda: {"shoal": "0", **code})
    with pytest.raises(stored.DirtyTree, match=said):
        stored.write("speed", "command", [], tmp_path)
    assert not list(tmp_path.iterdir())
    measured: list[str] = []
    monkeypatch.setattr(bench, "_rows", lambda *args: measured.append("measured"))
    assert bench.main(["vector", "--store"]) == 2
    assert said in capsys.readouterr().err
    assert not measured


@pytest.mark.usefixtures("clean")
def test_a_group_stores_what_it_measured_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file a figure; what is kept is only read, and --full goes through the figures' own modules."""
    monkeypatch.setattr(stored, "results_folder", lambda: tmp_path)
    assert bench.main(["search", "--json"]) == 0
    assert not list(tmp_path.iterdir())
    capsys.readouterr()
    assert bench.main(["search", "--json", "--store"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bandit_speed.json"]
    results = json.loads(capsys.readouterr().out)["results"]
    assert {"name", "value", "unit", "target", "met", "measured"} <= set(results[0])
    assert results[0]["value"] > 0
    assert bench.main(["search", "--full", "--store"]) == 2
    assert "without --full" in capsys.readouterr().err


def test_several_groups_are_measured_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each once, in the order given; `all` is every group."""
    measured: list[list[str]] = []

    def rows(groups: list[str], *options: Any) -> list[Row]:
        measured.append(groups)
        return [Row(group, 1.0, "x") for group in groups]

    monkeypatch.setattr(bench, "_rows", rows)
    assert bench.main(["vector", "ppo", "cage2", "vector", "rides", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["results"]] == measured[0]
    assert measured[0] == ["vector", "ppo", "cage2", "rides"]
    assert bench.main(["ppo", "all"]) == 0
    assert measured[1] == list(bench.GROUPS)
    assert bench.main(["ppo", "rydes"]) == 2
    assert bench.main(["ppo", "vector", "--instances", "."]) == 2
    said = capsys.readouterr().err
    assert "got 'rydes'" in said
    assert "got it with ppo vector" in said
    assert len(measured) == 2


def test_a_figure_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a row without a value that says why, and the exit code is 1."""

    def fails(say: Any) -> list[Row]:
        raise RuntimeError("sb3 died with exit code 1:\nno memory")

    monkeypatch.setattr(bandit_speed, "rows", fails)
    assert bench.main(["search", "--json"]) == 1
    first, *others = json.loads(capsys.readouterr().out)["results"]
    assert (first["name"], first["value"], first["note"]) == ("bandit_speed", None, "failed: no memory")
    assert len(others) > 10


KEPT = [(group, name) for group, figures in bench.GROUPS.items() for name in figures.kept if name != "cartpole_solve"]


@pytest.mark.parametrize(("group", "name"), KEPT)
def test_results_written_at_any_time_can_be_read(group: str, name: str) -> None:
    """Every kept figure has rows from the file in the checkout, under the old words or the new, or says how to make
    them."""
    rows = importlib.import_module(f"benchmarks.{group}.{name}").rows(lambda text: None)
    assert rows
    assert all(row.measured == "stored" or row.value is None for row in rows)
    assert all(row.value is not None or "--store" in row.note or "seeds" in row.note for row in rows)
    json.dumps([row.to_json() for row in rows], allow_nan=False)


def test_every_result_has_the_module_that_makes_it() -> None:
    """benchmarks/GROUP/NAME.py writes results/NAME.json; the one of another machine is of process_speed."""
    modules = {path.stem for path in stored.results_folder().parent.glob("*/*.py")}
    results = {path.stem.removesuffix("_h200_host") for path in stored.results_folder().glob("*.json")}
    assert results <= modules
    assert {name for group in bench.GROUPS.values() for names in group for name in names} <= modules


def test_stored_rows_are_marked(tmp_path: Path) -> None:
    """The commits of the runs themselves, when they have any."""
    result = {"commit": "top", "date": "2026-01-02", "runs": [{"commit": "b"}, {"commit": "a"}]}
    row = stored.as_stored([Row("r", 1.0, "x", seeds=[1])], result)[0].to_json()
    assert (row["measured"], row["commit"], row["date"], row["seeds"]) == ("stored", "a, b", "2026-01-02", [1])


def test_solving_counts_seeds_at_half_or_less() -> None:
    """A seed that was not solved never counts, however little it used."""
    runs = [_solved(1, 5.0, 10.0), _solved(2, 5.1, 10.0), _solved(3, 1.0, 10.0, solved=False)]
    row = cartpole_solve.summarise(runs)[0]
    assert (row.value, row.target, row.met) == (1.0, 3.0, False)
    assert row.detail["shoal cpu_s"] == [5.0, 5.1, 1.0]


def test_learning_shows_the_worst_seed_and_never_pools_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of three seeds under today's settings are too few for a value."""
    monkeypatch.setattr(classic_control, "settings_hash", lambda task: "now")
    runs = [
        {"task": "Acrobot-v1", "seed": seed, "mean": mean, "settings": settings}
        for seed, mean, settings in [(101, -80.0, "now"), (102, -95.0, "now"), (103, -70.0, "old")]
    ]
    row = classic_control.summarise(classic_control.current(runs))[0]
    assert (row.value, row.met) == (None, None)
    assert "2 of 3" in row.note
    runs[2]["settings"] = "now"
    row = classic_control.summarise(classic_control.current(runs))[0]
    assert (row.value, row.met) == (-95.0, True)


def test_learning_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is missing is learnt, and each seed is kept as soon as it is there."""
    monkeypatch.setattr(classic_control, "settings_hash", lambda task: "now")
    learnt, kept = [], []

    def learn(call: str, timeout_s: float, task: str, seed: int) -> dict[str, Any]:
        learnt.append((task, seed))
        return {"task": task, "seed": seed, "mean": 0.0, "steps": 1, "wall_s": 1.0, "settings": "now"}

    monkeypatch.setattr(classic_control, "in_fresh_process", learn)
    before = [{"task": task, "seed": 101, "mean": 1.0, "settings": "now"} for task in classic_control.TARGETS]
    runs = classic_control.missing(before, lambda text: None, lambda found: kept.append(len(found)))
    assert len(runs) == 9
    assert len(learnt) == 6
    assert 101 not in {seed for _, seed in learnt}
    assert kept == [4, 5, 6, 7, 8, 9]


def test_without_a_stored_result_the_row_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installed shoal has no benchmarks folder."""
    monkeypatch.setattr(stored, "results_folder", lambda: tmp_path)
    rows = classic_control.rows(lambda text: None, full=False)
    assert all(row.value is None and "benchmarks.ppo.classic_control --store" in row.note for row in rows)


def test_what_is_called_in_other_processes_exists() -> None:
    """Every "module:name" that a figure hands to a contestant or a fresh process can be found."""
    places = set()
    for path in stored.results_folder().parent.rglob("*.py"):
        text = path.read_text()
        places |= set(re.findall(r'"(benchmarks\.[\w.]+:\w+)"', text))
        for by in re.findall(r'_BY = "(benchmarks\.[\w.]+:)"', text):
            places |= {by + name for name in re.findall(r'_BY \+ "(\w+)"', text)}
    assert {"benchmarks.ppo.ppo_speed:ShoalTraining", "benchmarks.ppo.classic_control:learn"} <= places
    for place in places:
        assert callable(interleave.find(place)), place
