"""`shoal compare` as a user has it: arms trained in processes, killed and gone on with, and runs that are there."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import cli
from shoal.comparison import pilot
from shoal.comparison.plan import arms_of, check_match, gradient_steps_per_epoch, unequal
from shoal.runs.folder import Run
from shoal.tasks.presets import config_for

TINY = ["--steps", "2000", "--held-out", "4", "--rollout-steps", "16", "--save-interval", "5"]
ARMS = ["CartPole-v1", "--num-envs", "4", "8", "--backend", "serial"]


def shoal_command(*args: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "shoal", "compare", *args],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def run_command(*args: str, cwd: Path) -> tuple[str, str]:
    process = shoal_command(*args, cwd=cwd)
    out, said = process.communicate(timeout=900)
    assert process.returncode == 0, said
    return out, said


def without_seconds(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The verdicts, less those that a clock has a part in, and less Holm's p, which counts those too."""
    clocked = ("seconds", "at_seconds", "throughput")
    return [{**one, "p": None} for one in found["verdicts"] if one["metric"] not in clocked]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A comparison of 2 arms with 2 seeds that nothing disturbed: where, what it found, what it said."""
    folder = tmp_path_factory.mktemp("whole")
    out, said = run_command(*ARMS, *TINY, "--seeds", "2", "--name", "c", "--json", cwd=folder)
    return folder, json.loads(out), said


def test_arms_are_trained_evaluated_and_judged(whole: tuple[Path, dict[str, Any], str]) -> None:
    folder, found, said = whole
    assert [arm["name"] for arm in found["arms"]] == ["num_envs=4", "num_envs=8"]
    assert all(len(arm["finals"]) == 2 and None not in arm["finals"] for arm in found["arms"])
    assert {one["verdict"] for one in found["verdicts"]} == {"insufficient"}
    assert "training 4 of 4" in said
    assert " left" in said
    seeds = [Run(path).config["run"]["seed"] for path in sorted((folder / "runs/c/runs").iterdir())]
    assert seeds[0] == seeds[2] != seeds[1] == seeds[3], "the same seeds in both arms"


def test_it_can_be_shown_again_and_trains_nothing_twice(
    whole: tuple[Path, dict[str, Any], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, found, _ = whole
    monkeypatch.chdir(folder)
    before = {path: path.stat().st_mtime_ns for path in Path("runs/c/runs").rglob("*") if path.is_file()}
    for more in ((), ("--report",)):
        with pytest.raises(SystemExit) as end:
            cli.main(["compare", "c", "--json", *more])
        assert end.value.code == 0
        assert json.loads(capsys.readouterr().out)["verdicts"] == found["verdicts"]
    for more, told in (
        (["--seeds", "5"], "--seeds is for a new comparison"),
        (["--primary", "steps"], "--primary steps: runs/c declared final when it began"),
        (["--threshold", "99"], "--threshold 99.0: runs/c declared 475.0 when it began"),
    ):
        with pytest.raises(SystemExit) as end:
            cli.main(["compare", "c", *more])
        assert end.value.code == 2
        assert told in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in Path("runs/c/runs").rglob("*") if path.is_file()}


def test_runs_that_are_there_are_compared_by_what_they_were_trained_with(
    whole: tuple[Path, dict[str, Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same figures as the comparison that trained them; from Python too."""
    folder, found, _ = whole
    monkeypatch.chdir(folder)
    runs = sorted(str(path) for path in Path("runs/c/runs").iterdir())
    again = shoal.compare(*runs, threshold=found["threshold"])
    assert list(again.arms) == ["num_envs=4", "num_envs=8"]
    finals = [[run.final for run in group] for group in again.arms.values()]
    assert finals == [arm["finals"] for arm in found["arms"]]
    with pytest.raises(ValueError, match="runs of one kind alone"):
        shoal.compare(*runs[:2])


