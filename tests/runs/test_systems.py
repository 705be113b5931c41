"""Systems that lack what Linux has, simulated: everything but worker processes goes on, and those say so."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.runs import Locked, Run, lock

SOURCE = str(Path(shoal.__file__).parents[1])

# What others import is imported before it is taken away from shoal.
WITHOUT = """
import io, json, os, select, signal, socket, sys
import cloudpickle, gymnasium, matplotlib.figure, multiprocessing, numba, torch
from matplotlib.backends import backend_svg
for module in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[module] = None
gone = {
    os: "sched_getaffinity sched_setaffinity sched_yield sched_setscheduler sched_param SCHED_BATCH memfd_create "
        "MFD_CLOEXEC register_at_fork sysconf pread fork eventfd pidfd_open O_CLOEXEC O_DIRECTORY O_NOFOLLOW "
        "O_NONBLOCK",
    select: "poll epoll", socket: "send_fds recv_fds", signal: "SIGKILL SIGCHLD",
}
for module, names in gone.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
import shoal
from shoal.vector.make import make_vec
runs, small = sys.argv[1], {"num_envs": 2, "rollout_steps": 16, "epochs": 2, "hidden": (8,), "minibatch_size": 16}
found, said = {}, io.StringIO()
for name, task in (("serial", "CartPole-v1"), ("compiled", "shoal/CartPole-v1")):
    result = shoal.train(task, runs_dir=runs, name=name, stream=said, **small)
    again = shoal.train(resume=name, runs_dir=runs, epochs=3, stream=said)
    score = shoal.evaluate(name, episodes=2, runs_dir=runs)["episodes"]
    found[name] = [result.status, again.epochs, score, int(shoal.load_policy(name, runs_dir=runs)([0.0] * 4))]
for backend in ("process", "split"):
    try:
        make_vec("CartPole-v1", 2, backend=backend)
    except ValueError as error:
        found[backend] = str(error)
from shoal.runs.folder import Run
found["status"] = Run.open("serial", __import__("pathlib").Path(runs)).status
print(json.dumps({**found, "said": said.getvalue()}))
"""


@pytest.mark.filterwarnings("default")
def test_all_but_worker_processes_works_elsewhere(tmp_path: Path) -> None:
    """Without fcntl, resource, poll, sched_*, memfd, sysconf and the rest: train, resume, evaluate, load_policy."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(tmp_path)], env={**os.environ, "PYTHONPATH": SOURCE},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for name in ("serial", "compiled"):
        status, epochs, episodes, action = found[name]
        assert (status, epochs, episodes) == ("finished", 3, 2)
        assert action in (0, 1)
    for backend in ("process", "split"):
        assert "worker processes need Linux or macOS" in found[backend]
        assert "--backend serial" in found[backend]
    assert "backend serial: this system has no worker processes" in found["said"]
    assert found["status"] == "finished"
    assert "cannot be locked" in done.stderr


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning, and the run goes on; that it is alive is known from its process."""

    def refuse(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked"):
        run = Run.create(tmp_path, "r", {}, "shoal train X", "X")
    with run:
        run.append({"epoch": 1})
        assert Run.open("r", tmp_path).status == "running"
    (run.path / "lock").write_text("4194305\n")  # above the largest number of a process
    assert Run.open("r", tmp_path).status == "killed"


def test_a_real_failure_to_lock_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what says "no locks here" is passed over."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        Run.create(tmp_path, "r", {}, "shoal train X", "X")


def test_two_writers_are_still_refused(tmp_path: Path) -> None:
    """Where there are locks, nothing changed."""
    with Run.create(tmp_path, "r", {}, "shoal train X", "X"), pytest.raises(Locked):
        Run.open("r", tmp_path).lock()
