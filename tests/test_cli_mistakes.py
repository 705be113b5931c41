"""What people get wrong on the command line: one sentence that helps, never a traceback; and what they may write."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import shoal
from shoal import cli
from shoal.cli import errors
from shoal.runs import folder as store
from shoal.runs.folder import Run

SMALL = ["--num-envs", "2", "--rollout-steps", "16", "--backend", "serial", "--minibatch-size", "16", "--hidden", "8"]
SOURCE = str(Path(shoal.__file__).parents[1])


def run(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(args))
    assert (ended.value.code or 0) == code


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small run of 64 steps."""
    root = tmp_path_factory.mktemp("runs")
    run("train", "CartPole-v1", *SMALL, "--steps", "64", "--runs-dir", str(root), "--name", "done")
    return root


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """Everything printed since the last look, with no traceback in it."""
    text = "".join(capsys.readouterr())
    assert "Traceback" not in text
    return text


# -- one place for errors ----------------------------------------------------------------------------


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read-only file system is named, with the flag to change; nothing is left."""

    def refuse(*_: Any) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / "x"))

    monkeypatch.setattr(store, "_claim", refuse)
    run("train", "CartPole-v1", *SMALL, "--runs-dir", str(tmp_path), code=2)
    text = said(capsys)
    assert f"{tmp_path / 'x'}: Read-only file system" in text
    assert "--runs-dir" in text


@pytest.mark.parametrize(
    "args", [["train", "--help"], ["tasks"], ["cage2", "play", "decoy-first"]], ids=["help", "tasks", "play"]
)
def test_a_reader_that_leaves_ends_quietly(args: list[str]) -> None:
    """`shoal ... | head -0`: no traceback, and the exit code of a program that SIGPIPE ends."""
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "shoal", *args],
        env={**os.environ, "PYTHONPATH": SOURCE}, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


@pytest.mark.parametrize(
    ("name", "content"), [("config.json", "{"), ("config.json", "[]"), ("status.json", "{"), ("machine.json", "x")]
)
def test_damaged_json_is_named(name: str, content: str, runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which file, and what is wrong with it."""
    path = runs_dir / "done" / name
    whole = path.read_text()
    path.write_text(content)
    try:
        capsys.readouterr()
        run("report", str(runs_dir / "done"), code=2)
        assert f"{path} is damaged" in said(capsys)
    finally:
        path.write_text(whole)


