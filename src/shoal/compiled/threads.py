"""A few threads that wait without spinning and run one kernel over ranges of environments.

The kernels release the GIL, so plain Python threads run them side by side. Numba's own parallel=True is not
used: its workers spin between calls, which cost 25x at 256 cheap environments on a busy machine.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from shoal.core.machine import usable_cores

HAND_OFF_S = 100e-6  # a thread must save well more than its waking costs, should it have fallen asleep (50 us)


def worthwhile(step_s: float, num_envs: int) -> int:
    """How many threads suit a step of `step_s` seconds on one thread."""
    return max(1, min(usable_cores(), num_envs, int(step_s / HAND_OFF_S)))


class Pool:
    """Runs `kernel(*arguments, low, high)` over `count` parts of a range; the caller takes one."""

    def __init__(self, count: int) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._call: Callable[[int, int], int] | None = None  # None tells a woken thread to end
        self._results: list[Any] = [None] * count
        # Locks as one-slot signals: released by the sender, acquired by the waiter.
        self._start = [threading.Lock() for _ in range(count)]
        self._finished = [threading.Lock() for _ in range(count)]
        for lock in (*self._start, *self._finished):
            lock.acquire()
        self._threads = [
            threading.Thread(target=self._work, args=(k,), name=f"shoal-kernel-{k}", daemon=True)
            for k in range(1, count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, kernel: Callable[..., int], arguments: tuple[Any, ...], total: int) -> list[int]:
        """All of range(total); one result per part. An exception of any is raised, when all have finished."""
        count = len(self._results)
        self._ranges = list(itertools.pairwise(total * k // count for k in range(count + 1)))
        self._call = lambda low, high: kernel(*arguments, low, high)
        for lock in self._start[1:]:
            lock.release()
        self._take(0)
        interrupted: KeyboardInterrupt | None = None
        for lock in self._finished[1:]:
            while True:  # leaving early would let the threads write into arrays that are being read
                try:
                    lock.acquire()
                    break
                except KeyboardInterrupt as error:
                    interrupted = error
        self._call = None
        if interrupted is not None:
            raise interrupted
        for result in self._results:
            if isinstance(result, BaseException):
                raise result
        return self._results

    def close(self) -> None:
        """End the threads and wait for them."""
        for lock in self._start[1:]:
            lock.release()
        for thread in self._threads:
            thread.join()
        self._threads, self._start, self._finished = [], [], []

    def _work(self, k: int) -> None:
        start, finished = self._start[k], self._finished[k]
        while True:
            start.acquire()
            if self._call is None:
                return
            self._take(k)
            finished.release()

    def _take(self, k: int) -> None:
        try:
            self._results[k] = self._call(*self._ranges[k])  # type: ignore[misc]
        except BaseException as error:  # handed to the caller's thread
            self._results[k] = error
