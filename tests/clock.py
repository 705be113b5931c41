"""Time limits in tests, on machines that are busy with other things; and who still lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def slowness() -> float:
    """How much this machine is held up by others: time over CPU time of a busy loop, at least 1."""
    wall, cpu = time.perf_counter(), time.process_time()
    while time.process_time() < cpu + 0.05:
        pass
    return max((time.perf_counter() - wall) / 0.05, 1.0)


def within(seconds: float, since: float) -> bool:
    """Whether no more time has passed since `time.monotonic()` was `since`. It may be twice as much for every time that
    the machine is slower than it is alone, which is measured only if the time is up."""
    took = time.monotonic() - since
    return took < seconds or took < 2 * seconds * slowness()


def until(true: Callable[[], Any], seconds: float = 60.0) -> bool:
    """Wait for a condition, but no longer than this; whether it came true."""
    end = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(found)


def lives(pid: int) -> bool:
    """Is it a process that is no mere entry of a table?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
