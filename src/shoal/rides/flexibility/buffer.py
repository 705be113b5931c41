"""What the flexibility model remembers: the last answers, with a fair share for every rider.

A plain queue of the last answers forgets riders who have not called for a while. Here, when room runs out, all riders
keep their own latest answers up to one common quota, as large as the room allows: whoever answered little loses
nothing. The quota only falls as answers come, so making room early or late leaves the same answers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.rides.world.answers import ANSWER

Array = np.ndarray[Any, Any]


def fair_quota(counts: Array, capacity: int) -> int:
    """The largest quota with sum(min(counts, quota)) <= capacity.

    >>> fair_quota(np.array([10, 2, 9]), 12)
    5
    """
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(counts, middle).sum()) <= capacity:
            low = middle
        else:
            high = middle - 1
    return low


def latest_of_each(answers: Array, capacity: int, num_riders: int) -> Array:
    """At most `capacity` answers, in their order: of each rider the latest ones, up to the fair quota."""
    if len(answers) <= capacity:
        return answers
    rider = answers["rider"]
    counts = np.bincount(rider, minlength=num_riders)
    quota = fair_quota(counts, capacity)
    order = np.argsort(rider, kind="stable")
    position = np.empty(len(answers), np.int64)
    position[order] = np.arange(len(answers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(answers[counts[rider] - position <= quota])


class AnswerBuffer:
    """A bounded memory of answers. Cheap to add to: room is made a quarter of the capacity at a time."""

    def __init__(self, capacity: int, num_riders: int) -> None:
        if capacity < num_riders:
            raise ValueError(f"expected room for an answer of each of {num_riders} riders at least, got {capacity}")
        self.capacity, self.num_riders = capacity, num_riders
        self._rows = np.zeros(capacity + max(1, capacity // 4), ANSWER)
        self._size = 0

    def add(self, answers: Array) -> None:
        """Remember answers, the latest last."""
        for start in range(0, len(answers), max(1, self.capacity // 4)):
            part = answers[start : start + max(1, self.capacity // 4)]
            if self._size + len(part) > len(self._rows):
                self._shrink()
            self._rows[self._size : self._size + len(part)] = part
            self._size += len(part)

    def answers(self) -> Array:
        """ANSWER[K], K <= capacity, in the order of their coming; a copy."""
        self._shrink()
        return self._rows[: self._size].copy()

    def clear(self) -> None:
        """Forget everything."""
        self._size = 0

    def _shrink(self) -> None:
        kept = latest_of_each(self._rows[: self._size], self.capacity, self.num_riders)
        self._rows[: len(kept)] = kept
        self._size = len(kept)
