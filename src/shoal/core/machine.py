"""What this process may use of the machine: cores, the limits of its control groups, and a clock."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time
from pathlib import Path

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h


def usable_cores() -> int:
    """Cores that this process may run on; in a container with a quota of CPU time, so many as it is worth. Ranks that
    train together on this machine share them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(cores, _quota()) // ranks_here(), 1)


def own_rank() -> int:
    """Which of the processes of `torchrun` this is; 0 where there is only one."""
    return _whole("RANK") if ranked() else 0


def ranks_here() -> int:
    """How many processes train together on this machine."""
    return max(_whole("LOCAL_WORLD_SIZE"), 1) if ranked() else 1


def ranked() -> bool:
    """Whether this is one of several processes of `torchrun`."""
    return _whole("WORLD_SIZE") > 1


def _whole(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


def _quota(root: Path = Path("/")) -> int:
    """CPUs that the quotas of this process's control groups allow, rounded up; the least of them all counts."""
    allowed = [sys.maxsize]
    for folder in control_groups("cpu", root):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            quota, period = (folder / "cpu.max").read_text().split()  # v2: "200000 100000" is 2
            allowed.append(-(-int(quota) // int(period)))
        with contextlib.suppress(OSError, ValueError):
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))  # v1
            if int(quota) > 0:
                allowed.append(-(-int(quota) // int(period)))
    return min(allowed)


def control_groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """The folders of the control groups that this process is in, the innermost first: a limit of any of them holds.

    Of cgroup v2 and, where `controller` (cpu, memory) is mounted that way, of v1. In a container the path that
    /proc/self/cgroup names may be the host's, which is not there: its parents up to the mount are.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    mount = root / "sys/fs/cgroup"
    found: list[Path] = []
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names and controller not in names.split(","):
            continue
        base = mount / names if names and (mount / names).is_dir() else mount / controller if names else mount
        inner = base / path.lstrip("/")
        while inner != base and base in inner.parents:
            found.append(inner)
            inner = inner.parent
        found.append(base)
    return found or [mount]


class Stopwatch:
    """Adds up the seconds of `with` blocks.

    >>> watch = Stopwatch()
    >>> with watch:
    ...     pass
    >>> 0 < watch.take() < 1, watch.seconds
    (True, 0.0)
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.perf_counter() - self._start

    def take(self) -> float:
        """The seconds so far; it begins anew."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def keep_freed_memory() -> None:
    """Let glibc keep what is freed for what is allocated next. By default it gives large blocks back to the system, and
    a gradient step of convolutions allocates the same hundred megabytes again: a fifth of its time went into page
    faults. Elsewhere nothing is done."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # musl has no mallopt, Windows no such library
        libc = ctypes.CDLL(None)
        libc.malloc_trim(0)  # once, what was free before
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
