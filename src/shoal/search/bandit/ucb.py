"""GP-UCB: be optimistic where little is known (Srinivas et al. 2010)."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.arrays import Array
from shoal.search.bandit.gp import FiniteGP
from shoal.search.bandit.strategies import Told, shuffled


def srinivas(items: int, pull: int, *, delta: float = 0.1, scale: float = 0.2) -> float:
    """beta_t = scale 2 log(n t^2 pi^2 / (6 delta)), theorem 1 of Srinivas et al. 2010, "Gaussian process optimization
    in the bandit setting"; scaled down by 5 as in their experiments (section 6).

    >>> round(srinivas(120, 1, scale=1.0), 2)
    15.18
    """
    return scale * 2 * math.log(items * pull**2 * math.pi**2 / (6 * delta))


class UCB:
    """GP-UCB: the item whose posterior mean + sqrt(beta) x standard deviation is highest.

    A pull under way lowers the standard deviations as if it had come out at its posterior mean (Desautels et al. 2014,
    "Parallelizing exploration-exploitation tradeoffs"). A pull that did not pass says nothing of the item's value, but
    lowers the chance that this item and its neighbours pass: the height of the bound above the lowest posterior mean is
    weighted with that chance. An item is pulled again only when all have been.
    """

    def __init__(self, gp: FiniteGP, seed: int = 0) -> None:
        self.gp = gp
        self.items = len(gp.points)
        self.told: list[Told] = []
        self.pending: list[int] = []
        # Ties, of which a symmetric set has many, go to whoever comes first in an order of the seed's own.
        self._priority = np.argsort(shuffled(self.items, seed))

    def ask(self) -> int:
        heights = np.round(self.acquisition(), 9)  # ties in mathematics must be ties here, whatever the machine
        done = set(self.pending) | {pull.item for pull in self.told}
        if len(done) < self.items:
            heights[list(done)] = -np.inf
        best = np.flatnonzero(heights == heights.max())
        item = int(best[np.argmin(self._priority[best])])
        self.pending.append(item)
        return item

    def tell(self, item: int, mean: float, se: float, passed: bool = True) -> None:
        if item in self.pending:
            self.pending.remove(item)
        self.told.append(Told(item, mean, se, passed))

    def acquisition(self) -> Array:
        """float64[n], in standardised units: higher is asked first."""
        found = self.gp.posterior(*_columns([pull for pull in self.told if pull.passed]), self.pending)
        beta = srinivas(self.items, len(self.told) + len(self.pending) + 1)
        bound = found.mean + math.sqrt(beta) * found.std
        bound = (bound - found.mean.min()) / max(float(found.std.max()), 1e-12)
        return np.asarray(bound * self.chance_to_pass())

    def chance_to_pass(self) -> Array:
        """float64[n]: a share of pulls that passed, weighted by similarity, with one imagined pull that did."""
        if all(pull.passed for pull in self.told):
            return np.ones(self.items)
        at = np.array([pull.item for pull in self.told])
        passed = np.array([pull.passed for pull in self.told], np.float64)
        similarity = self.gp.similarity(at)  # [n, pulls]
        return np.asarray((1 + similarity @ passed) / (1 + similarity.sum(1)))


def _columns(pulls: list[Told]) -> tuple[list[int], list[float], list[float]]:
    return [pull.item for pull in pulls], [pull.mean for pull in pulls], [pull.se for pull in pulls]
