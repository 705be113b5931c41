"""The commands of rides, from the command line to the run's page."""

from __future__ import annotations

import html
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

from shoal.cli import main
from shoal.rides.contest.page import PICTURES, section
from shoal.rides.desk.offer import Booked
from shoal.rides.policies.learned import Negotiator
from shoal.runs.folder import Run
from shoal.training import train

QUICK = ["--oracle-iterations", "5", "--threads", "1"]


def run_cli(*args: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        main(list(args))
    return int(exit_.value.code or 0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Two short runs that differ in their seeds."""
    root = tmp_path_factory.mktemp("runs")
    for seed in (1, 2):
        kwargs = json.dumps({"customers": 8, "start": "myopic", "iterations": 5})
        options: dict[str, Any] = {"num_envs": 2, "episodes": 4, "policy_epochs": 1, "value_epochs": 1}
        train("rides", env_kwargs=kwargs, seed=seed, name=f"r{seed}", runs_dir=str(root), **options)
    return root


def test_baselines_are_evaluated_alone(capsys: Any) -> None:
    """`shoal evaluate rides --policy ...` prints one table with every policy and none."""
    args = ["--policy", "max-change", "random", "--days", "3", "--customers", "8", "--no-reference", *QUICK]
    assert run_cli("evaluate", "rides", *args) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in ("none", "max-change", "random", "3 held-out days", "95 % interval"))


def test_the_same_as_json_with_a_shift(capsys: Any) -> None:
    """--json is one object; --shift names the world that was played."""
    args = ["--policy", "max-change", "--days", "2", "--no-reference", "--shift", "rule", "--json", *QUICK]
    assert run_cli("evaluate", "rides", "--customers", "8", *args) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["reference"] is None
    assert list(result["contests"]) == ["rule"]
    assert result["contests"]["rule"]["policies"]["max-change"]["net_min"]["own"]["mean"] is not None


def test_a_run_is_evaluated_against_the_baselines_and_drawn(folder: Path, capsys: Any) -> None:
    """Both runs pooled, both prices, pictures and tables on the page, prices remembered beside the runs."""
    args = ["--days", "2", "--reference-iterations", "20", "--reference-seeds", "1", *QUICK]
    assert run_cli("evaluate", "r1", "r2", "--runs-dir", str(folder), *args) == 0
    text = capsys.readouterr().out
    for word in (
        "r1",
        "r2",
        "max-change",
        "myopic",
        "lookahead",
        "trained (2 runs)",
        "by the reference",
        "report",
        "minutes of driving a day",
    ):
        assert word in text
    result = json.loads((folder / "r1" / "evaluation.json").read_text())
    assert result["run"] == "r1"
    assert len(result["contests"]["base"]["groups"]["trained"]["differences"]["myopic"]["reference"]["runs"]) == 2
    page = (folder / "r1" / "report.html").read_text()
    assert "Evaluation on held-out days" in page
    assert page.count("data:image/svg+xml;base64,") == 4
    assert all(html.escape(title) in page for title in PICTURES.values())
    assert (folder / "rides-reference.cache").stat().st_size > 0


def test_a_long_evaluation_says_how_long_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """After the first days priced by the reference, for all policies, on stderr."""
    from shoal.runs import pace

    monkeypatch.setattr(pace, "KNOWN_AFTER_S", 0.0)
    monkeypatch.setattr(pace, "WORTH_SAYING_S", 0.0)
    args = ["--policy", "myopic", "--days", "3", "--customers", "8", "--reference-iterations", "1"]
    monkeypatch.chdir(tmp_path)  # prices are kept in ./runs
    assert run_cli("evaluate", "rides", *args, "--reference-seeds", "1", *QUICK) == 0
    assert "of 6 days priced by the reference, about 0:" in capsys.readouterr().err


def test_a_page_without_evaluation_says_how_to_get_one(folder: Path) -> None:
    """The page of a run that nobody evaluated names the command; so does one with a file that is no evaluation."""
    path = folder / "r2" / "evaluation.json"
    path.unlink(missing_ok=True)
    assert "shoal evaluate r2" in section(Run.open("r2", folder), "--days 60")
    path.write_text('{"contests": {"base": 1}, "runs": []}')
    assert "evaluate the run again" in section(Run.open("r2", folder), "--days 60")


def test_a_run_acts_on_longer_days(folder: Path, capsys: Any) -> None:
    """The network reads a set: the same weights play days of other lengths and fleets."""
    args = ["--days", "1", "--no-reference", "--shift", "45", "--json", "--oracle-iterations", "2", "--threads", "1"]
    assert run_cli("evaluate", "r1", "--runs-dir", str(folder), *args) == 0
    result = json.loads(capsys.readouterr().out)["contests"]["45"]
    assert result["customers"] == 45
    assert "r1" in result["policies"]
    assert (
        run_cli("evaluate", "r1", "--runs-dir", str(folder), *[("rule" if arg == "45" else arg) for arg in args]) == 0
    )
    assert set(json.loads((folder / "r1" / "evaluation.json").read_text())["contests"]) == {"45", "rule"}


def test_runs_of_different_options_are_not_pooled(folder: Path, capsys: Any) -> None:
    """What differs is named."""
    kwargs = json.dumps({"customers": 9, "start": "none", "iterations": 5})
    train("rides", env_kwargs=kwargs, num_envs=2, episodes=2, name="other", runs_dir=str(folder), value_epochs=1)
    assert run_cli("evaluate", "r1", "other", "--runs-dir", str(folder), "--days", "1") == 2
    assert "customers 8 and 9" in capsys.readouterr().err


def test_an_offer_for_a_caller(folder: Path, tmp_path: Path, capsys: Any) -> None:
    """From a day's file to the offer, in words and as JSON, with a picture."""
    day = tmp_path / "day.csv"
    assert run_cli("rides", "day", "--csv", str(day), "--out", str(tmp_path / "day.svg"), "--split", "held_out") == 0
    capsys.readouterr()
    where = ["--runs-dir", str(folder), "--day", str(day)]
    picture = tmp_path / "offer.svg"
    assert run_cli("rides", "offer", "r1", *where, "--row", "6", "--picture", str(picture)) == 0
    text = capsys.readouterr().out
    assert "4 booked so far" in text
    assert "answered in" in text
    assert picture.read_text().count("<svg") == 1
    call = "rider=299, pickup=Mission 2, dropoff=Noe Valley 1, purpose=leisure, pickup_open=9:00"
    assert run_cli("rides", "offer", "r1", *where, "--request", call, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["booked"], data["rider"], len(data["menu"])) == (30, 299, 16)
    assert data["booking"] == 31
    driven = [stop["booking"] for vehicle in data["answers"]["accepted"]["vehicles"] for stop in vehicle["stops"]]
    assert driven.count(31) == 2


def test_a_trained_run_offers_in_less_than_50_ms(folder: Path) -> None:
    """Negotiator.offer on full days, each planned from its beginning: CPU time, median of 7."""
    agent = Negotiator("r1", runs_dir=folder)
    source = agent.desk().world.days("held_out")
    spent = []
    for seed in range(8):
        day = source.draw(seed)
        booked = Booked.of(day).until(7)
        begin = time.process_time()
        offer = agent.offer(booked, day.requests[7], int(day.rider[7]), int(day.purpose[7]))
        spent.append(time.process_time() - begin)
        assert 0 <= offer.offer < 16
    assert median(spent[1:]) < 0.05


def test_the_negotiator_acts_as_the_run_would(folder: Path) -> None:
    """Greedy, from the checkpoint's own network and flexibility model."""
    agent = Negotiator("r1", runs_dir=folder)
    assert {"theta", "evidence", "buffer"} <= set(agent.flexibility)
    entrant = agent.entrant()
    assert entrant.changes["start"] == "myopic"
    from shoal.rides.env import RidesVectorEnv

    env = RidesVectorEnv(3, agent.options)
    observations, _ = env.reset(seed=0)
    leaves = agent.policy.agent.features.layout.take_apart(observations)
    expected = agent.policy.act([np.asarray(leaf) for leaf in leaves], True)
    assert agent.act(env, observations).tolist() == expected.tolist()
    env.close()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rides", "fly"], "expected shoal rides city | day | offer | fit | oracle, got 'fly'"),
        (["rides", "city", "--out", "map.txt"], "expected a file that ends in .png, .svg or .pdf, got 'map.txt'"),
        (["rides", "city", "--city", "nowhere.csv"], "nowhere.csv"),
        (["rides", "day", "--customers", "301"], "expected 1 to 300 customers a day"),
        (["rides", "day", "--seed", "-1"], "expected --seed as a whole number of at least 0, got -1"),
        (["rides", "city", "--zones", "z.csv"], "expected --city beside --zones z.csv"),
        (["rides", "day", "--trips", "t.csv"], "expected --riders beside --trips t.csv"),
        (["train", "rides", "--zones", "z.csv"], "expected --city beside --zones z.csv"),
        (["evaluate", "rides", "--policy", "clever"], "expected a policy of none, random"),
        (["evaluate", "rides", "--days", "0"], "expected --days"),
        (["evaluate", "rides", "--policy"], "expected at least one policy after --policy"),
        (["evaluate", "rides", "--population", "40", "--shift", "45"], "expected 1 to 40 customers a day"),
        (["evaluate", "rides", "--shift", "warm", "--no-reference"], "expected --shift of cold, 45"),
        (["rides", "offer", "r1"], "expected the call as --request or as --row"),
    ],
)
def test_wrong_usage_says_what_was_expected(args: list[str], message: str, capsys: Any, tmp_path: Path) -> None:
    """Exit code 2 and one line."""
    assert run_cli(*args) == 2
    assert message in capsys.readouterr().err


def test_the_city_is_drawn_and_measured(tmp_path: Path, capsys: Any) -> None:
    """`shoal rides city` writes a map and says where."""
    out = tmp_path / "city.svg"
    assert run_cli("rides", "city", "--out", str(out), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["zones"], found["picture"]) == (207, str(out))
    assert out.read_text().count("<svg") == 1


def test_what_a_files_reader_notes_is_one_plain_line(tmp_path: Path, capsys: Any) -> None:
    """A way round that is shorter is told without a line of source code, and the picture that nobody measured too."""
    matrix = tmp_path / "m.csv"
    matrix.write_text("0,200,900\n250,0,300\n410,310,0\n")
    assert run_cli("rides", "city", "--city", str(matrix), "--out", str(tmp_path / "m.svg")) == 0
    out = capsys.readouterr()
    assert out.err.startswith(f"shoal: note: {matrix}: 1 of 9 travel times are longer than a detour")
    assert out.err.count("\n") == 1
    assert "no coordinates were given" in out.out
