"""The options of the task as one frozen value: flags of `shoal train cage2`, arguments of `env.make`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Cage2Options:
    """What to defend against, for how long, and what Blue sees."""

    horizon: tuple[int, ...] = (100,)
    """Steps of an episode; of several numbers each episode draws one. The challenge scores 30, 50 and 100."""
    red: Literal["bline", "meander", "sleep", "mixed"] = "mixed"
    """The red agent; mixed draws one per episode."""
    mix: tuple[float, float, float] = (0.47, 0.47, 0.06)
    """Shares of bline, meander and sleep in mixed."""
    features: Literal["plain", "memory"] = "memory"
    """The 52 bits alone, or with what Blue can remember (docs/cage2.md)."""
    mask: Literal["none", "useful"] = "useful"
    """Whether actions that cannot do any good are masked."""
