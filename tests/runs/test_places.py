"""Where a run's files lie, whatever happens around it while it trains: another working directory, a deleted folder."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import shoal
from shoal.runs.store import Run

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
