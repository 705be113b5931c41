"""Whole trainings as tasks of a Ray cluster: one folder each, a lost one is run again, none counts twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal import cli, launching
from shoal.runs.folder import Run
from shoal.search.domain import make_domain
from shoal.search.folder import SearchFolder

pytestmark = pytest.mark.usefixtures("ray")
# Watches its standard input, as trainings do: it ends with whoever holds the other end.
_WORK = """
import os, sys, threading, time
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(9)), daemon=True).start()
print(os.getpid(), flush=True)
time.sleep(float(sys.argv[1])); sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modules that were started, every one of them on the cluster."""
    found: list[str] = []
    launch = launching.launch

    def noted(command: list[str], *args: Any, **options: Any) -> launching.Process:
        assert launching.elsewhere()
        found.append(command[command.index("-m") + 1])
        return launch(command, *args, **options)

    monkeypatch.setattr(launching, "launch", noted)
    return found


def _work(log: Path, seconds: float, code: int) -> launching.Process:
    return launching.launch([sys.executable, "-c", _WORK, str(seconds), str(code)], log)


def _pid(log: Path) -> int:
    deadline = time.monotonic() + 60
    while not log.exists() or not log.read_text().endswith("\n"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return int(log.read_text())


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 100
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not Path(f"/proc/{pid}").exists()


def test_a_task_is_a_process_with_an_exit_code(tmp_path: Path) -> None:
    with launching.on("ray"):
        assert launching.elsewhere()
        process = _work(tmp_path / "log", 0.0, 3)
        assert process.wait(200) == process.poll() == 3
    assert not launching.elsewhere()


def test_a_task_that_is_killed_with_its_worker_is_lost_and_leaves_nothing(tmp_path: Path) -> None:
    with launching.on("ray"):
        process = _work(tmp_path / "log", 1000.0, 0)
        pid = _pid(tmp_path / "log")
        assert process.poll() is None
        os.kill(_parent(pid), signal.SIGKILL)
        assert process.wait(200) == launching.LOST
        assert _gone(pid)


@pytest.mark.parametrize("way", ["terminate", "kill"])
def test_a_task_can_be_ended(tmp_path: Path, way: str) -> None:
    with launching.on("ray"):
        process = _work(tmp_path / "log", 1000.0, 0)
        pid = _pid(tmp_path / "log")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        getattr(process, way)()
        assert process.wait(200) != 0
        assert _gone(pid)


def test_a_folder_that_the_node_does_not_see_is_said(tmp_path: Path) -> None:
    with launching.on("ray"), pytest.raises(RuntimeError, match="must be a folder that all nodes see"):
        _work(tmp_path / "nowhere" / "log", 0.0, 0).wait(60)


def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="--on as here or ray, got 'there'"), launching.on("there"):
        pass
    with pytest.raises(ValueError, match="--ray-address is for --on ray"), launching.on("here", "auto"):
        pass


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if _parent(int(entry.name)) == pid:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _kill_a_worker_of(marker: str, seen: list[int]) -> None:
    """Once a training has begun, kill the worker of Ray that holds it."""
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_text().split("\0")
                    if "shoal.comparison.worker" in command and any(marker in part for part in command):
                        runs = [path for path in Path(marker).glob("*/runs/*/checkpoints/epoch*") if path.is_dir()]
                        if runs:
                            seen.append(int(entry.name))
                            os.kill(_parent(int(entry.name)), signal.SIGKILL)
                            return
                except OSError:
                    continue
        time.sleep(0.05)


def _said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What a command prints as JSON."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    out, errors = capsys.readouterr()
    assert not ended.value.code, errors
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_comparison_on_ray(tmp_path: Path, capsys: pytest.CaptureFixture[str], launched: list[str]) -> None:
    """Two arms of a seed, each a task of the cluster with a folder of its own: one page, and no other process."""
    command = ["compare", "CartPole-v1", "--vary", "clip=0.1,0.2", "--seeds", "1", "--held-out", "2", "--parallel", "2"]
    command += ["--num-envs", "2", "--rollout-steps", "32", "--epochs", "2", "--hidden", "4", "--backend", "serial"]
    found = _said([*command, "--on", "ray", "--runs-dir", str(tmp_path), "--name", "c", "--json"], capsys)
    assert [len(arm["finals"]) for arm in found["arms"]] == [1, 1]
    assert found["crashed"] == []
    assert (tmp_path / "c" / "report.html").exists()
    runs = sorted((tmp_path / "c" / "runs").iterdir())
    assert [Run.open(run, tmp_path).status for run in runs] == ["finished", "finished"]
    assert launched == ["shoal.comparison.worker"] * 2


def test_a_search_on_ray(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], launched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull is a task, and comes to the same as in this process."""
    monkeypatch.setattr("shoal.search.sections.write_page", lambda folder, *rest: folder.path / "report.html")
    command = ["search", "gridworld", "--workflows", "1", "--num-envs", "2", "--episodes-per-env", "1", "--seed", "3"]
    command += ["--update-every-steps", "50", "--runs-dir", str(tmp_path), "--json"]
    found = _said([*command, "--on", "ray", "--name", "there"], capsys)
    assert found["summary"]["pulls"] == 1
    assert launched == ["shoal.search.worker"]
    there = SearchFolder(Run(tmp_path / "there"))
    domain = make_domain(there.config, there.options)
    (record,) = there.records()
    (again := tmp_path / "here").mkdir()
    here = domain.pull(record.request.item, start=None, seed=record.request.seed, folder=again, say=print)
    assert (here.mean, here.se, here.passed) == (record.pull.mean, record.pull.se, record.pull.passed)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_comparison_on_ray_survives_a_lost_task(tmp_path: Path) -> None:
    """Two arms of two seeds; the worker of one training is killed: it is done again, and four are counted."""
    seen: list[int] = []
    killer = threading.Thread(target=_kill_a_worker_of, args=(str(tmp_path), seen), daemon=True)
    killer.start()
    options: dict[str, Any] = {"backend": "serial", "num_envs": 4, "steps": 30_000, "hidden": (8,), "save_interval": 1}
    found = shoal.compare("CartPole-v1", vary={"clip": [0.1, 0.2]}, seeds=2, held_out=3, parallel=2, on="ray",
                          runs_dir=str(tmp_path), name="here", **options)  # fmt: skip
    killer.join(1)
    assert seen, "no training was killed"
    assert sorted(len(runs) for runs in found.arms.values()) == [2, 2]
    assert all(run.whole for runs in found.arms.values() for run in runs)
    runs = sorted((tmp_path / "here" / "runs").iterdir())
    assert len(runs) == 4
    said = [json.loads(line)["event"] for run in runs for line in (run / "events.jsonl").read_text().splitlines()]
    assert "resumed" in said
    for run in runs:
        epochs = [row["epoch"] for row in Run.open(run, tmp_path).metrics()]
        assert epochs == sorted(set(epochs)), "an epoch was counted twice"
