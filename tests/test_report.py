"""The page of a run: escaped, self-contained, and with the answer at its top."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import shoal
from hostile import HOSTILE, check_harmless, spoiled
from shoal.cli import main
from shoal.config import TrainConfig, to_dict
from shoal.report import write_report
from shoal.runs import scores
from shoal.runs.folder import Run
from shoal.runs.meanings import MEANINGS
from shoal.runs.page import DARK, STYLE, Section, contrast, in_the_dark, themed
from shoal.tasks import load_all
from shoal.tasks.presets import config_for

INTERVAL = {"mean": 1.5, "low": 1.0, "high": 2.0}
SHARE = {"mean": 0.9, "low": 0.8, "high": 1.0, "episodes": 3}
CONDUCT = {
    "compliance": SHARE, "believed_compliance": SHARE, "coverage": SHARE, "wasted": SHARE,
    "compliant": 9, "violations": 1, "wasted_fixes": 2,
}  # fmt: skip
MODE = {
    **INTERVAL, "median": 1.0, "worst": 0.0, "best": 3.0, "mean_length": 7.0, "episodes": 3, "unfinished": 1,
    "returns": [0.0, 1.0, 3.0], "conduct": CONDUCT,
}  # fmt: skip
SCORES: dict[str, Any] = {
    "run": "r",
    "held_out": {
        "at": "2026-01-01T00:00:00Z", "task": "t", "epoch": 1, "seed": 0, "num_envs": 2, "skipped": ["epoch-3: bad"],
        "max_episode_steps": 500, "deterministic": MODE, "sampled": MODE, **INTERVAL, "episodes": 3,
        "replayed_alike": True,
    },
    "leaderboard": {
        "at": "2026-01-01T00:00:00Z", "simulator": "shoal", "rules": "some rules", "episodes": 2, "seed": 0,
        "sum": {**INTERVAL, "se": 0.1},
        "cells": [{"red": "bline", "horizon": 30, **INTERVAL, "median": 1.0, "worst": -9.0, "episodes": 2}],
        "published": [{"name": "somebody", "sum": -54.5, "rules": "others"}],
    },
}  # fmt: skip
POLICY = {
    "net_min": {"own": INTERVAL}, "improvement_percent": {"own": INTERVAL}, "saved_min": {"own": 22.0},
    "mean_of_ratios_percent": {"own": 3.0}, "agreed_min_per_rider": 2.0, "refusals": 1.0, "offers": 9.0,
    "acceptance_percent": 81.0, "failure_percent": {"own": 0.0}, "ride_to_direct": INTERVAL,
    "gap_closed_percent": {}, "agreed_min_by_type": {"early": 1.0, "late": None},
}  # fmt: skip
RIDES: dict[str, Any] = {
    "task": "rides", "run": "r", "runs": [{"run": "r", "epoch": 1, "futures": 0}],
    "reference": {"solver": "PyVRP", "iterations": 10, "seeds": 1},
    "contests": {"base": {
        "about": "as in training", "days": 5, "customers": 30, "vehicles": 5, "seed": 0, "iterations": 300,
        "patience": 0.05, "refusal": 1.0, "prices": ["own"], "policies": {"none": POLICY, "r": POLICY},
        "differences": {"r": {"none": {"own": INTERVAL}}},
        "groups": {"trained": {"runs": ["r", "s"], "net_min": {}, "differences": {
            "none": {"own": {**INTERVAL, "runs": [1.0, 2.0]}}}}},
    }},
}  # fmt: skip


def make(tmp_path: Path, rows: int, task: str = HOSTILE) -> Run:
    run = Run.create(tmp_path, "r", to_dict(TrainConfig(task=task)), f"shoal train {HOSTILE}", "task")
    for epoch in range(1, rows + 1):
        run.append(
            {
                "epoch": epoch,
                "steps": 10_000 * epoch,
                "episodes": epoch,
                "return/mean_100": None if epoch == 1 else 1.0 * epoch,
            }
        )
    run.note({"event": "restart", "text": HOSTILE})
    run.note({"event": "inexact", "text": HOSTILE})
    run.set_status("failed", HOSTILE)
    return run


def test_names_and_errors_are_text_not_markup(tmp_path: Path) -> None:
    """No script, image or handler from data becomes an element; nothing remote is loaded."""
    with make(tmp_path, 5) as run:
        page = write_report(run).read_text()
    check_harmless(page)
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("file", "task"),
    [
        *itertools.product(["config.json", "evaluation.json", "metrics.jsonl"], ["rides", "other"]),
        ("machine.json", "other"),  # of these a task makes nothing
        ("code.json", "other"),
        ("status.json", "other"),
    ],
)
def test_no_value_of_any_file_becomes_markup(tmp_path: Path, file: str, task: str) -> None:
    """Every value and every name in every file, one at a time: the page is harmless, or refused."""
    with make(tmp_path, 2, task) as run:
        good = RIDES if task == "rides" else SCORES
        (run.path / "evaluation.json").write_text(json.dumps(good))
        whole = write_report(run).read_text()
        check_harmless(whole)
        known = {whole}  # most pages do not show the value
        path = run.path / file
        lines = path.read_text().splitlines() if file.endswith("l") else [path.read_text()]
        written = 0
        for bad in spoiled(json.loads(lines[-1])):
            path.write_text("\n".join([*lines[:-1], json.dumps(bad)]) + "\n")
            try:
                page = write_report(run).read_text()
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            written += 1
            if page not in known:
                check_harmless(page)
                known.add(page)
        assert written > 3
        assert len(known) > 1


def test_no_score_of_a_leaderboard_becomes_markup(tmp_path: Path) -> None:
    """The sections that a task brings are held to the same."""
    with make(tmp_path, 0, "cage2") as run:
        written = 0
        for bad in spoiled(SCORES):
            (run.path / "evaluation.json").write_text(json.dumps(bad))
            try:
                page = write_report(run).read_text()
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
            written += 1
            check_harmless(page)
        assert written > 3


def test_a_section_that_fails_is_named_in_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the page is there, and the error is text."""

    def broken(self: object, run: Run) -> list[Section]:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("shoal.cage2.task.Cage2Task.sections", broken)
    with make(tmp_path, 1, "cage2") as run:
        page = write_report(run).read_text()
    check_harmless(page)
    assert "This section could not be made: RuntimeError" in page
    assert "Last epoch" in page


