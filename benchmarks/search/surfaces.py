"""Surfaces over orders whose best is known, to measure strategies on before trainings are spent on them."""

from __future__ import annotations

import numpy as np

from shoal.core.arrays import Array
from shoal.search.bandit.orders import all_ranks, kendall, pair_signs
from shoal.search.bandit.strategies import Strategy

FAMILIES = ("mallows", "precedence", "position")


def surface(family: str, seed: int, *, count: int = 5, length_scale: float = 5.0) -> Array:
    """A value for every order of `count` things, with mean 0 and standard deviation 1: float64[count!].

    mallows: a draw from the Gaussian process with the Mallows kernel. precedence: a weight for each pair of things,
    paid to an order that has the first of them first. position: a weight for each thing in each place.
    """
    ranks = all_ranks(count)
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    if family == "mallows":
        kernel = np.exp(-kendall(ranks) / length_scale)
        values = np.linalg.cholesky(kernel + 1e-10 * np.eye(len(ranks))) @ rng.standard_normal(len(ranks))
    elif family == "precedence":
        values = pair_signs(ranks) @ rng.standard_normal(count * (count - 1) // 2)
    else:
        values = rng.standard_normal((count, count))[np.arange(count), ranks].sum(1)
    return np.asarray((values - values.mean()) / values.std())


def pulls_to_top(strategy: Strategy, values: Array, seed: int, *, share: float = 0.05, noise: float = 0.1) -> int:
    """Pulls until the first of the best `share` of the items; each pull is told with normal noise."""
    top = set(np.argsort(-values)[: max(1, round(share * len(values)))].tolist())
    rng = np.random.default_rng([seed, len(FAMILIES)])
    for pull in range(1, len(values) + 1):
        item = strategy.ask()
        if item in top:
            return pull
        strategy.tell(item, float(values[item] + noise * rng.standard_normal()), noise, True)
    return len(values) + 1
