"""CPU time: of this process with all it started, and of the whole machine. From Linux's /proc where there is one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PROCESSES = Path("/proc")


class Clock:
    """Wall and CPU seconds since it was made, those of worker processes included."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), tree_cpu_s()

    def cpu_s(self) -> float:
        return tree_cpu_s() - self._cpu

    def wall_s(self) -> float:
        return time.perf_counter() - self._wall


def machine_busy_s() -> float:
    """CPU seconds that all programs have had on all cores, and those that other virtual machines took; proc_stat(5)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, (_PROCESSES / "stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """CPU seconds of this process and all that descend from it, those that have ended included.

    RUSAGE_CHILDREN would not do: workers of a fork server are its children, not ours. It is what is left where there
    is no /proc (macOS), and this process alone where there is not even that (Windows).
    """
    total = time.process_time()
    if not hasattr(os, "sysconf") or not (_PROCESSES / "self" / "stat").exists():
        return total + _children_cpu_s()
    tick, usage, tree = os.sysconf("SC_CLK_TCK"), dict(_processes()), {os.getpid()}
    while grown := {pid for pid, (parent, _, _) in usage.items() if parent in tree} - tree:
        tree |= grown
    for pid in tree & set(usage):
        _, own, reaped = usage[pid]
        total += (reaped if pid == os.getpid() else own + reaped) / tick
    return total


def _children_cpu_s() -> float:
    try:
        import resource
    except ModuleNotFoundError:
        return 0.0
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _processes() -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(pid, (parent, clock ticks of its own, of its children that have ended)), proc_pid_stat(5)."""
    for path in _PROCESSES.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            yield int(path.parent.name), (int(fields[1]), sum(map(int, fields[11:13])), sum(map(int, fields[13:15])))
