"""A tracker of one's own, from the shell and from Python: it sees every row, and it survives a resume."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

import shoal
from test_callbacks import FLAGS, assert_same, events, rows, shell, trained

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "own_tracker.py"
MORE = """
class FailsLater(shoal.Tracker):
    def log(self, row):
        raise OSError("the disk is full")
class FailsAtOnce(shoal.Tracker):
    def __init__(self, run, config):
        raise OSError("no server")
class NoTracker:
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The example as a module in the folder that the person is in."""
    name = f"own_tracker_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(EXAMPLE.read_text() + MORE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield name
    sys.modules.pop(name, None)


def table(run: str) -> list[tuple[int, float]]:
    with (Path(run) / "returns.csv").open(newline="") as file:
        return [(int(row["steps"]), float(row["return/mean_100"])) for row in csv.DictReader(file)]


def logged(run: str) -> list[tuple[int, float]]:
    return [(row["steps"], row["return/mean_100"]) for row in rows(run)]


def test_from_the_shell_and_after_a_resume(module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The file holds every epoch once. Who resumes names the module again, and no bit of the training depends on it."""
    place = f"{module}:ReturnsCsv"
    same = ["train", "CartPole-v1", *FLAGS, "--rollout-steps=64", "--lr-schedule=constant"]
    shell(*same, "--epochs", "4", "--name", "bare")
    shell(*same, "--epochs", "2", "--name", "run", "--track", place)
    assert json.loads((tmp_path / "runs/run/config.json").read_text())["run"]["track"] == place
    assert table("runs/run") == logged("runs/run")
    assert len(table("runs/run")) == 2

    (tmp_path / "runs/run/returns.csv").unlink()
    shell("evaluate", "run", "--episodes", "2", "--num-envs", "1")  # needs no tracker, so imports none
    del sys.modules[module]
    capfd.readouterr()
    shell("train", "--resume", "run", "--epochs", "4", code=2)
    assert f"names modules to import: {module}" in capfd.readouterr().err
    shell("train", "--resume", "run", "--epochs", "4", "--import", module)
    assert table("runs/run") == logged("runs/run")
    assert len(table("runs/run")) == 4
    assert_same("runs/bare", "runs/run")


def test_another_tracker_for_the_rest(module: str, tmp_path: Path) -> None:
    """Who types it when resuming has named its module, from the shell and from Python."""
    for name, resume in (
        ("a", lambda track: shell("train", "--resume", "a", "--epochs", "8", "--track", track)),
        ("b", lambda track: shoal.train(resume="runs/b", epochs=8, track=track)),
    ):
        shell("train", "CartPole-v1", *FLAGS, "--rollout-steps=64", "--epochs", "4", "--name", name)
        sys.modules.pop(module, None)
        resume(f"{module}:ReturnsCsv")
        assert table(f"runs/{name}") == logged(f"runs/{name}")
        assert len(table(f"runs/{name}")) == 8


def test_a_class_of_the_script_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook has no module to name."""

    class Counts(shoal.Tracker):
        seen: list[int] = []  # noqa: RUF012

        def log(self, row: dict) -> None:
            self.seen.append(row["epoch"])

    monkeypatch.setattr(sys.modules["__main__"], "Counts", Counts, raising=False)
    run = trained(tmp_path, "run", track="__main__:Counts").run
    trained(tmp_path, "run", resume=run, epochs=8)
    assert Counts.seen == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_tracker_that_fails_is_switched_off(module: str, tmp_path: Path) -> None:
    """The training goes on, and the run says which tracker failed and why."""
    sys.path.append(str(tmp_path))
    run = trained(tmp_path / "runs", "run", track=f"{module}:FailsLater").run
    (note,) = [event for event in events(run) if event.get("event") == "tracker_failed"]
    assert f"tracker {module}:FailsLater is switched off from here: OSError: the disk is full" in note["message"]
    assert len(rows(run)) == 6


@pytest.mark.parametrize(
    ("place", "said", "code"),
    [
        ("{}", "unknown tracker", 2),
        ("{}:Nothing", "has no Nothing", 2),
        ("{}:NoTracker", "derived from shoal.Tracker", 2),
        ("no_such_module_anywhere:Class", "cannot import no_such_module_anywhere", 2),
        ("{}:FailsAtOnce", "FailsAtOnce failed when it was made: OSError: no server", 1),
    ],
)
def test_what_is_no_tracker_leaves_no_run(
    module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], place: str, said: str, code: int
) -> None:
    """In a sentence."""
    shell("train", "CartPole-v1", *FLAGS, "--epochs", "6", "--track", place.format(module), code=code)
    assert said in capfd.readouterr().err
    assert not list((tmp_path / "runs").glob("*"))


def test_a_callback_knows_the_folder_of_its_run(tmp_path: Path) -> None:
    """So that a file of its own lies beside the metrics."""

    class Writes(shoal.Callback):
        def on_end(self, training) -> None:
            (training.folder / "own.txt").write_text(str(training.epoch))

    result = trained(tmp_path, "run", callbacks=[Writes()])
    assert (Path(result.run) / "own.txt").read_text() == "6"


def test_where_at_wandb_is_only_for_runs_that_go_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """W&B's variables may be set for all runs of a machine; a flag means this run, also when it resumes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_PROJECT", "all-of-mine")
    shell("train", "CartPole-v1", *FLAGS, "--epochs", "2", "--name", "run")
    capsys.readouterr()
    shell("train", "--resume", "run", "--epochs", "4", "--wandb-group", "g", code=2)
    assert "--wandb-group g is for runs that W&B records: add --track wandb" in capsys.readouterr().err
    saved = tmp_path / "runs" / "run" / "config.json"
    config = json.loads(saved.read_text())
    saved.write_text(json.dumps(config | {"run": config["run"] | {"wandb_group": "g"}}))  # a run of an earlier version
    shell("train", "--resume", "run", "--epochs", "4")
    with pytest.raises(ValueError, match="wandb_project= x is for runs that W&B records: add track= wandb"):
        shoal.train("CartPole-v1", epochs=1, wandb_project="x")
