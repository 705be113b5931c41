"""Keep a worker on one core for as long as it has that core for itself.

With as many workers as cores, the kernel now and then wakes two of them on the same one, and the batch takes twice as
long while another core is idle: of batches of 2 ms, one in 50 (benchmarks/results/process_speed.json has the sum).
A worker that computes without a pause therefore stays where its number says. One that waits (for a simulator in a
process of its own, say, which must not inherit a core) or that has to share its core is left to the kernel.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

_WINDOW = 32  # steps between two decisions
_ALONE, _SHARED = 0.95, 0.8  # of the time on the core: from here on it stays, below here it is let go
_PATIENCE = 16  # windows after which one that was let go may be anchored again


class Anchor:
    """Anchors the calling process to `core` while that pays; None: never."""

    def __init__(self, core: int | None, clocks: tuple[Callable[[], float], Callable[[], float]] | None = None) -> None:
        self.core, self.held = core, False
        self._everywhere = os.sched_getaffinity(0) if core is not None else set()
        self._wall, self._cpu = clocks or (time.perf_counter, time.thread_time)
        self._steps = self._rest = 0
        self._wall_s = self._cpu_s = 0.0

    def begin(self) -> None:
        """A step begins."""
        if self.core is not None:
            self._wall_s -= self._wall()
            self._cpu_s -= self._cpu()

    def end(self) -> None:
        """A step has been taken; every so many, decide anew."""
        if self.core is None:
            return
        self._wall_s += self._wall()
        self._cpu_s += self._cpu()
        self._steps += 1
        if self._steps == _WINDOW:
            self._decide(self._cpu_s / max(self._wall_s, 1e-9))
            self._steps, self._wall_s, self._cpu_s = 0, 0.0, 0.0

    def _decide(self, share: float) -> None:
        if self.held and share < _SHARED:
            self._move(self._everywhere)
            self.held, self._rest = False, _PATIENCE
        elif not self.held and self._rest:
            self._rest -= 1
        elif not self.held and share >= _ALONE and self.core is not None:
            self._move({self.core})
            self.held = True

    def _move(self, cores: set[int]) -> None:
        with contextlib.suppress(OSError):  # a core may have been taken away from us: the kernel knows better
            os.sched_setaffinity(0, cores)


def core_of(worker: int, workers: int) -> int | None:
    """The core for one of so many workers: its own where there are as many as cores, else none."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return cores[worker] if workers == len(cores) > 1 else None
