"""Shared by all tests: threads are capped, since oversubscribing two cores has cost tenfold; runs are in memory, since
a small training waits half a second for a disk and takes a tenth of that to compute."""

from __future__ import annotations

import os
import shutil
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts commands in the background like this
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else no child would hear the tests' Ctrl-C

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "svg")
os.environ["WANDB_MODE"] = "offline"
_MEMORY, _ROOM = "/dev/shm", 2 << 30  # bytes; the tests of a session write a tenth of it
if os.access(_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", _MEMORY)  # where tmp_path is

ONE_BY_ONE = ("faults", "cluster")  # they count what is left in /dev/shm


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `pytest -n 2 --dist loadgroup` these run one after the other, beside all others; the tests of any other
    file in one process, so that what a file shares is made once: a trained run, machine code."""
    for item in items:
        folder = item.path.parent
        alone = folder.parent.name == "tests" and folder.name in ONE_BY_ONE
        group = "one by one" if alone else f"{folder.name}/{item.path.stem}"
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(autouse=True, scope="session")
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is there before anybody counts what is in /dev/shm."""
    tmp_path_factory.getbasetemp()
