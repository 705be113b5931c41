"""Row 12 of FAULTS.md: when the parent is killed, its workers go too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

SCRIPT = """
import sys, warnings
import numpy as np
from shoal.vector.faults import FaultyEnv, TickEnv
from shoal.vector.process import ProcessVectorEnv

warnings.simplefilter("ignore")
method, kind = sys.argv[1:]
bad = (lambda: FaultyEnv(kind, at_step=1)) if kind != "idle" else TickEnv
envs = ProcessVectorEnv([TickEnv, bad], workers=2, start_method=method)
envs.reset(seed=0)
if kind != "idle":
    envs.send(0, np.zeros(2, int))
print(*envs.pids, flush=True)
envs.recv(0) if kind != "idle" else sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["idle", "hang", "hang-ignoring-sigterm", "hang-holding-gil"])
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_workers_die_with_their_parent(method: str, kind: str, tmp_path: Path) -> None:
    """Row 12: after kill -9 of the parent every worker is gone within 2 s, even inside an environment that hangs."""
    path = tmp_path / "parent.py"
    path.write_text(textwrap.dedent(SCRIPT))
    shm = set(os.listdir("/dev/shm"))
    parent = subprocess.Popen(
        [sys.executable, str(path), method, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        time.sleep(0.1)  # into the environment
        assert all(_lives(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 2.0
        while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.01)
        left = [pid for pid in pids if _lives(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
    assert set(os.listdir("/dev/shm")) <= shm


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
