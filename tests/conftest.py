"""Shared by all tests: threads are capped, since oversubscribing two cores has cost tenfold; runs are in memory, since
a small training waits half a second for a disk and takes a tenth of that to compute."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

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

ONE_BY_ONE = ("tests/faults/", "tests/cluster/")  # they count what is left in /dev/shm


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `pytest -n 2 --dist loadgroup` the tests of a file run in one process, so that what they share is made
    once: a trained run, machine code; and those of ONE_BY_ONE run one after the other. Marks of xdist_group would not
    do: with pytest 9.2, pytest-xdist 3.8 writes the group where nobody reads it."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "one by one" if nodeid.startswith(ONE_BY_ONE) else nodeid.split("::")[0]

    config.option.loadscopereorder = False  # as collected: what comes last, the examples of docstrings, is short
    return ByFile(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(autouse=True, scope="session")
def _temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It is there before anybody counts what is in /dev/shm."""
    tmp_path_factory.getbasetemp()
