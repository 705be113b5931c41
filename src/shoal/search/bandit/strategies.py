"""How to choose the next pull: `ask() -> item`, `tell(item, mean, se, passed)`.

Items are numbers 0 .. n - 1 of a finite set. What a strategy asks is a function of its seed and of what it was asked
and told so far, in that order: repeating both brings it back to the same state, which is how a search is resumed.
Several items may be asked for before the first is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shoal.core.arrays import Array
from shoal.core.seeds import generator

NAMES = ("ucb", "random", "halving")


class Strategy(Protocol):
    """The two methods."""

    def ask(self) -> int: ...

    def tell(self, item: int, mean: float, se: float, passed: bool = True) -> None: ...


@dataclass(frozen=True)
class Told:
    """One pull as it was told."""

    item: int
    mean: float
    se: float
    passed: bool


def shuffled(items: int, seed: int, sweep: int = 0) -> Array:
    """The items in an order of the seed's own, int64[items]: where knowledge ends, every strategy goes by it.

    So all strategies of a seed begin with the same item, and what they differ in is what they learnt.
    """
    return generator(seed, sweep).permutation(items)


class RandomSearch:
    """Every item once in random order, then all over again."""

    def __init__(self, items: int, seed: int = 0) -> None:
        self.items, self.seed, self.asked = items, seed, 0

    def ask(self) -> int:
        sweep, place = divmod(self.asked, self.items)
        self.asked += 1
        return int(shuffled(self.items, self.seed, sweep)[place])

    def tell(self, item: int, mean: float, se: float, passed: bool = True) -> None:
        """Random search does not listen."""


class Halving:
    """Successive halving: a random field of items, the better half of which is pulled again, until one is left.

    The field is the largest whose rounds fit the budget of pulls; what is left of the budget goes to the last one.
    """

    def __init__(self, items: int, budget: int, seed: int = 0) -> None:
        if budget < 1:
            raise ValueError(f"expected a budget of at least 1 pull, got {budget}")
        field = max(size for size in range(1, items + 1) if size == 1 or sum(rounds(size)) <= budget)
        self.field = [int(item) for item in shuffled(items, seed)[:field]]
        self.queue = list(self.field)
        self.told: list[Told] = []

    def ask(self) -> int:
        """While results of a round are missing, the next round goes by those that are there."""
        if not self.queue:
            if len(self.field) > 1:
                standing = {item: place for place, item in enumerate(ranking(self.told))}
                ordered = sorted(self.field, key=lambda item: standing.get(item, len(standing)))
                self.field = ordered[: len(self.field) // 2]
            self.queue = list(self.field)
        return self.queue.pop(0)

    def tell(self, item: int, mean: float, se: float, passed: bool = True) -> None:
        self.told.append(Told(item, mean, se, passed))


def rounds(field: int) -> list[int]:
    """Sizes of the rounds of successive halving.

    >>> rounds(10)
    [10, 5, 2, 1]
    """
    sizes = [field]
    while sizes[-1] > 1:
        sizes.append(sizes[-1] // 2)
    return sizes


def ranking(told: Sequence[Told]) -> list[int]:
    """Items by the average of their pulls, best first; those of which none passed come last."""
    averages: dict[int, tuple[bool, float]] = {}
    for item in dict.fromkeys(pull.item for pull in told):
        own = [pull for pull in told if pull.item == item]
        passed = [pull.mean for pull in own if pull.passed]
        averages[item] = (bool(passed), float(np.mean(passed or [pull.mean for pull in own])))
    return sorted(averages, key=lambda item: averages[item], reverse=True)


def make(name: str, points: Array, *, budget: int, seed: int) -> Strategy:
    """A strategy by name, over the rows of `points`; `budget` is the number of pulls it will have."""
    if name == "ucb":
        from shoal.search.bandit.gp import FiniteGP
        from shoal.search.bandit.ucb import UCB

        return UCB(FiniteGP(points), seed)
    if name == "random":
        return RandomSearch(len(points), seed)
    if name == "halving":
        return Halving(len(points), budget, seed)
    raise ValueError(f"expected a strategy of {', '.join(NAMES)}, got {name!r}")
