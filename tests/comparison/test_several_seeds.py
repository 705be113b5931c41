"""`shoal train TASK --seeds N`: one folder of runs, a mean with its interval, resumable."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import cli
from shoal.core.seeds import derived_seed
from shoal.core.statistics import interval
from shoal.runs.folder import Run

TINY = ["--steps", "2000", "--num-envs", "4", "--rollout-steps", "16", "--save-interval", "5", "--backend", "serial"]
WORDS = ["train", "CartPole-v1", "--seeds", "3", "--held-out", "4", *TINY, "--name", "three"]


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "shoal", *words],
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> str:
    out, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    return out


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, json.loads(finish(start(*WORDS, "--json", cwd=folder)))


def test_each_seed_has_a_run_and_the_mean_is_over_runs(whole: tuple[Path, dict[str, Any]]) -> None:
    """Seeds descend from the one given; each run is as if trained alone with its seed; the interval is of run means."""
    import numpy as np

    folder, found = whole
    runs = sorted((folder / "runs" / "three" / "runs").iterdir())
    assert [Run(path).config["run"]["seed"] for path in runs] == [derived_seed(0, place) for place in range(3)]
    finals = [row["final"] for row in found["runs"]]
    assert len(set(finals)) > 1
    assert found["mean"] == pytest.approx(sum(finals) / 3)
    assert [found["low"], found["high"]] == list(interval(np.array(finals)) or ())
    config = Run(runs[1]).config
    alone = shoal.train(
        "CartPole-v1", steps=2000, num_envs=4, rollout_steps=16, backend="serial", torch_threads=1,
        seed=config["run"]["seed"], runs_dir=str(folder / "alone"),
    )  # fmt: skip
    assert shoal.evaluate(alone.run, episodes=4)["mean"] == finals[1]
    other = shoal.train("CartPole-v1", steps=500, num_envs=2, runs_dir=str(folder / "alone"), backend="serial")
    compared = shoal.compare(str(folder / "runs" / "three"), str(other.run))
    assert [len(group) for group in compared.arms.values()] == [3, 1], "a folder of seeds is all of its runs"
    page = (folder / "runs/three/report.html").read_text()
    assert "3 of 3 trainings are over" in page
    assert "on average over 3 seeds, 95 % interval" in page
    assert "<svg" in page
    for path in runs:
        assert f"runs/{path.name}/report.html" in page
        assert (path / "report.html").exists()


def test_people_see_a_table_and_the_figure_to_quote(
    whole: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when nothing is left to train; `shoal runs` and `shoal report` know the folder."""
    folder, _ = whole
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "--resume", "three"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert len([line for line in out.splitlines() if "CartPole-v1-s0" in line]) == 3
    assert "on average over 3 seeds, 95 % interval" in out
    with pytest.raises(SystemExit):
        cli.main(["runs"])
    assert "CartPole-v1, 3 seeds" in capsys.readouterr().out
    (folder / "runs/three/report.html").unlink()
    with pytest.raises(SystemExit):
        cli.main(["report", "three"])
    assert (folder / "runs/three/report.html").exists()


def test_one_that_was_stopped_goes_on_to_the_same_figures(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Ctrl-C in the middle: finished trainings are kept, the others go on."""
    _, found = whole
    process = start(*WORDS, "--parallel", "1", cwd=tmp_path)
    done = tmp_path / "runs" / "three" / "done"
    end = time.monotonic() + 200
    while not (done.is_dir() and any(done.iterdir())) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 130, said
    assert "shoal train --resume" in said
    first = next(done.iterdir()).stat().st_mtime_ns
    again = json.loads(finish(start("train", "--resume", "three", "--json", cwd=tmp_path)))
    assert [row["final"] for row in again["runs"]] == [row["final"] for row in found["runs"]]
    assert min(path.stat().st_mtime_ns for path in done.iterdir()) == first


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "CartPole-v1", "--seeds", "1"], "expected --seeds of at least 2, got 1: one training has --seed"),
        (["train", "CartPole-v1", "--seeds", "many"], "expected --seeds as a whole number, got 'many'"),
        (["train", "CartPole-v1", "--seeds", "2", "--parallel", "0", "--runs-dir", "r"], "--parallel of at least 1"),
        (["train", "Nothing-v9", "--seeds", "2", "--runs-dir", "r"], "Nothing"),
        (["train", "CartPole-v1", "--seeds", "2", "--lr", "-1"], "learning"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence; nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert said in capsys.readouterr().err
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_other_flags_beside_resume_are_refused(
    whole: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its settings are those that it was begun with; a comparison is not its like."""
    monkeypatch.chdir(whole[0])
    with pytest.raises(SystemExit) as end:
        cli.main(["train", "--resume", "three", "--steps", "9000"])
    assert end.value.code == 2
    assert (
        "expected only --parallel and --import beside --resume of a folder of seeds, got --steps"
        in capsys.readouterr().err
    )
