"""Row 13 of FAULTS.md: Ctrl-C, SIGTERM and their repetition, sent to the whole process group of `shoal train`."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from clock import until, within
from shoal.runs import checkpoint
from shoal.testing.faults import TickEnv
from shoal.training import train
from shoal.vector.workers.process import ProcessVectorEnv

# A phase is made long, so that a signal falls into it; an update of 400 passes takes seconds, one of 10^6 for ever.
PHASES = {
    "rollout": ["--rollout-steps", "3000", "--update-epochs", "1", "--minibatch-size", "100000"],
    "update": ["--rollout-steps", "64", "--update-epochs", "400"],
    "endless-update": ["--rollout-steps", "64", "--update-epochs", "1000000"],
}


BACKENDS = {
    "serial": ["CartPole-v1", "--backend", "serial"],
    "process": ["CartPole-v1", "--backend", "process", "--workers", "2"],
    "split": ["CartPole-v1", "--backend", "split", "--workers", "2"],
    "compiled": ["shoal/CartPole-v1", "--backend", "compiled"],
}


@contextmanager
def _training(tmp_path: Path, phase: str, backend: str = "process") -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`shoal train` in a process group of its own, in the middle of a phase."""
    command = [
        sys.executable, "-m", "shoal.cli", "train", *BACKENDS[backend], "--num-envs", "4", "--hidden", "8",
        "--runs-dir", str(tmp_path), "--name", "run", "--epochs", "1000", *PHASES[phase],
    ]  # fmt: skip
    with open(tmp_path / "output.txt", "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, text=True, start_new_session=True)
    run = tmp_path / "run"
    try:
        begun = until(lambda: process.poll() is not None or list(run.glob("checkpoints/*")), 180.0)
        assert begun  # the checkpoint of the beginning is there: from here on it is training
        assert process.poll() is None, (tmp_path / "output.txt").read_text()
        before_s = _cpu_s(process.pid)
        time.sleep(0.3)
        if phase == "endless-update":  # its rollout, of a tenth of a second, must be over
            assert until(lambda: _cpu_s(process.pid) > before_s + 1.0)
        yield process, run
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _group_is_empty(group: int) -> bool:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                return False
    return True


@pytest.mark.parametrize(
    ("number", "code", "phase", "backend"),
    [
        (signal.SIGTERM, 143, "rollout", "process"),
        (signal.SIGINT, 130, "update", "process"),
        (signal.SIGINT, 130, "rollout", "serial"),
        (signal.SIGTERM, 143, "rollout", "split"),
        (signal.SIGINT, 130, "update", "compiled"),
        pytest.param(signal.SIGINT, 130, "rollout", "process", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "update", "process", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "update", "serial", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "update", "split", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, "rollout", "compiled", marks=pytest.mark.slow),
    ],
)
def test_one_signal_saves_and_leaves(number: int, code: int, phase: str, backend: str, tmp_path: Path) -> None:
    """One signal to the group: what is whole is saved, the exit code tells, nobody is left, a resume goes on."""
    with _training(tmp_path, phase, backend) as (process, run):
        os.killpg(process.pid, number)
        assert process.wait(timeout=120) == code, (tmp_path / "output.txt").read_text()
        assert until(lambda: _group_is_empty(process.pid), 20.0)
    status = json.loads((run / "status.json").read_text())
    assert status["status"] == "interrupted"
    assert str(int(number)) in status["message"]
    epochs = len((run / "metrics.jsonl").read_text().splitlines()) if (run / "metrics.jsonl").exists() else 0
    found = checkpoint.load_latest(run / "checkpoints")
    assert found.epoch == epochs
    assert not found.skipped
    who = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    said = (tmp_path / "output.txt").read_text()
    assert f"interrupted: stopped by {who} (signal {int(number)}), checkpoint of epoch {epochs} written" in said
    assert "Traceback" not in said
    assert ("shoal evaluate" in said) == (epochs > 0)  # nothing to evaluate where nothing was learnt
    if phase == "rollout":
        result = train(resume=run, epochs=epochs + 1, stream=io.StringIO())
        assert (result.status, result.epochs) == ("finished", epochs + 1)


def test_second_signal_leaves_at_once(tmp_path: Path) -> None:
    """The first signal waits for an update that never ends; the second leaves within 2 s, the checkpoint whole."""
    with _training(tmp_path, "endless-update") as (process, run):
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        start = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert within(2.0, start)
        assert until(lambda: _group_is_empty(process.pid), 20.0)
    assert checkpoint.load_latest(run / "checkpoints").epoch == 0
    said = (tmp_path / "output.txt").read_text()
    assert "Ctrl-C once more leaves at once" in said
    assert "left at once, without saving: the newest checkpoint is of epoch 0" in said


def test_fork_server_survives_what_its_owner_is_to_answer() -> None:
    """The fork server outlives a SIGTERM, yet other processes that it forks can be terminated as ever."""
    envs = ProcessVectorEnv([TickEnv], start_method="forkserver")
    server = int(Path(f"/proc/{envs.pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(server, signal.SIGTERM)
    envs.reset(seed=0)
    envs.step(np.zeros(1, int))
    envs.close()
    other = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(60,))
    other.start()
    other.terminate()
    other.join(60)
    assert other.exitcode == -signal.SIGTERM
    other.close()