def test_hostile_names_in_pictures_are_text(tmp_path: Path) -> None:
    """A picture of a file is an image: whatever it holds cannot run."""
    with make(tmp_path, 2, "rides") as run:
        (run.path / "evaluation.json").write_text(json.dumps(RIDES))
        (run.figures / "rides-pareto.svg").write_text(f"<svg onload=alert(1)>{HOSTILE}</svg>")
        check_harmless(write_report(run).read_text())


def test_a_run_without_epochs_has_a_page(tmp_path: Path) -> None:
    """A run that was killed before its first epoch can be looked at."""
    with make(tmp_path, 0) as run:
        assert "No epoch has been recorded yet" in write_report(run).read_text()


def test_the_same_run_gives_the_same_page(tmp_path: Path) -> None:
    """It carries no date and no random names: twice the same bytes."""
    with make(tmp_path, 3) as run:
        page = write_report(run).read_text()
        assert write_report(run).read_text() == page


def test_the_page_opens_with_the_answer(tmp_path: Path) -> None:
    """Without a score it names the command; with one it is a sentence with the interval and the order's compliance."""
    with make(tmp_path, 2, "cage2") as run:
        answer = _answer(write_report(run).read_text())
        assert "shoal evaluate r" in answer
        (run.path / "evaluation.json").write_text(json.dumps(SCORES))
        page = write_report(run).read_text()
    answer = _answer(page)
    assert "3 episodes that it has never seen" in answer
    assert "1.5 on average, 95 % interval 1 to 2" in answer
    assert "(epoch 1 of 2)" in answer  # training went on
    assert "Under its order, means over episodes: compliance 90.0 % [80.0, 100.0]" in answer
    assert "its sum is 1.50, 95 % interval 1.00 to 2.00" in answer
    assert "a newer checkpoint is damaged: epoch-3: bad" in page
    assert "somebody" in page
    assert "20,000" in page
    assert "environment steps done" in page  # what "steps" means
    links = re.findall(r"href='#([^']+)'", page)
    assert "training" in links
    assert all(f"id='{link}'" in page for link in links)


