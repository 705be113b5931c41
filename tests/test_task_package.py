"""A task in a package of its own (examples/task_package), installed as anybody would and used from end to end."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.cli import main
from shoal.runs.checkpoint import CheckpointError
from shoal.tasks import registry

ROOT = Path(__file__).parents[1]
SMALL = ["--num-envs", "4", "--rollout-steps", "48", "--minibatch-size", "96", "--backend", "serial"]


def run(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    assert int(ended.value.code or 0) == code


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Installed without a network into a folder of its own."""
    folder = tmp_path_factory.mktemp("package")
    unwanted = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
    source = shutil.copytree(ROOT / "examples" / "task_package", folder / "source", ignore=unwanted)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*install, "--target", str(folder / "site"), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_all_that_a_task_brings_is_used(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Listed, trained with its flags and preset, evaluated, its verb, report, policy, and resumed."""
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.chdir(tmp_path)
    run("tasks")
    assert "thermostat                keep a leaking room" in capsys.readouterr().out
    monkeypatch.setattr("shoal.starting.make_probe", None)  # the task says its spaces: no room is built to see them
    run("train", "thermostat", "--target-c", "20", *SMALL, "--steps", "192", "--name", "warm")
    assert "next     shoal evaluate runs/warm --evenings 20\n" in capsys.readouterr().out
    config = json.loads((tmp_path / "runs" / "warm" / "config.json").read_text())
    assert json.loads(config["env_kwargs"])["target_c"] == 20.0
    assert config["ppo"]["learning_rate"] == 3e-3  # of its preset
    run("evaluate", "warm", "--evenings", "2", "--json")
    found = json.loads(capsys.readouterr().out)["runs"]["warm"]
    assert found["evenings"] == 2
    page = (tmp_path / "runs" / "warm" / "report.html").read_text()
    assert f"{found['error_c']:.2f} degrees off on average" in page
    run("thermostat", "curve", "warm")
    assert len(capsys.readouterr().out.splitlines()) == 48
    run("report", "warm")
    policy = shoal.load_policy("warm")
    assert type(policy.agent.network).__name__ == "Switch"
    assert policy(np.array([9.0, 9.0], np.float32)) in (0, 1)
    run("train", "--resume", "warm", "--steps", "384")
    assert "384 steps" in "".join(capsys.readouterr())
    run("thermostat", code=2)
    run("thermostat", "curves", "warm", code=2)
    assert "expected shoal thermostat curve, got 'curves'" in capsys.readouterr().err
    run("evaluate", "warm", "--episodes", "2", code=2)  # its own evaluation has other flags
    assert "--episodes" in capsys.readouterr().err


def test_without_its_package_a_run_says_what_is_missing(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint names a task that is not installed: nothing is imported in its place."""
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(package))
        made = shoal.train("thermostat", num_envs=2, epochs=1, minibatch_size=32, backend="serial",
                           runs_dir=str(tmp_path), name="warm")  # fmt: skip
    with pytest.raises(CheckpointError, match=r"the network is that of 'thermostat': .* \(rides\)\. Install"):
        shoal.load_policy(made.run)


def broken(folder: Path, name: str, target: str) -> None:
    """An installed package whose entry point leads to `target`."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{target}\n")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("wobbly = nowhere_at_all.task:Task", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("wobbly = json:JSONDecoder", "expected a subclass of shoal.tasks.Task, got JSONDecoder"),
        ("wobbly = shoal.rides.task:Rides", "expected its name as that of the entry point, got 'rides'"),
    ],
)
def test_a_broken_package_costs_a_line(
    target: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything else works; the task itself is refused with the same line."""
    broken(tmp_path, "brokenpackage", target)
    monkeypatch.syspath_prepend(str(tmp_path))
    run("tasks")
    printed = capsys.readouterr()
    assert "CartPole-v1" in printed.out
    assert "'wobbly' of the package brokenpackage" in printed.err
    assert said in printed.err
    assert len(printed.err.splitlines()) == 1
    run()
    assert "CartPole-v1" in capsys.readouterr().out
    run("train", "wobbly", code=2)
    assert said in capsys.readouterr().err


def test_a_name_that_two_packages_bring_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of them is meant is not for shoal to say."""
    broken(tmp_path, "somebody", "rides = shoal.rides.task:Rides")
    monkeypatch.syspath_prepend(str(tmp_path))
    run("train", "rides", code=2)
    assert "the task 'rides' is brought by shoal and somebody: uninstall all but one" in capsys.readouterr().err
