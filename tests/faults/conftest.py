"""Every test of faults also proves that nothing is left behind: no process, no shared memory, no descriptor."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.testing.faults import TickEnv
from shoal.vector.workers.process import ProcessVectorEnv


def descendants(pid: int) -> dict[int, str]:
    """Processes below `pid` and their command lines, less multiprocessing's own two servants (direct children)."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if stat[0] != "Z":
                parents[int(entry.name)] = int(stat[1]), command
    found: dict[int, str] = {}
    below = {pid}
    while below:
        children = {child for child, (parent, _) in parents.items() if parent in below}
        found |= {child: parents[child][1] for child in children}
        below = children
    servants = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")
    return {
        child: command
        for child, command in found.items()
        if not (parents[child][0] == pid and any(name in command for name in servants))
    }


def _descriptors() -> int:
    """Open descriptors, less the fonts that matplotlib keeps open once it has drawn a report."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += not os.readlink(f"/proc/self/fd/{name}").endswith(".ttf")
        except OSError:  # the one of this very listing
            continue
    return count


def _shared() -> set[str]:
    """What is in shared memory, less what scikit-learn's joblib makes once, when it is imported."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith("sem.loky-")}


@pytest.fixture(scope="session", autouse=True)
def _servants() -> None:
    """multiprocessing starts its fork server and resource tracker once; do it before anything is counted."""
    for method in ("forkserver", "spawn"):
        ProcessVectorEnv([TickEnv], start_method=method).close()


@pytest.fixture(autouse=True)
def _nothing_is_left(_servants: None, request: pytest.FixtureRequest) -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what lives now will go on living: collecting after a test looks at what is new
    shm, fds = _shared(), _descriptors()
    before = descendants(os.getpid())
    yield
    deadline = time.monotonic() + 20.0
    while True:
        left = descendants(os.getpid()).keys() - before.keys()
        descriptors = _descriptors()
        if (not left and (descriptors <= fds or "[ray]" in request.node.name)) or time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.02)
    assert not left, f"processes left behind: {left}"
    if "[ray]" not in request.node.name:  # Ray's client keeps a dozen open in the driver, however often it is started
        assert descriptors <= fds, f"{descriptors - fds} descriptors leaked"
    assert _shared() <= shm, "shared memory left behind"
