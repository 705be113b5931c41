"""How long a long piece of work will take: said once it can be known, and again from time to time."""

from __future__ import annotations

import time
from collections.abc import Callable

KNOWN_AFTER_S = 2.0
WORTH_SAYING_S = 10.0
EVERY_S = 15.0


class Pace:
    """Told how much is done, it says how long the rest will take. Work of less than 10 seconds goes without a word.

    >>> times = iter([0.0, 1.0, 4.0, 5.0, 30.0])
    >>> pace = Pace(100, "episodes", print, clock=lambda: next(times))
    >>> for done in (2, 8, 10, 60):
    ...     pace.at(done)
    8 of 100 episodes, about 0:46 left
    60 of 100 episodes, about 0:20 left
    """

    def __init__(
        self, total: int, unit: str, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total, self._unit, self._say, self._clock = total, unit, say, clock
        self._began, self._said_at = clock(), float("-inf")

    def at(self, done: float, detail: str = "") -> None:
        """So much of the total is done; `detail` is shown where nothing is, yet."""
        now = self._clock()
        spent_s = now - self._began
        if spent_s < KNOWN_AFTER_S or now - self._said_at < EVERY_S or done >= self.total:
            return
        if done <= 0:
            if spent_s >= WORTH_SAYING_S:
                self._said_at = now
                self._say(f"0 of {self.total:,} {self._unit} after {clock_text(spent_s)}{detail}")
            return
        whole_s = spent_s * self.total / done
        if whole_s >= WORTH_SAYING_S:
            self._said_at = now
            left = clock_text(whole_s - spent_s)
            self._say(f"{int(done):,} of {self.total:,} {self._unit}, about {left} left")


def clock_text(seconds: float | None) -> str:
    """12 s as 0:12, an hour as 1:00:00.

    >>> clock_text(12.4), clock_text(3725), clock_text(None)
    ('0:12', '1:02:05', '-')
    """
    if seconds is None or not 0 <= seconds < float("inf"):
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
