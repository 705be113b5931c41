"""A town of one's own, end to end: examples/town, by the commands that docs/rides.md gives."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from shoal.cli import main

ROOT = Path(__file__).parents[1]
TINY = ["--num-envs", "2", "--episodes", "2", "--iterations", "5", "--futures", "2", "--value-epochs", "1"]


def shell(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(args))
    return int(exit_.value.code or 0)


@pytest.fixture(scope="module")
def commands() -> list[list[str]]:
    """The commands of the section, in its order."""
    text = (ROOT / "docs" / "rides.md").read_text(encoding="utf-8")
    section = text.split("## A town of your own", 1)[1].split("\n## ", 1)[0]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = block[1].replace("\\\n", " ").strip().split("\n")
    return [shlex.split(line)[1:] for line in lines if line.startswith("shoal ")]


def command(commands: list[list[str]], *begin: str) -> list[str]:
    found = [line for line in commands if line[: len(begin)] == list(begin)]
    assert len(found) == 1, (begin, commands)
    return found[0]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: Any, commands: list[list[str]]) -> Any:
    """The town, trained for a moment; what was said before and after."""
    root = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        assert shell(*command(commands, "train", "rides"), *TINY, "--runs-dir", str(root)) == 0
    return root


def test_a_small_town_is_warned_of_before_training(
    commands: list[list[str]], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """One plain line before the training begins says that days are held out, and riders are not."""
    monkeypatch.chdir(ROOT)
    args = [*command(commands, "train", "rides"), *TINY, "--name", "said", "--runs-dir", str(tmp_path)]
    assert shell(*args) == 0
    out = capsys.readouterr()
    note, run = out.err.index("shoal: note: of 30 riders 6 would be held out"), out.err.index("said")
    assert note < run
    assert out.err.count("would be held out") == 1
    assert "UserWarning" not in out.err
    assert out.out.index("--days 60 --reference-iterations 200") < out.out.index("--days 900   (a verdict")


def test_what_was_trained_can_be_evaluated(
    runs: Path, commands: list[list[str]], capsys: Any, monkeypatch: Any
) -> None:
    """Fewer riders than a day would need are no dead end: the days are new, and the table says whose."""
    monkeypatch.chdir(ROOT)
    quick = ["--days", "2", "--reference-iterations", "10", "--oracle-iterations", "3", "--threads", "1"]
    args = [*command(commands, "evaluate", "town")[:2], *quick, "--runs-dir", str(runs)]
    assert shell(*args) == 0
    assert "2 held-out days, 16 riders known from training each, 2 vehicles" in capsys.readouterr().out
    page = (runs / "town" / "report.html").read_text(encoding="utf-8")
    assert "held-out days and riders" not in page
    assert shell(*args, "--json") == 0
    assert json.loads(capsys.readouterr().out)["contests"]["base"]["held_out"] == "days"


def test_an_offer_to_a_rider_of_the_town(
    runs: Path, commands: list[list[str]], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """By name, on a day with rides out and back; the town's own notes are on the drivers' sheets."""
    monkeypatch.chdir(ROOT)
    args = [*command(commands, "rides", "offer"), "--runs-dir", str(runs)]
    assert shell(*args) == 0
    text = capsys.readouterr().out
    assert text.startswith("call       rider R-03, medical: Mill Lane 09:00-09:30 to Hospital ")
    assert text.split("\n")[1].startswith("offer      ")
    assert "note wheelchair" in text
    assert shell(*args, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["rider"], data["booking"], data["booked"]) == ("R-03", 17, 16)
    stops = [stop for vehicle in data["answers"]["accepted"]["vehicles"] for stop in vehicle["stops"]]
    assert sum(stop["rider"] == "R-23" for stop in stops) == 4  # out and back, on and off


def test_the_town_and_a_day_are_drawn(commands: list[list[str]], tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """Map and day with the town's names and riders; the day's file can be booked on."""
    monkeypatch.chdir(ROOT)
    assert shell(*command(commands, "rides", "city"), "--out", str(tmp_path / "city.svg")) == 0
    assert "town: 12 zones, depot Station" in capsys.readouterr().out
    args = command(commands, "rides", "day")
    assert shell(*args, "--out", str(tmp_path / "day.svg"), "--csv", str(tmp_path / "day.csv"), "--json") == 0
    rows = json.loads(capsys.readouterr().out)["requests"]
    trips = (ROOT / "examples" / "town" / "trips.csv").read_text(encoding="utf-8")
    for row in rows:
        assert f"{row['rider']},{row['from']},{row['to']},{row['purpose']}," in trips
    assert (tmp_path / "day.csv").read_text(encoding="utf-8").split("\n")[1].startswith(rows[0]["rider"])
