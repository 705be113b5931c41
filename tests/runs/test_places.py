"""Where a run's files lie, whatever happens around it while it trains: another working directory, a deleted folder."""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import shoal
from shoal.runs.folder import Run

TINY = {"num_envs": 2, "rollout_steps": 16, "backend": "serial", "hidden": (8,), "minibatch_size": 16}


def test_an_environment_that_changes_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative --runs-dir means the folder where the training began, all of it."""
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    class Wanderer(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, **options: Any) -> Any:
            os.chdir(elsewhere)
            return super().reset(**options)

    result = shoal.train("Wanderer", env=lambda: Wanderer(gym.make("CartPole-v1")), runs_dir="runs", name="r",
                         epochs=2, stream=io.StringIO(), **TINY)  # fmt: skip
    assert list(elsewhere.iterdir()) == []
    run = tmp_path / "runs" / "r"
    assert Path(result.run) == run
    assert {"config.json", "metrics.jsonl", "report.html", "status.json"} <= {path.name for path in run.iterdir()}
    assert list((run / "checkpoints").iterdir())


def test_new_and_resumed_runs_name_their_folder_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header shows the path as one would type it, whichever way the run was begun."""
    monkeypatch.chdir(tmp_path)
    said = [io.StringIO(), io.StringIO()]
    shoal.train("CartPole-v1", name="r", epochs=1, stream=said[0], **TINY)
    shoal.train(resume="r", epochs=2, stream=said[1])
    assert [text.getvalue().splitlines()[0] for text in said] == ["run runs/r"] * 2


def test_a_file_in_place_of_the_runs_folder(tmp_path: Path) -> None:
    """It is named, with the flag to change."""
    (tmp_path / "README.md").write_text("text")
    with pytest.raises(NotADirectoryError, match=r"--runs-dir.*README\.md is a file"):
        Run.create(tmp_path / "README.md", "r", {}, "shoal train X", "X")


def test_a_run_folder_deleted_while_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, the folder is made again, and in the end it can be resumed and says the truth."""
    from shoal.learn.learner import Learner

    collect = Learner.collect

    def deleting(learner: Learner) -> Any:
        if learner.epoch == 3:
            shutil.rmtree(tmp_path / "runs")
        return collect(learner)

    monkeypatch.setattr(Learner, "collect", deleting)
    said, runs = io.StringIO(), str(tmp_path / "runs")
    result = shoal.train("CartPole-v1", runs_dir=runs, name="r", epochs=6, stream=said, **TINY)
    assert result.status == "finished"
    assert "was deleted or moved while the run was writing to it" in said.getvalue()
    run = Run.open("r", tmp_path / "runs")
    assert run.status == "finished"
    assert [row["epoch"] for row in run.metrics()] == [4, 5, 6]
    assert any(event["event"] == "folder made again" for event in run.events())
    assert shoal.train(resume="r", runs_dir=runs, epochs=7, stream=io.StringIO()).epochs == 7


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"device": "mps"}, RuntimeError),
        ({"backend": "compiled"}, ValueError),
        ({"env": lambda: 1 / 0}, Exception),
        ({"env": lambda: (_ for _ in ()).throw(KeyboardInterrupt)}, BaseException),
    ],
    ids=["device", "backend", "environment", "ctrl-c"],
)
def test_a_start_that_is_refused_leaves_no_folder(options: Any, error: type[BaseException], tmp_path: Path) -> None:
    """Only what was trained is kept: a wrong flag, a broken environment and an early Ctrl-C leave nothing."""
    with pytest.raises(error):
        shoal.train("CartPole-v1", runs_dir=str(tmp_path), stream=io.StringIO(), **{**TINY, **options})
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_breaks_in_the_first_reset_leaves_no_folder(tmp_path: Path) -> None:
    """Here the environments are built, and the folder is there already."""

    class Broken(gym.Wrapper[Any, Any, Any, Any]):
        def reset(self, **options: Any) -> Any:
            raise KeyError("speed")

    with pytest.raises(Exception, match="speed"):
        shoal.train(
            "Broken", env=lambda: Broken(gym.make("CartPole-v1")), runs_dir=str(tmp_path), stream=io.StringIO(), **TINY
        )
    assert list(tmp_path.iterdir()) == []


def test_the_end_is_said_from_python_too(tmp_path: Path) -> None:
    """After the table: why it ended and how far it came, with digits enough for small returns."""

    class Small(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, 1e-4, *rest

    said = io.StringIO()
    result = shoal.train("Small", env=lambda: Small(gym.make("CartPole-v1")), runs_dir=str(tmp_path), epochs=8,
                         stream=said, **TINY)  # fmt: skip
    assert result.mean_return is not None
    assert 0 < result.mean_return < 0.05
    assert said.getvalue().splitlines()[-2:] == result.lines()
    assert result.lines()[0] == "finished: budget of 8 epochs spent"
    shown = result.lines()[1].partition("mean return of the last 100: ")[2].partition(";")[0]
    assert float(shown) == pytest.approx(result.mean_return, rel=1e-3)
