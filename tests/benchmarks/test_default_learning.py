"""What `shoal train ID` learns with no flag, beside SB3: which runs are compared, and which are made again."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.harness import stored
from benchmarks.ppo import default_learning

HERE, PINNED, THERE = "2-core VM, AMD EPYC", "1-core VM, AMD EPYC", "host of an H200 (16 cores), one core a run"
TASK = "HalfCheetah-v5"


def learned(who: str, seed: int, cpu_s: float, machine: str = HERE, task: str = TASK) -> dict[str, Any]:
    settings = "now" if who == "shoal" else "zoo"
    return {"who": who, "task": task, "seed": seed, "mean": 1.0, "sampled": 1.0, "cpu_s": cpu_s, "machine": machine,
            "settings": settings, "commit": "abc", "date": "2026-01-01"}  # fmt: skip


def share(runs: list[dict[str, Any]]) -> Any:
    """The row of CPU-seconds."""
    return next(row for row in default_learning.summarise(runs) if row.name.startswith(f"{TASK}: CPU-seconds"))


def test_cpu_seconds_of_two_machines_are_not_divided() -> None:
    """A faster processor is no faster library; the row says where each ran."""
    row = share([learned("shoal", 201, 10.0, THERE), learned("sb3", 201, 40.0, HERE)])
    assert (row.value, row.met) == (None, None)
    assert row.note == f"no machine has run seeds of both: shoal ran on {THERE} and SB3 ran on {HERE}"


def test_pinning_is_no_other_machine() -> None:
    """One core of two is the same processor."""
    row = share([learned("shoal", 201, 10.0, PINNED), learned("sb3", 201, 40.0, HERE)])
    assert (row.value, row.note) == (0.25, "1 seeds of shoal, 1 of SB3")


def test_runs_of_other_machines_are_left_out_of_the_medians() -> None:
    """The machine with the most pairs counts."""
    ours = [learned("shoal", 201, 10.0), learned("shoal", 202, 12.0), learned("shoal", 203, 1000.0, THERE)]
    theirs = [learned("sb3", 201, 44.0), learned("sb3", 202, 44.0), learned("sb3", 203, 1.0, THERE)]
    row = share([*ours, *theirs])
    assert row.value == pytest.approx(0.25)
    assert row.note == "2 seeds of shoal, 2 of SB3, on one kind of machine"


@pytest.fixture
def learnt(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What is learnt, which takes no time; what is stored before is one run of shoal's elsewhere."""
    found: list[tuple[str, str, int]] = []
    kept = [learned("shoal", 201, 10.0, THERE)]

    def learn(call: str, timeout_s: float, task: str, seed: int) -> dict[str, Any]:
        found.append((call.partition(":")[2], task, seed))
        return learned(found[-1][0], seed, 7.0, HERE, task)

    monkeypatch.setattr(default_learning, "settings_hash", lambda task: "now")
    monkeypatch.setattr(default_learning, "in_fresh_process", learn)
    monkeypatch.setattr(stored, "runs", lambda name: kept)
    monkeypatch.setattr(stored, "require_clean", lambda: None)
    monkeypatch.setattr(stored, "write", lambda *about, runs: kept.__setitem__(slice(None), runs))
    monkeypatch.setattr(stored, "read", lambda name: {"runs": kept, "commit": "abc", "date": "2026-01-01"})
    return found


def test_one_task_is_learnt_again_here(learnt: list[tuple[str, str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    """--again replaces what is stored of the same task and seed; without it, only what is wanting is learnt."""
    asked = ["shoal", "--tasks", TASK, "--seeds", "201", "202", "--store"]
    default_learning.main(asked)
    assert learnt == [("shoal", TASK, 202)]
    default_learning.main([*asked, "--again"])
    assert learnt[1:] == [("shoal", TASK, 201), ("shoal", TASK, 202)]
    runs = stored.runs(default_learning.NAME)
    assert [(run["seed"], run["machine"]) for run in runs] == [(201, HERE), (202, HERE)]
    assert "seed 202: 1.00 greedy" in capsys.readouterr().out


def test_both_learners_take_the_flags(learnt: list[tuple[str, str, int]]) -> None:
    """SB3 has no settings for Taxi."""
    default_learning.main(["--tasks", TASK, "Taxi-v4", "--seeds", "203", "--store"])
    assert learnt == [("shoal", TASK, 203), ("shoal", "Taxi-v4", 203), ("sb3", TASK, 203)]


@pytest.mark.usefixtures("learnt")
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--tasks", TASK], "expected --store"),
        (["--tasks", "Nope-v1", "--store"], "invalid choice"),
        (["sb3", "--tasks", "Taxi-v4", "--store"], "expected for sb3 tasks of LunarLander-v3"),
    ],
)
def test_flags_without_effect_are_refused(asked: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is learnt."""
    with pytest.raises(SystemExit):
        default_learning.main(asked)
    assert said in capsys.readouterr().err
