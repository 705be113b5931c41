"""CPU time: of this process with all it started, and of the whole machine. Linux, from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path


def machine_busy_s() -> float:
    """CPU seconds that all programs have had on all cores, and those that other virtual machines took; proc_stat(5)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def tree_cpu_s() -> float:
    """CPU seconds of this process and all that descend from it, those that have ended included.

    Not RUSAGE_CHILDREN: workers of a fork server are its children, not ours.
    """
    total, tick = time.process_time(), os.sysconf("SC_CLK_TCK")
    usage = dict(_processes())
    tree = {os.getpid()}
    while grown := {pid for pid, (parent, _, _) in usage.items() if parent in tree} - tree:
        tree |= grown
    for pid in tree & set(usage):
        _, own, reaped = usage[pid]
        total += (reaped if pid == os.getpid() else own + reaped) / tick
    return total


def _processes() -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(pid, (parent, clock ticks of its own, of its children that have ended)), proc_pid_stat(5)."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            yield int(path.parent.name), (int(fields[1]), sum(map(int, fields[11:13])), sum(map(int, fields[13:15])))
