"""Look for a message for a moment before going to sleep for it.

To wake a process on another core and be woken by it takes 33 to 64 us on the virtual machines we have seen
(benchmarks/results/wakeup.json), and a core that slept runs slower for a while: with batches of 300 us that is what a
step is made of. Looking costs the CPU time that it takes, so it is short, it makes room between two looks for whoever
else wants the core (the caller that is waited for, say), and where it does not pay (whoever is waited for takes longer)
it is soon given up.
"""

from __future__ import annotations

import os
import select
import time

_FAILURES = 3  # looks in vain, one after another, before looking is given up
_REST = 100  # waits without a look before it is tried again


class Lookout:
    """Looks at one descriptor for at most `seconds`; 0 means never."""

    def __init__(self, fd: int, seconds: float) -> None:
        self.seconds = seconds
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._failures = self._rest = 0

    def look(self) -> None:
        """Return when there is something to read or the time is up; the caller then reads, asleep if it must."""
        if not self.seconds:
            return
        if self._rest:
            self._rest -= 1
            return
        poll, clock, make_room = self._poll.poll, time.perf_counter, os.sched_yield
        end = clock() + self.seconds
        while not poll(0):
            make_room()
            if clock() > end:
                self._failures += 1
                if self._failures >= _FAILURES:
                    self._rest = _REST
                return
        self._failures = 0
