"""Shared by all tests: threads are capped, since oversubscribing two cores has cost tenfold."""

from __future__ import annotations

import os
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts commands in the background like this
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else no child would hear the tests' Ctrl-C

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("MPLBACKEND", "svg")
os.environ["WANDB_MODE"] = "offline"

ONE_BY_ONE = ("faults", "cluster", "vector", "benchmarks")  # they count what is left in /dev/shm, or look at clocks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under `pytest -n 2 --dist loadgroup` these run one after the other, beside all others."""
    for item in items:
        if item.path.parent.name in ONE_BY_ONE:
            item.add_marker(pytest.mark.xdist_group("one by one"))
