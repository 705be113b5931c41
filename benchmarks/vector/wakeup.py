"""What it costs here to wake another process: the floor under every backend that hands a batch to workers.

python -m benchmarks.vector.wakeup [--store]
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.core.machine import usable_cores

_ROUNDS = 2000


def rows(say: Callable[[str], None]) -> list[Row]:
    """Median round trip of one byte over two pipes, on one core and across two."""
    cores = sorted(os.sched_getaffinity(0))[: usable_cores()]
    places = {"same core": (cores[0], cores[0])}
    if len(cores) > 1:
        places["other core"] = (cores[0], cores[1])
    found = []
    for name, (ours, theirs) in places.items():
        median_us = round_trip_us(ours, theirs)
        say(f"{name}: {median_us:.1f} us")
        found.append(Row(f"waking a process and being woken by it, {name}", median_us, "us"))
    return found


def round_trip_us(our_core: int, their_core: int) -> float:
    """One byte there and back, each process pinned to a core."""
    (there_out, there_in), (back_out, back_in) = os.pipe(), os.pipe()
    before = os.sched_getaffinity(0)
    child = os.fork()
    if child == 0:  # ends when the parent closes its pipe
        os.close(there_in)
        os.sched_setaffinity(0, {their_core})
        while os.read(there_out, 1):
            os.write(back_in, b"x")
        os._exit(0)
    try:
        os.sched_setaffinity(0, {our_core})
        times = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            os.write(there_in, b"x")
            os.read(back_out, 1)
            times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6
    finally:
        os.sched_setaffinity(0, before)
        os.close(there_in)
        os.waitpid(child, 0)
        for descriptor in (there_out, back_out, back_in):
            os.close(descriptor)


if __name__ == "__main__":
    stored.main("benchmarks.vector.wakeup", rows, __doc__)