def test_the_page_of_rides_opens_with_what_an_operator_wants(tmp_path: Path) -> None:
    """Minutes, riders asked, share that agrees, who is turned away; rows in the console's order, no empty column."""
    better = {**POLICY, "net_min": {"own": {**INTERVAL, "mean": 9.0}}, "improvement_percent": {"own": INTERVAL}}
    results = json.loads(json.dumps(RIDES))
    results["contests"]["base"]["policies"] = {"r": better, "none": POLICY}
    with make(tmp_path, 2, "rides") as run:
        (run.path / "evaluation.json").write_text(json.dumps(results))
        page = write_report(run).read_text()
    assert _answer(page).startswith(
        "Negotiating saves 22 minutes of driving a day (1.5 %), asks 9 of 30 riders, 81 % agree, nobody is turned away."
    )
    assert "gap closed" not in page
    assert page.index("<td>none</td>") < page.index("<td>r</td>")
    assert "too narrow for so few" in page


def _answer(page: str) -> str:
    found = re.search(r'<p class="answer">(.*?)</p>', page, re.S)
    assert found
    return re.sub(r"<[^>]+>", "", found[1])


def test_what_is_said_of_reproducing_a_run_is_known(tmp_path: Path) -> None:
    """An environment that ignores its seed is not called reproducible: a replayed episode decides."""
    with make(tmp_path, 1, "other") as run:
        (run.path / "events.jsonl").write_bytes(b"")
        assert "no episode was played twice" in write_report(run).read_text()
        for alike, words in ((True, "a held-out episode played twice went the same way"), (False, "not reproducible")):
            held_out = {**SCORES["held_out"], "replayed_alike": alike}
            (run.path / "evaluation.json").write_text(json.dumps({"held_out": held_out}))
            assert words in write_report(run).read_text()


def test_charts_are_apart_and_turn_dark(tmp_path: Path) -> None:
    """One picture for each curve, so that a phone can stack them, and no colour that stays as it is in the dark."""
    with make(tmp_path, 3) as run:
        page = write_report(run).read_text()
    charts = page[page.index("<div class='charts'") : page.index("<script>")]
    assert charts.count("<svg ") == 1  # the only curve that these rows have values of
    assert not re.search(r"(fill|stroke)[:=] ?'?#", charts)
    assert "prefers-color-scheme" in page


def test_colours_of_the_page_can_be_seen() -> None:
    """Every series and word has enough contrast with its page, light and dark; no colour is in one of them only."""
    schemes = re.findall(r":root \{([^}]*)\}", re.sub(r"/\*.*?\*/", "", STYLE))
    light, dark = (dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6})", scheme)) for scheme in schemes)
    assert set(light) == set(dark)
    for scheme in (light, dark):
        for name in (*(f"s{place}" for place in range(8)), "ink", "soft", "bad", "good", "link"):
            assert contrast(scheme[name], scheme["page"]) >= 4.5, (name, scheme[name])
        assert contrast(scheme["blue"], scheme["none"]) >= 4.5
        assert contrast(scheme["red"], scheme["held"]) >= 3.0
        assert contrast(scheme["blue"], scheme["user"]) >= 3.0


