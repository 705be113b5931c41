"""A disk that is full while a run goes on: nothing ends, nothing is torn, and what can be kept later is kept."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.runs import checkpoint

SOURCE = str(Path(shoal.__file__).parents[1])
EPOCHS = 8

# Fills the disk to the last block when epoch 2 begins, frees it when epoch 6 begins. Argument: the file system.
TRAINING = """
import io, json, os, sys
from pathlib import Path
import shoal
from shoal.learn.learner import Learner
root, heap, collect = Path(sys.argv[1]), Path(sys.argv[1]) / "heap", Learner.collect
def filling(learner):
    if learner.epoch == 2:
        with heap.open("wb", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass
    elif learner.epoch == 6:
        heap.unlink()
    return collect(learner)
Learner.collect = filling
said = io.StringIO()
options = json.loads(sys.argv[2])
result = shoal.train("CartPole-v1", runs_dir=str(root / "runs"), name="r", stream=said, **options)
print(json.dumps([result.status, result.epochs, said.getvalue()]))
run = root / "runs" / "r"
shown = {name: (run / name).read_text() for name in ("status.json", "events.jsonl", "metrics.jsonl")}
kept = sorted(path.name for path in (run / "checkpoints").iterdir())
print(json.dumps([shown, kept, (run / "report.html").exists()]))
"""
OPTIONS: dict[str, Any] = {
    "num_envs": 2, "rollout_steps": 16, "backend": "serial", "hidden": (8,), "minibatch_size": 16, "epochs": EPOCHS,
    "save_interval": 1, "log_interval": 1,
}  # fmt: skip


def _can_mount(folder: Path) -> bool:
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def test_a_really_full_file_system(tmp_path: Path) -> None:
    """A tmpfs of 3 MB: the run finishes, says what it could not write, and saves again once there is room."""
    if not _can_mount(tmp_path):
        pytest.skip("this machine mounts no file system for a test; the next test fails the writes instead")
    python = f"exec {sys.executable} -c \"$0\" {tmp_path} '{json.dumps(OPTIONS)}'"
    mounted = f"mount -t tmpfs -o size=3m none {tmp_path} && {python}"
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(["unshare", "-rm", "sh", "-c", mounted, TRAINING], env=environment, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    (status, epochs, said), (files, kept, reported) = (json.loads(line) for line in done.stdout.splitlines()[-2:])
    assert (status, epochs) == ("finished", EPOCHS)
    assert "checkpoint of epoch 3 FAILED" in said
    assert "No space left on device" in said
    assert said.count("events.jsonl misses notes from here") <= 1
    assert json.loads(files["status.json"])["status"] == "finished"
    rows = [json.loads(line)["epoch"] for line in files["metrics.jsonl"].splitlines()]
    assert rows[:2] == [1, 2]
    assert rows[-1] == EPOCHS
    assert f"epoch-{EPOCHS:08d}" in kept
    assert reported


@pytest.mark.filterwarnings("ignore:tracker jsonl misses rows")
def test_every_write_fails_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC from every write and every new file between epochs 2 and 6."""
    from shoal.learn.learner import Learner

    collect, write, full = Learner.collect, os.write, [False]

    def failing(descriptor: int, data: Any) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    def filling(learner: Learner) -> Any:
        full[0] = 2 <= learner.epoch < 6
        return collect(learner)

    monkeypatch.setattr(os, "write", failing)
    monkeypatch.setattr(Learner, "collect", filling)
    said = io.StringIO()
    result = shoal.train("CartPole-v1", runs_dir=str(tmp_path), name="r", stream=said, **OPTIONS)
    assert (result.status, result.epochs) == ("finished", EPOCHS)
    assert "checkpoint of epoch 3 FAILED" in said.getvalue()
    assert said.getvalue().count("events.jsonl misses notes from here") == 1
    assert checkpoint.load_latest(tmp_path / "r" / "checkpoints").epoch == EPOCHS


def test_a_disk_that_stays_full_fails_with_its_own_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last checkpoint cannot be written: that is the error, not that the status could not be noted either."""
    from shoal.learn.learner import Learner

    collect, write, full = Learner.collect, os.write, [False]

    def failing(descriptor: int, data: Any) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    def filling(learner: Learner) -> Any:
        full[0] = learner.epoch >= EPOCHS - 2
        return collect(learner)

    monkeypatch.setattr(os, "write", failing)
    monkeypatch.setattr(Learner, "collect", filling)
    with (
        pytest.raises(checkpoint.CheckpointError, match=r"No space left on device.*free some space"),
        pytest.warns(UserWarning, match="misses rows"),
    ):
        shoal.train("CartPole-v1", runs_dir=str(tmp_path), name="r", stream=io.StringIO(), **OPTIONS)
    assert checkpoint.load_latest(tmp_path / "r" / "checkpoints").epoch == EPOCHS - 2