def test_runs_of_another_code_are_not_pooled(whole: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    """The same settings under another commit are an arm of their own; a comparison is not gone on with."""
    import shutil

    folder = tmp_path / "runs"
    shutil.copytree(whole[0] / "runs", folder)
    runs = sorted((folder / "c" / "runs").iterdir())
    code = json.loads((runs[0] / "code.json").read_text())
    (runs[0] / "code.json").write_text(json.dumps({**code, "commit": "f" * 40}))
    found = shoal.compare(str(runs[0]), str(runs[1]))
    assert [len(group) for group in found.arms.values()] == [1, 1]
    assert any("ffffffffffff" in name for name in found.arms)
    config = json.loads((folder / "c/config.json").read_text())
    config["comparison"]["code"] = "0" * 16
    (folder / "c/config.json").write_text(json.dumps(config))
    next((folder / "c/done").iterdir()).unlink()
    worker = [sys.executable, "-m", "shoal.comparison.worker", str(folder / "c"), "0", "0"]
    with subprocess.Popen(worker, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "have changed since it began" in process.stderr.read(), "nor is one whose code changes while it runs"
    with pytest.raises(ValueError, match="begun with other code"):
        shoal.compare(str(folder / "c"))


def disturbed(folder: Path, kills: int, args: list[str], seed: int = 0) -> dict[str, Any]:
    """The same comparison, killed so many times at moments of its own choosing."""
    rng, options = random.Random(seed), [*args, "--name", "c"]
    for _ in range(kills):
        process = shoal_command(*options, cwd=folder)
        begun, end = time.monotonic(), time.monotonic() + 120
        known = len(list(folder.glob("runs/c/done/*")))
        while process.poll() is None and time.monotonic() < end:
            at_work = list(folder.glob("runs/c/runs/*/metrics.jsonl"))
            if len(list(folder.glob("runs/c/done/*"))) > known or (at_work and time.monotonic() - begun > 4):
                time.sleep(rng.uniform(0.0, 1.5))
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (folder / "runs/c").exists():
            options = ["c"]
    over = {path: path.stat().st_mtime_ns for path in folder.glob("runs/c/done/*")}
    out, _ = run_command(*options, "--json", cwd=folder)
    assert {path: path.stat().st_mtime_ns for path in over} == over, "a finished run was repeated"
    found: dict[str, Any] = json.loads(out)
    return found


def test_killed_and_gone_on_with_it_finds_the_same(whole: tuple[Path, dict[str, Any], str], tmp_path: Path) -> None:
    found = disturbed(tmp_path, 1, [*ARMS, *TINY, "--seeds", "2"])
    assert without_seconds(found) == without_seconds(whole[1])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_ten_times_it_finds_the_same(tmp_path: Path) -> None:
    args = [*ARMS, *TINY, "--seeds", "4", "--steps", "20000"]
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    out, _ = run_command(*args, "--json", cwd=tmp_path / "whole")
    found = disturbed(tmp_path / "killed", 10, args, seed=1)
    assert without_seconds(found) == without_seconds(json.loads(out))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "expected what to compare"),
        (("CartPole-v1",), "expected what varies: shoal compare CartPole-v1 --vary num_envs=64,256"),
        (("CartPole-v1", "--vary", "num_envs"), "expected --vary as OPTION=A,B, got 'num_envs'"),
        (("CartPole-v1", "--vary", "num_envs=8"), "expected two arms or more, got 1"),
        (("CartPole-v1", "--vary", "num_envs=8,8"), "expected arms that differ"),
        (("CartPole-v1", "--vary", "num_enws=8,16"), "num-envs"),
        (("CartPole-v1", "--num-envs", "8", "16", "--match", "luck"), "expected --match as one or several of samples"),
        (("CartPole-v1", "--num-envs", "8", "16", "--primary", "luck"), "expected --primary as one of final"),
        (("CartPole-v1", "--num-envs", "8", "16", "--seeds", "0"), "expected --seeds of at least 1, got 0"),
        (("NoSuchTask-v0", "--num-envs", "8", "16"), "NoSuchTask"),
        (("CartPole-v1", "--num-envs", "8", "16", "--report"), "--report is for a comparison that is there"),
    ],
)
def test_mistakes_are_said_before_anything_is_trained(
    args: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        cli.main(["compare", *args])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*")), "nothing is left behind"


def test_a_pilot_measures_every_arm_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The median over turns, in steps a second of real trainings."""
    monkeypatch.setattr(pilot, "TURN_S", 0.01)
    said: list[str] = []
    config = config_for("CartPole-v1", num_envs=4, rollout_steps=16, backend="serial")
    speeds = pilot.speeds_of([("four", config), ("eight", config.replace(num_envs=8))], (), said.append)
    assert speeds.keys() == {"four", "eight"}
    assert all(0 < speed < 1e6 for speed in speeds.values())
    assert all(f"{speed:,.0f} steps/s" in line for speed, line in zip(speeds.values(), said, strict=True))


def test_budgets_are_matched_by_samples_updates_or_seconds() -> None:
    """The same steps; the same gradient steps; as many steps as fit in the same time."""
    one = config_for("CartPole-v1", num_envs=8, rollout_steps=16, minibatch_size=64, steps=10_000)
    four = one.replace(num_envs=32, minibatch_size=512)
    configs, speeds = [("a", one), ("b", four)], {"a": 100.0, "b": 250.0}

    def steps(way: str) -> list[int]:
        return [arm.config["run"]["steps"] for arm in arms_of(configs, check_match(way), speeds)]

    assert steps("samples") == [10_240, 10_240], "whole epochs of both"
    updates = [10_240 / 128 * gradient_steps_per_epoch(one), steps("updates")[1] / 512 * gradient_steps_per_epoch(four)]
    assert updates[0] == updates[1]
    assert steps("wall") == [10_240, 25_600]
    both = arms_of(configs, check_match("samples,wall"), speeds)
    assert [arm.name for arm in both] == ["a", "b (equal samples)", "b (equal seconds)"]


def test_a_budget_that_is_the_same_in_two_ways_is_trained_once() -> None:
    """20,000 steps are no whole epochs; asked for equal samples and equal updates, no arm is trained twice."""
    few = config_for("CartPole-v1", num_envs=64, rollout_steps=32, minibatch_size=256, steps=20_000)
    many = few.replace(num_envs=256)
    arms = arms_of([("64", few), ("256", many)], ["samples", "updates"], {})
    assert [(arm.name, arm.config["run"]["steps"]) for arm in arms] == [("64", 24_576), ("256", 24_576)]


def test_budgets_that_cannot_be_equal_are_said() -> None:
    """A budget is never made more than half as large again to be equal; then it is said by how much arms differ."""
    few = config_for("CartPole-v1", num_envs=64, rollout_steps=32, steps=20_000)
    arms = arms_of([("64", few), ("1024", few.replace(num_envs=1024))], ["samples"], {})
    assert [arm.config["run"]["steps"] for arm in arms] == [20_480, 32_768]
    assert unequal(arms).endswith(
        "1024 trains 32,768 steps and 64 20,480: 60 % more. A larger --steps makes them equal"
    )
    assert not unequal(arms_of([("64", few), ("128", few.replace(num_envs=128))], ["samples"], {}))