def test_the_page_says_what_is_unusual_and_where_the_time_went(tmp_path: Path) -> None:
    """Options that differ from the task's own, and seconds by part."""
    run = Run.create(tmp_path, "r", to_dict(config_for("CartPole-v1", gamma=0.5)), "shoal train", "CartPole-v1")
    with run:
        for epoch in (1, 2):
            run.append({
                "epoch": epoch, "steps": epoch, "return/mean_100": 1.0, "time/collect_s": 4.0, "time/update_s": 2.0,
                "time/environment_s": 3.0, "time/elapsed_s": 8.0 * epoch, "time/cpu_s": 1.0,
            })  # fmt: skip
        page = write_report(run).read_text()
    section = page[page.index("id='settings-that-differ") :]
    assert re.findall(r"<td>gamma</td><td class=wide>0.5</td><td class=wide>0.98</td>", section)
    assert section[: section.index("</section>")].count("<tr>") == 2  # the head, and gamma
    for words in ("environment: 6.0 s, 38 %", "updating: 4.0 s, 25 %", "other: 6.0 s, 38 %"):
        assert words in page


def test_lines_and_words_are_readable_in_the_dark() -> None:
    """Every strong colour of the figures has enough contrast with a dark page, every tint little."""
    from shoal.cage2 import figures as episode
    from shoal.rides.figures import day as rides_day
    from shoal.runs import curves
    from shoal.search import figures as way

    strong = [curves.INK, curves.LABEL, way.FIRST, way.LAST]
    strong += [*rides_day.VEHICLES, rides_day.RING, rides_day.PICKUP]
    strong += [rides_day.DROPOFF, episode.BLUE, episode.RED, "#000000", "#1d2733"]
    for colour in strong:
        assert contrast(in_the_dark(colour), DARK) >= 3.0, colour
    assert contrast(in_the_dark(episode.RED), in_the_dark(episode.ACCESS_COLOURS[2])) >= 2.0
    assert contrast(in_the_dark(way.BAND), DARK) < 3.0
    assert "fill: var(--cd1495b, #d1495b)" in themed('<svg width="1"><path style="fill: #d1495b"/></svg>')


def test_every_metric_of_the_documentation_is_explained() -> None:
    """The page explains what docs/metrics.md lists, and no more (but for workflow/: docs/workflows.md)."""
    text = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
    listed = set()
    for line in text.splitlines():
        if line.startswith("| `"):
            names = re.findall(r"`([^`]+)`", line.split("|")[1])
            group = names[0].rpartition("/")[0]
            listed |= {name if "/" in name or not group else f"{group}/{name}" for name in names}
    listed -= {"info/NAME", "loss/NAME"}  # names that an environment or a callback chooses
    known = dict(MEANINGS)
    for task in load_all()[0]:
        known |= task.meanings
    assert listed - set(known) == set()
    assert {name for name in known if not name.startswith("workflow/")} - listed == set()


def test_evaluate_writes_the_score_on_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the command line: the score is printed, kept, and the page opens with it."""
    result = shoal.train(
        "CartPole-v1", steps=64, num_envs=2, rollout_steps=16, minibatch_size=32, backend="serial",
        runs_dir=str(tmp_path), name="c",
    )  # fmt: skip
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "c", "--episodes", "3", "--runs-dir", str(tmp_path)])
    assert not end.value.code
    assert "report " in capsys.readouterr().out
    assert "3 episodes that it has never seen" in _answer((Path(result.run) / "report.html").read_text())
    assert scores.kept(Run.open("c", tmp_path))["held_out"]["episodes"] == 3


def test_a_folder_that_is_neither_a_run_nor_a_search_is_refused(tmp_path: Path) -> None:
    """The error names the folder and what was expected."""
    with make(tmp_path, 1) as run:
        (run.path / "config.json").write_text("{}")
        with pytest.raises(ValueError, match="expected the folder of a training run, got neither"):
            write_report(run)
    shutil.rmtree(run.path)
