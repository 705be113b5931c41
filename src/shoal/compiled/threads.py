"""A few threads that wait without spinning and run one kernel over ranges of environments.

The kernels release the GIL, so plain Python threads run them side by side. Numba's own parallel=True is not
used: its workers spin between calls, which cost 25x at 256 cheap environments on a busy machine.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Literal

from shoal.core.machine import usable_cores

HAND_OFF_S = 100e-6  # a thread must save well more than its waking costs, should it have fallen asleep (50 us)
_TRIAL_STEPS = 9  # threads="auto" decides by the median of so many
_LATE_S = 0.01


def worthwhile(step_s: float, num_envs: int) -> int:
    """How many threads suit a step of `step_s` seconds on one thread."""
    return max(1, min(usable_cores(), num_envs, int(step_s / HAND_OFF_S)))


class Pool:
    """Runs `kernel(*arguments, low, high)` over `count` parts of a range; the caller takes one."""

    def __init__(self, count: int) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._call: Callable[[int, int], Any] | None = None
        self._results: list[Any] = [None] * count
        self._turn, self._done = 0, [0] * count  # the number of the present call, and of each thread's last one
        self._closing = False
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

    def run(self, kernel: Callable[..., Any], arguments: tuple[Any, ...], total: int) -> list[Any]:
        """All of range(total); one result per part, in order. When all have finished, the exception of the lowest part
        that has one is raised."""
        if self._threads and not self._threads[0].is_alive():
            raise RuntimeError(
                "the threads of this environment are gone: a forked process does not inherit them. "
                "Make the environment after the fork"
            )
        self._finish()  # only a call that Ctrl-C broke off is not finished yet
        count = len(self._results)
        self._ranges = list(itertools.pairwise(total * k // count for k in range(count + 1)))
        self._call = lambda low, high: kernel(*arguments, low, high)
        self._turn += 1
        interrupted: KeyboardInterrupt | None = None
        try:
            for lock in self._start[1:]:
                _signal(lock)
            self._take(0)
        except KeyboardInterrupt as error:  # leaving at once would let the threads write into arrays that are read
            interrupted = error
        interrupted = self._finish() or interrupted
        self._call = None
        if interrupted is not None:
            raise interrupted
        for result in self._results:
            if isinstance(result, BaseException):
                raise result
        return self._results

    def close(self) -> None:
        """End the threads and wait for them."""
        self._closing = True
        for lock in self._start[1:]:
            _signal(lock)
        for thread in self._threads:
            thread.join()
        self._threads, self._start, self._finished = [], [], []

    def _finish(self) -> KeyboardInterrupt | None:
        """Wait until every thread has done the present call. Ctrl-C does not end that: it is returned afterwards."""
        interrupted: KeyboardInterrupt | None = None
        for k in range(1, len(self._done)):
            while self._done[k] != self._turn:
                try:
                    if not self._finished[k].acquire(timeout=_LATE_S):
                        _signal(self._start[k])  # an interrupt may have come before it was
                except KeyboardInterrupt as error:
                    interrupted = error
        return interrupted

    def _work(self, k: int) -> None:
        start, finished = self._start[k], self._finished[k]
        while True:
            start.acquire()
            if self._closing:
                return
            if self._done[k] != self._turn:  # signalled once too often otherwise
                self._take(k)
                self._done[k] = self._turn
                _signal(finished)

    def _take(self, k: int) -> None:
        try:
            assert self._call is not None
            self._results[k] = self._call(*self._ranges[k])
        except BaseException as error:  # handed to the caller's thread
            self._results[k] = error


class StepThreads:
    """Steps a compiled environment over some threads, or, with "auto", over as many as its first steps call for."""

    def __init__(self, step: Callable[..., int], num_envs: int, count: int | Literal["auto"]) -> None:
        self._step, self._num_envs = step, num_envs
        self._trial: list[float] | None = [] if count == "auto" else None  # seconds of the first steps
        self._pool: Pool | None = None
        self.is_plain = False  # one thread, and nothing to find out: the kernel may be called as it is
        self._use(1 if count == "auto" else count)

    def run(self, arguments: tuple[Any, ...]) -> int:
        """One step of all: what the step kernel returns, of several faults the one of the lowest environment."""
        started = time.perf_counter()
        if self._pool is None:
            ended = self._step(*arguments, 0, self._num_envs)
        else:
            ended = self._step(*arguments, 0, 0)  # looks at all actions, once
            if ended >= 0:
                results = self._pool.run(self._part, arguments, self._num_envs)
                faults = [result for result in results if result < 0]
                ended = max(faults) if faults else sum(results)
        if self._trial is not None:
            self._trial.append(time.perf_counter() - started)
            if len(self._trial) == _TRIAL_STEPS:
                step_s, self._trial = sorted(self._trial)[_TRIAL_STEPS // 2], None
                self._use(worthwhile(step_s, self._num_envs))
        return ended

    def close(self) -> None:
        """End the threads."""
        self._use(1)

    def _use(self, count: int) -> None:
        if self._pool is not None:
            self._pool.close()
        self.count, self._pool = count, None
        if count > 1:
            self._pool = Pool(count)
            weakref.finalize(self, self._pool.close)
        self.is_plain = self._pool is None and self._trial is None

    def _part(self, *arguments: Any) -> int:
        *arrays, low, high = arguments
        return self._step(*arrays, ~low, high)  # the actions are known to be fine


def _signal(lock: threading.Lock) -> None:
    """Only one thread signals with a lock, so nobody else can release it in between."""
    if lock.locked():
        lock.release()
