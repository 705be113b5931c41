"""What in an order matters: how much having one thing before another is worth."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.arrays import Array
from shoal.search.bandit.gp import Posterior
from shoal.search.bandit.orders import pair_signs


@dataclass(frozen=True)
class Effect:
    """What it is worth to have `first` before `second` rather than the other way round, the other pairs being equal."""

    first: int
    second: int
    value: float  # at least 0: of the two directions, the one that pays
    std: float


def precedence(points: Array, posterior: Posterior) -> list[Effect]:
    """The effect of every pair, largest first: means and standard deviations of the posterior, not of single pulls.

    Least squares of the items' values on the signs of all pairs together: pairs that share a thing go together, and an
    average over one pair alone would credit it with its neighbours' effects. An effect is a weighted sum of values, so
    its variance follows from their covariances.
    """
    signs = pair_signs(points)  # [n, pairs], +1 where the first of a pair comes first
    weights = 2 * np.linalg.pinv(np.column_stack([np.ones(len(points)), signs]))[1:]  # [pairs, n]
    found = []
    for first, second, row in zip(*np.triu_indices(points.shape[1], 1), weights, strict=True):
        value = float(row @ posterior.mean)
        std = math.sqrt(max(0.0, float(row @ posterior.covariance @ row)))
        direction = (int(first), int(second)) if value >= 0 else (int(second), int(first))
        found.append(Effect(*direction, abs(value), std))
    return sorted(found, key=lambda effect: -effect.value)