def test_a_file_that_lacks_a_part(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file, what was expected and what came."""
    path = runs_dir / "done" / "config.json"
    whole = path.read_text()
    path.write_text('{"task": "CartPole-v1"}')
    try:
        capsys.readouterr()
        run("report", str(runs_dir / "done"), code=2)
        assert f"{path} is damaged: expected vector as an object, it is missing" in said(capsys)
    finally:
        path.write_text(whole)


def test_what_nobody_foresaw(
    runs_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a sentence too: what it was, where, and how to see more."""

    def broken(run: object) -> None:
        raise KeyError("vector")

    monkeypatch.setattr("shoal.report.settings_of", broken)
    capsys.readouterr()
    run("report", str(runs_dir / "done"), code=1)
    text = said(capsys)
    assert "unexpected KeyError: 'vector' (shoal/report.py, line" in text
    assert "SHOAL_DEBUG=1" in text
    monkeypatch.setenv("SHOAL_DEBUG", "1")
    run("report", str(runs_dir / "done"), code=1)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_missing_package_names_the_extra() -> None:
    """Also where the import fails by itself, deep in a command."""
    error = ModuleNotFoundError("No module named 'wandb'", name="wandb")
    assert errors.sentence(error) == ("No module named 'wandb': pip install \"shoal[wandb]\"", 2)


def test_wandb_without_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Says how to log in or do without, and leaves no run folder."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("HOME", str(tmp_path))  # no ~/.netrc
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    run("train", "CartPole-v1", *SMALL, "--track", "wandb", "--runs-dir", str(tmp_path / "runs"), code=1)
    text = said(capsys)
    assert "wandb login" in text
    assert "WANDB_MODE=offline" in text
    assert list((tmp_path / "runs").iterdir()) == []


class Speeding(gym.Env[Any, Any]):
    """An environment with a bug."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return {}["speed"]


def test_a_bug_of_the_environment_shows_its_own_frames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line that broke, where, and not shoal's and Gymnasium's frames around it."""
    gym.register("Speeding-v0", entry_point=Speeding)
    try:
        run("train", "Speeding-v0", *SMALL, "--runs-dir", str(tmp_path), code=1)
    finally:
        del gym.registry["Speeding-v0"]
    text = said(capsys)
    assert "KeyError in step: 'speed'" in text
    assert 'return {}["speed"]' in text
    assert "site-packages" not in text
    assert "shoal/vector" not in text


def test_warnings_are_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    """No path of a source file, no line of code."""
    import warnings

    assert errors.guarded(lambda: warnings.warn("the disk is slow", stacklevel=1) or 0) == 0
    assert said(capsys) == "shoal: warning: the disk is slow\n"


def test_ctrl_c_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While backends are measured or libraries load: a sentence, exit code 130, no folder."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["shoal.training"], "make_envs", interrupted)
    run("train", "CartPole-v1", *SMALL, "--runs-dir", str(tmp_path), code=130)
    assert "stopped by Ctrl-C before the training began: no run folder is kept" in said(capsys)
    assert list(tmp_path.iterdir()) == []


# -- what people type --------------------------------------------------------------------------------


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    """1e6, 100k, 2M, lists with commas, American spellings and the names of other libraries."""
    flags = [
        "--steps=0.064k",
        "--seed",
        "1e3",
        "--hidden",
        "16,8",
        "--normalize-observations",
        "--no-normalize-advantages",
    ]
    flags += ["--parallel-start-method", "spawn", "--ent-coef", "1e-2", "--n-steps", "16", "--batch_size", "16"]
    run(
        "train",
        "CartPole-v1",
        *flags,
        "--num-envs",
        "2",
        "--backend",
        "serial",
        "--runs-dir",
        str(tmp_path),
        "--name",
        "r",
    )
    config = Run.open("r", tmp_path).config
    assert config["run"]["steps"] == 64
    assert config["run"]["seed"] == 1000
    assert config["ppo"]["hidden"] == [16, 8]
    assert config["ppo"]["normalise_observations"] is True
    assert config["ppo"]["normalise_advantages"] is False
    assert config["ppo"]["entropy_coef"] == 0.01
    assert config["vector"]["start_method"] == "spawn"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["train"], "expected a task to train: shoal train TASK"),
        (["train"], "cage2 "),
        (["train", "--steps", "100"], "expected a task to train"),
        (["search"], "shoal search cage2 | shoal search gridworld"),
        (["train", "CartPole-v1", "--steps", "1.5"], "expected --steps as a whole number (500000, 1e6, 100k and 2M"),
        (["train", "CartPole-v1", "--num-envs", "many"], "expected --num-envs as a whole number or auto"),
        (["train", "CartPole-v1", "--gamma", "0,99"], "write 0.99, with a point"),
        (
            ["train", "CartPole-v1", "--hidden", "wide"],
            "expected --hidden as whole numbers separated by commas, like 64,64",
        ),
        (["train", "CartPole-v1", "--num-envs", "-5"], "shoal: expected --num-envs as a whole number of at least 1"),
        (["train", "--resume", "a", "b", "c"], "expected one run after --resume, got 3: a, b, c"),
        (["train", "--resume", "--steps", "5"], "expected a run after --resume, got --steps"),
        (["train", "CartPole-v1", "--device", "mps"], "--device mps: torch sees no Apple GPU"),
        (["runs", "--clean", "--no"], "--no"),
    ],
)
def test_mistakes_name_the_cure(
    args: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, nothing of dataclasses and parsers, no folder left."""
    where = [] if "--resume" in args else ["--runs-dir", str(tmp_path)]
    run(*args, *where, code=1 if "mps" in args else 2)
    text = said(capsys)
    assert expected in text
    for inside in ("vector:", "typing.", "could be instantiated", "│"):
        assert inside not in text
    assert list(tmp_path.iterdir()) == []


def test_policies_are_for_rides(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Said, not "unrecognized"."""
    run("evaluate", str(runs_dir / "done"), "--policy", "myopic", code=2)
    assert "shoal evaluate rides --policy" in said(capsys)


def test_a_smaller_budget_than_what_is_done(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A resumed run cannot get fewer steps than it has done: that is no finished training."""
    run("train", "--resume", str(runs_dir / "done"), "--steps", "32", code=2)
    assert "has done 64 steps already" in said(capsys)
    assert Run.open("done", runs_dir).status == "finished"


@pytest.mark.parametrize("args", [["help"], ["--help"], []])
def test_help_lists_the_commands(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`shoal help` is what people try first."""
    run(*args)
    assert "train TASK" in said(capsys)


@pytest.mark.parametrize(
    "args", [["help", "train"], ["train", "--help"], ["train", "-h"], ["train", "cage2", "--help"]]
)
def test_help_of_train(args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An example, every flag in groups with plain titles, and the three that are no options of a run."""
    monkeypatch.setenv("COLUMNS", "80")
    run(*args)
    text = said(capsys)
    for flag in (
        "--resume RUN",
        "--reshard",
        "--json",
        "--num-envs N|auto",
        "--hidden N,N,...",
        "--callback MODULE:CLASS",
        "Switch off: Measure the gradient",
        "--no-normalise-advantages",
    ):
        assert flag in text
    assert "shoal train LunarLander-v3 --num-envs 16 --steps 2M" in text
    for inside in ("config.", " options", "{None}"):
        assert inside not in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert ("--horizon" in text) == ("cage2" in args)


def test_every_flag_of_a_run_is_explained() -> None:
    """The page is made from the dataclasses' own words: none is without any."""
    from shoal.cli.help import _groups
    from shoal.config import TrainConfig

    flags = [flag for _, flags in _groups(TrainConfig, TrainConfig()) for flag in flags]
    assert len(flags) > 50
    assert all(len(text) > 10 for _, text in flags)


# -- shoal runs --------------------------------------------------------------------------------------


def make(root: Path, name: str, status: str, rows: int = 0) -> None:
    with Run.create(root, name, {"task": "Toy-v0"}, "shoal train Toy-v0", "Toy-v0") as made:
        for epoch in range(1, rows + 1):
            made.append({"epoch": epoch, "steps": 1000 * epoch, "return/mean_100": 0.0537 * epoch})
        made.set_status(status)


def test_runs_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Name, task, status, steps and return, of runs that cannot be read as well."""
    make(tmp_path, "good", "finished", rows=3)
    make(tmp_path, "bad", "failed")
    make(tmp_path, "torn", "finished")
    (tmp_path / "torn" / "config.json").write_text("{")
    run("runs", "--runs-dir", str(tmp_path))
    lines = {line.split()[0]: line.split() for line in said(capsys).splitlines() if line}
    assert lines["good"] == ["good", "Toy-v0", "finished", "3,000", "0.1611"]
    assert lines["bad"] == ["bad", "Toy-v0", "failed", "-", "-"]
    assert lines["torn"][1:3] == ["-", "damaged"]
    run("runs", "--runs-dir", str(tmp_path), "--json")
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert {row["name"]: row["removable"] for row in listed} == {"good": False, "bad": True, "torn": False}


def test_clean_says_first_and_removes_only_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a yes nothing goes; a run that is being written is never removed."""
    make(tmp_path, "good", "finished", rows=1)
    make(tmp_path, "bad", "failed")
    make(tmp_path, "killed-early", "running")
    make(tmp_path, "killed-late", "running", rows=2)
    live = Run.create(tmp_path, "live", {"task": "Toy-v0"}, "shoal train Toy-v0", "Toy-v0")
    run("runs", "--clean", "--runs-dir", str(tmp_path), code=2)
    text = said(capsys)
    assert "2 runs to remove" in text
    assert "nothing was removed: add --yes" in text
    assert len(list(tmp_path.iterdir())) == 5
    run("runs", "--clean", "--yes", "--runs-dir", str(tmp_path))
    assert "removed 2" in said(capsys)
    live.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["good", "killed-late", "live"]


def test_a_name_that_is_only_begun_lists_finished_runs_first(tmp_path: Path) -> None:
    """`shoal evaluate CartPole-v1`: the run that can be evaluated comes before those that failed."""
    for name, status in (("Toy-1", "finished"), ("Toy-2", "failed"), ("Toy-3", "interrupted")):
        make(tmp_path, name, status)
    with pytest.raises(FileNotFoundError, match="Did you mean: Toy-1, "):
        Run.open("Toy", tmp_path)


# -- what newcomers type -----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [["evaluate"], ["play"], ["report"], ["train", "--resume"]], ids=" ".join)
def test_a_folder_that_is_no_run_is_told_so(
    verb: list[str], runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder of other things, the folder of runs, and a part of a run, which names its run."""
    for path, expected in (
        (runs_dir.parent, "what has that path holds no run (no config.json)"),
        (runs_dir, "there are: done."),
        (runs_dir / "done" / "checkpoints", f"It belongs to the run {runs_dir / 'done'}: name that."),
        (runs_dir / "done" / "config.json", f"It belongs to the run {runs_dir / 'done'}: name that."),
        (runs_dir / "zzz", "nor a run folder of that path"),
    ):
        run(*verb, str(path), "--runs-dir", str(runs_dir), code=2)
        assert expected in said(capsys), path


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["play"], "expected RUN, got none: shoal play RUN"),
        (["report"], "expected RUN, got none: shoal report RUN"),
        (["tune"], "expected ID, got none: shoal tune ID"),
        (["cage2", "export"], "expected RUN FOLDER, got none: shoal cage2 export RUN FOLDER"),
        (["rides", "fit"], "expected --what\n"),
        (["rides", "fit", "lookahead", "--hours", "1"], "--hours is for fit oracle"),
        (["rides", "fit", "oracle", "--days", "30"], "alone, got --days"),
        (["play", "x", "--render", "foo"], "expected --render as one of ansi, human, got 'foo'"),
        (["train", "CartPole-v1", "--evaluate-target", "5"], "shoal: --evaluate-target goes by held-out evaluations"),
        (["train", "CartPole-v1", "--evaluate-episodes", "5"], "add --evaluate-every EPOCHS"),
        (
            ["train", "CartPole-v1", "--wandb-project", "x"],
            "--wandb-project x is for runs that W&B records: add --track wandb",
        ),
        (["train", "CartPole-v1", "--wandb-tags", "a,b", "--track", "tensorboard"], "add --track tensorboard,wandb"),
        (["runs", "--yes"], "--yes is for --clean"),
        (["runs", "--runs-dir", __file__], "expected --runs-dir as a folder"),
        (["tune", "CartPole-v1", "--trials", "2"], "--trials is for --search"),
        (["tune", "CartPole-v1", "--search", "--turns", "2"], "--turns is for measuring"),
        (["tune", "CartPole-v1", "--search", "--runs-dir", __file__], "expected --runs-dir as a folder"),
        (["cage2", "play", "d1", "--horizon", "0"], "expected --horizon of at least 1, got 0"),
        (["cage2", "score", "sleep", "--episodes", "0"], "expected --episodes of at least 1, got 0"),
        (["resume", "x"], "unknown command 'resume'; did you mean 'train --resume'?"),
        (["train", "CartPole-v1", "Acrobot-v1"], "expected flags, like --name VALUE, got Acrobot-v1"),
        (["train", "shoal/GridWorld-v0", "--env-kwargs", '{"slipp": 1}'], "GridWorld takes the params ['slip'], got"),
        (["train", "CartPole-v1", "--memory-budget-gb", "1e-4"], "MB are allowed"),
        (["train", "CartPole-v1", "--clip-range-vf", "no"], "expected --value-clip as a number"),
        (["search", "os:path"], "expected os:path as a domain"),
        (["search", "os:nothing"], "os has no nothing"),
        (["search", "no_such_module:Domain"], "cannot import no_such_module"),
    ],
    ids=" ".join,
)
def test_what_is_wrong_is_said_at_once(args: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The place that is empty, the flag that goes elsewhere, the value that is none: exit code 2, nothing is begun."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(args)
    assert ended.value.code in (1, 2)
    assert expected in said(capsys)


@pytest.mark.parametrize("name", ["../outside", ".hidden", "<b>x</b>", ""])
def test_settings_are_searched_inside_of_the_folder_of_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that leads elsewhere is refused before anything is made."""
    inside = tmp_path / "runs"
    run("tune", "CartPole-v1", "--search", "--trials", "1", "--name", name, "--runs-dir", str(inside), code=2)
    assert "is not allowed" in said(capsys)
    assert list(tmp_path.iterdir()) == []


def test_counts_of_an_evaluation_are_named(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The flag that is wrong, not both; a flag that the run was not given is said to be."""
    for flag in ("--episodes", "--num-envs", "--max-episode-steps"):
        run("evaluate", "done", flag, "0", "--runs-dir", str(runs_dir), code=2)
        assert f"expected {flag} of at least 1, got 0" in said(capsys)
    run("train", "--resume", "done", "--init-from", "x", "--runs-dir", str(runs_dir), code=2)
    assert "--init-from is not given in the run to resume" in said(capsys)


def test_an_evaluation_explains_the_flags_that_it_shares(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags of the dataclass that another is derived from have its words."""
    from shoal.cli.help import _groups
    from shoal.rides.evaluate import RunContestArgs

    flags = dict(flag for _, flags in _groups(RunContestArgs, None) for flag in flags)
    assert "Held-out days" in flags["--days N"]
    assert all(len(text) > 10 for text in flags.values())
