"""Orders (permutations) as points of a finite set, and how far apart they are."""

from __future__ import annotations

import itertools

import numpy as np

from shoal.core.arrays import Array


def all_ranks(count: int) -> Array:
    """Every order of `count` things as its rank vector, int64[count!, count], lexicographic by the orders.

    Row r says for each thing its place: order (2, 0, 1) has ranks (1, 2, 0).

    >>> all_ranks(3)[4].tolist()
    [1, 2, 0]
    """
    return np.array([np.argsort(order) for order in itertools.permutations(range(count))], np.int64)


def pair_signs(ranks: Array) -> Array:
    """Which of each pair of things comes first: +1 or -1, float64[n, pairs]."""
    first, second = np.triu_indices(ranks.shape[1], 1)
    return np.sign(np.asarray(ranks, np.float64)[:, second] - np.asarray(ranks, np.float64)[:, first])


def kendall(ranks: Array, others: Array | None = None) -> Array:
    """Kendall distances: the number of pairs on whose order two rank vectors disagree, float64[n, m].

    >>> kendall(np.array([[0, 1, 2]]), np.array([[0, 1, 2], [1, 0, 2], [2, 1, 0]])).tolist()
    [[0.0, 1.0, 3.0]]
    """
    signs = pair_signs(ranks)
    agreed: Array = signs @ (signs if others is None else pair_signs(others)).T
    return np.asarray((signs.shape[1] - agreed) / 2)


def check_ranks(ranks: Array) -> None:
    """Each row must be a permutation of 0, 1, ..., k - 1: tied or missing ranks would make the distance no metric."""
    if ranks.ndim != 2 or not (np.sort(ranks, 1) == np.arange(ranks.shape[1])).all():
        raise ValueError(f"expected rank vectors, rows that permute 0 .. k - 1, got {ranks.shape} {ranks[:1].tolist()}")
