"""Strategies replayed over a stored table of trainings: what they would have found, for minutes instead of days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.arrays import Array
from shoal.search.bandit import strategies
from shoal.search.bandit.strategies import Told, ranking


@dataclass(frozen=True)
class Training:
    """One independent training of an item."""

    mean: float
    se: float
    passed: bool = True


class Table:
    """Trainings of every item. A replay pulls from one half of them, the other half says what an item is worth.

    With one half for both, an item would be judged by the same luck by which it was picked. An item trained only once
    (a table of given values) is both. `kinds` says which trainings each item has, where several items share some.
    """

    def __init__(self, trainings: Sequence[Sequence[Training]], kinds: Sequence[int] | None = None) -> None:
        self.kinds = list(range(len(trainings)) if kinds is None else kinds)
        empty = [number for number, found in enumerate(trainings) if not found]
        if empty:
            raise ValueError(f"expected at least one training of each item, got none of {empty[:10]}")
        self.trainings = [list(found) for found in trainings]

    def split(self, seed: int) -> tuple[list[list[Training]], Array]:
        """The trainings to pull from, by kind, in random order, and every item's value by the others: float64[n]."""
        rng = np.random.default_rng([seed, 1])
        pulls, values = [], []
        for found in self.trainings:
            order = [found[i] for i in rng.permutation(len(found))]
            half = len(order) // 2
            pulls.append(order[: len(order) - half])
            values.append(float(np.mean([training.mean for training in order[len(order) - half :] or order])))
        return pulls, np.array(values)[self.kinds]

    @staticmethod
    def of_values(means: Sequence[float], errors: Sequence[float]) -> Table:
        """A table of one value per item; its error is the noise of a pull."""
        return Table([[Training(mean, se)] for mean, se in zip(means, errors, strict=True)])


def replay(name: str, points: Array, table: Table, pulls: int, seed: int) -> Array:
    """Simple regret after each pull, float64[pulls]: the value of the best item minus that of the one in the lead.

    In the lead is the best average so far among items that passed, by the same rule for every strategy. A value given
    without repetitions is pulled with normal noise of its error.
    """
    stock, values = table.split(seed)
    noise = np.random.default_rng([seed, 2])
    strategy = strategies.make(name, points, budget=pulls, seed=seed)
    told: list[Told] = []
    taken = [0] * len(stock)
    regrets = np.zeros(pulls)
    for pull in range(pulls):
        item = strategy.ask()
        kind = table.kinds[item]
        training = stock[kind][taken[kind] % len(stock[kind])]
        taken[kind] += 1
        mean = training.mean
        if len(table.trainings[kind]) == 1:
            mean += training.se * float(noise.standard_normal())
        strategy.tell(item, mean, training.se, training.passed)
        told.append(Told(item, mean, training.se, training.passed))
        regrets[pull] = values.max() - values[ranking(told)[0]]
    return regrets


def contest(
    points: Array, table: Table, pulls: int, seeds: Sequence[int], names: Sequence[str] = strategies.NAMES
) -> dict[str, Array]:
    """Regrets of each strategy, float64[seed, pull]; a seed gives all of them the same halves of the table."""
    return {name: np.array([replay(name, points, table, pulls, seed) for seed in seeds]) for name in names}
