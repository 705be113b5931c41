"""The cost of waking a process."""

from __future__ import annotations

import os

from benchmarks.vector.wakeup import round_trip_us


def test_a_round_trip_is_measured_and_leaves_nothing_behind() -> None:
    """A plausible time, the caller's cores as they were, no child and no descriptor left."""
    cores, descriptors = os.sched_getaffinity(0), len(os.listdir("/proc/self/fd"))
    core = min(cores)
    assert 0.5 < round_trip_us(core, core) < 1e6
    assert os.sched_getaffinity(0) == cores
    assert len(os.listdir("/proc/self/fd")) == descriptors
