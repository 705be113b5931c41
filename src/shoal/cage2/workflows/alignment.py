"""How obedience enters the reward of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

Method = Literal["none", "lagrange", "reward"]
METHODS = ("none", "lagrange", "reward")
PLAIN, LAGRANGE, REWARD = range(3)
MARGIN = 0.04  # the multiplier aims so far above what is asked: the lower end of an interval has to reach that
RATE_WEIGHT = 10.0  # lambda of "reward"


@dataclass(frozen=True)
class Alignment:
    """How obedience enters the reward of training.

    lagrange: every violation costs the multiplier, which rises while the compliance of the finished episodes is under
    the target and falls above it. reward: `weight` times the change of the episode's compliance rate each step; the
    rate counts as 1 before the first fix, so no fix is rewarded for being made.
    """

    method: Method = "lagrange"
    target: float = 0.99
    """Compliance at which the multiplier rests; above the 95 % that are asked, for the interval's lower end."""
    weight: float = 5.0
    """The multiplier at the start; with `reward`, lambda."""
    rate: float = 10.0
    """How fast the multiplier moves: per update, times the distance from the target."""
    most: float = 20.0
    """The multiplier's bound."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"alignment: expected one of {', '.join(METHODS)}, got {self.method!r}")
        if not 0 < self.target <= 1:
            raise ValueError(f"target: expected a share above 0 and at most 1, got {self.target}")
        if not 0 <= self.weight <= self.most or self.rate < 0:
            raise ValueError(f"expected 0 <= weight <= most and rate >= 0, got {self}")

    @staticmethod
    def named(method: str, threshold: float = 0.95) -> Alignment:
        """A method with settings that suit it, for a compliance that is to reach `threshold`.

        >>> Alignment.named("lagrange").target
        0.99
        """
        target = min(1.0, round(threshold + MARGIN, 12))
        return Alignment(cast(Method, method), target, weight=RATE_WEIGHT if method == "reward" else 5.0)

    def moved(self, weight: float, compliance: float | None) -> float:
        """The weight after an update in which this was the compliance (None: no fix was judged).

        >>> Alignment(target=0.95, rate=10).moved(1.0, 0.90)
        1.5
        """
        if self.method != "lagrange" or compliance is None:
            return weight
        return round(min(max(weight + self.rate * (self.target - compliance), 0.0), self.most), 12)
