"""Row 12 of FAULTS.md: when the parent is killed, its workers go too."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clock import lives, until, within
from shoal.vector.workers.worker import _by_hang_up

SCRIPT = """
import sys, warnings
import numpy as np
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.split import SplitVectorEnv

warnings.simplefilter("ignore")
method, *kinds = sys.argv[1:]
batches = []
for kind in kinds:
    bad = (lambda: FaultyEnv(kind, at_step=1)) if kind != "idle" else TickEnv
    if method == "split":
        envs = SplitVectorEnv([TickEnv, bad], here=1, workers=1)
    else:
        envs = ProcessVectorEnv([TickEnv, bad], workers=2, start_method=method)
    envs.reset(seed=0)
    if kind != "idle":
        envs.send(0, np.zeros(2, int))
    batches.append(envs)
print(*(pid for envs in batches for pid in envs.pids), flush=True)
batches[-1].recv(0)
"""
KINDS = ("idle", "hang", "hang-ignoring-sigterm", "hang-holding-gil")


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver", "split"])
def test_workers_die_with_their_parent(method: str, tmp_path: Path) -> None:
    """Row 12: after kill -9 of the parent every worker is gone within 2 s, even inside an environment that hangs."""
    each = 1 if method == "split" else 2  # workers of a batch
    path = tmp_path / "parent.py"
    path.write_text(SCRIPT)
    shm = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen(
        [sys.executable, str(path), method, *KINDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == each * len(KINDS)
        time.sleep(0.1)  # into the environment
        assert all(map(lives, pids))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        start = time.monotonic()
        until(lambda: not any(map(lives, pids)), 20.0)
        in_time = within(2.0, start)
        left = [pid for pid in pids if lives(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, [KINDS[pids.index(pid) // each] for pid in left]
        assert in_time
    assert set(os.listdir("/dev/shm")) <= shm


def test_asking_for_the_parent_notices_its_death() -> None:
    """The way of macOS, where a poll for nothing but a hang-up does not work, tried by a child of a child (M16)."""
    script = """
import os, sys
from shoal.vector.workers.worker import _by_asking
lives, dies = os.pipe(), os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        gone = _by_asking(os.getppid(), every_s=0.05)
        os.write(lives[1], b"0" if gone() else b"1")
        while not gone():
            pass
        os.write(dies[1], b"2")
        os._exit(0)
    os._exit(os.read(lives[0], 1) != b"1")
assert os.read(dies[0], 1) == b"2"
print("noticed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200)
    assert done.stdout == "noticed\n", done.stderr


def test_a_poll_that_returns_for_nothing_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a hang-up or an error on the socket means that the parent is gone (M16)."""
    answers = [[], [(5, 0)], [(5, select.POLLIN)], [(5, select.POLLHUP)], [(5, select.POLLERR)]]

    class Poll:
        def register(self, fd: int, events: int) -> None:
            assert (fd, events) == (5, 0)

        def poll(self) -> list[tuple[int, int]]:
            return answers.pop(0)

    monkeypatch.setattr(select, "poll", Poll)
    gone = _by_hang_up(5)
    assert [gone() for _ in range(5)] == [False, False, False, True, True]
