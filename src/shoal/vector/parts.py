"""What all batches are told alike, how one is cut into slices, who owns what of it, and how many faults it may
survive."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

from gymnasium.vector import AutoresetMode

from shoal.core.errors import EnvFault, too_many_restarts
from shoal.core.own import parse_autoreset
from shoal.core.seeds import Stream

POLICIES = ("fail", "restart")
SLICES = ("lockstep", "double", "ready")


@dataclass(frozen=True)
class Common:
    """The options that `serial`, `process`, `split` and `ray` share; ValueError where one makes no sense."""

    stream: Stream = Stream.TRAIN
    on_fault: str = "fail"
    max_restarts: int = 10
    restart_window: int = 10_000
    check_finite: bool = True
    autoreset_mode: str | AutoresetMode = "same_step"

    def __post_init__(self) -> None:
        if self.on_fault not in POLICIES:
            raise ValueError(f"expected on_fault as one of {', '.join(POLICIES)}, got {self.on_fault!r}")
        if self.max_restarts < 0 or self.restart_window < 1:
            raise ValueError(
                f"expected max_restarts >= 0 and restart_window >= 1, got {self.max_restarts} and {self.restart_window}"
            )
        object.__setattr__(self, "autoreset_mode", parse_autoreset(self.autoreset_mode))

    @property
    def of_chunks(self) -> dict[str, Any]:
        """What a `Chunk` is told of them, wherever it lives."""
        return {
            "stream": self.stream,
            "restart": self.on_fault == "restart",
            "max_restarts": self.max_restarts,
            "check_finite": self.check_finite,
            "next_step": self.autoreset_mode == AutoresetMode.NEXT_STEP,
        }


class Restarts:
    """The faults that a batch survived, and whether they are too many within a window of steps."""

    def __init__(self, most: int, window: int, slices: int) -> None:
        self.most, self.window, self._receives = most, window, window * slices
        self.faults: list[EnvFault] = []  # oldest first
        self.time = 0  # receives of slices so far
        self._times: deque[int] = deque()

    def add(self, faults: list[EnvFault]) -> None:
        """Faults survived now; where they are too many, that is raised."""
        self.faults += faults
        self._times.extend([self.time] * len(faults))
        while self._times and self._times[0] <= self.time - self._receives:
            self._times.popleft()
        if len(self._times) > self.most:
            raise too_many_restarts(len(self._times), f"within {self.window} steps", self.most, self.faults[-1])


def cut(num_envs: int, parts: int) -> list[slice]:
    """`num_envs` cut into `parts` contiguous slices whose sizes differ by at most one.

    >>> [(rows.start, rows.stop) for rows in cut(7, 3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    size, extra = divmod(num_envs, parts)
    edges = [0]
    for part in range(parts):
        edges.append(edges[-1] + size + (part < extra))
    return [slice(a, b) for a, b in itertools.pairwise(edges)]


def check_options(
    num_envs: int, workers: int | None, slices: str, step_timeout_s: float, start_timeout_s: float
) -> None:
    """The options of a batch over workers."""
    if num_envs < 1:
        raise ValueError("expected at least one environment, got none")
    if workers is not None and workers < 1:
        raise ValueError(f"expected at least one worker, got {workers}")
    if slices not in SLICES:
        raise ValueError(f"expected slices as one of {', '.join(SLICES)}, got {slices!r}")
    if not step_timeout_s > 0 or not start_timeout_s > 0:
        raise ValueError(f"expected timeouts above 0 s, got {step_timeout_s} and {start_timeout_s}")


def owned_rows(number: int, count: int, parts: list[slice], by_readiness: bool, here: int) -> list[tuple[int, slice]]:
    """The rows of each slice that worker `number` of `count` owns; the first `here` of all are nobody's."""
    if by_readiness:
        return [(number, parts[number])]
    owned = []
    for part, whole in enumerate(parts):
        first = max(whole.start, here)
        rows = cut(whole.stop - first, count)[number]
        if rows.stop > rows.start:
            owned.append((part, slice(rows.start + first, rows.stop + first)))
    return owned
