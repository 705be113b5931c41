"""Keep a worker on one core for as long as it has that core for itself.

With as many workers as cores, the kernel now and then wakes two of them on the same one, and the batch takes twice as
long while another core is idle: of batches of 2 ms, one in 50 (benchmarks/results/process_speed.json has the sum).
A worker that computes without a pause therefore stays where its number says. One that waits or has to share its core
is left to the kernel, and so is, for good, one whose environment starts a process or a thread: that would inherit the
core.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

_WINDOW = 32  # steps between two decisions
_ALONE, _SHARED = 0.95, 0.8  # of the time on the core: from here on it stays, below here it is let go
_PATIENCE = 16  # windows after which one that was let go may be anchored again
# What Python says before it starts a process or a thread (docs.python.org, "Audit events table").
_STARTS = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "_thread.start_new_thread"}
)


class Anchor:
    """Anchors the calling process to `core` while that pays; None: never."""

    def __init__(self, core: int | None, clocks: tuple[Callable[[], float], Callable[[], float]] | None = None) -> None:
        self._everywhere = os.sched_getaffinity(0) if core is not None else set()
        self.core = core if core in self._everywhere else None  # an environment may have chosen for itself
        self.held = False
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

    def hear(self, event: str, _: object) -> None:
        """An audit hook: whatever is started next shall run anywhere, and its worker beside it."""
        if event in _STARTS and self.core is not None:
            self._let_go()
            self.core = None

    def _decide(self, share: float) -> None:
        if self.held:
            if share < _SHARED:
                self._let_go()
                self._rest = _PATIENCE
        elif self._rest:
            self._rest -= 1
        elif share >= _ALONE and self.core is not None:
            with contextlib.suppress(OSError):  # the core may have been taken away from us: the kernel knows better
                os.sched_setaffinity(0, {self.core})
                self.held = True

    def _let_go(self) -> None:
        if self.held:
            self.held = False
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, self._everywhere)


def core_of(worker: int, workers: int) -> int | None:
    """The core for one of so many workers: its own where there are as many as cores, else none."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))
    return cores[worker] if workers == len(cores) > 1 else None
