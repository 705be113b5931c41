"""95 % intervals of a mean, for few values and for many."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

HALF = 1.96  # standard errors on either side: 95 % of a normal distribution
ENOUGH_FOR_BOOTSTRAP = 30
_RESAMPLES = 10_000
# 97.5 % quantiles of Student's t with 1, 2, ... 28 degrees of freedom.
_T = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
)  # fmt: skip


def standard_error(values: Array) -> float:
    """Of the mean of values; 0 of one value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def normal(mean: float, error: float) -> tuple[float, float]:
    """95 % interval of a normal value with this standard error.

    >>> normal(10.0, 1.0)
    (8.04, 11.96)
    """
    return mean - HALF * error, mean + HALF * error


def interval(values: Array, seed: int = 0) -> tuple[float, float] | None:
    """95 % interval of a mean: by Student's t below 30 values, by the percentile bootstrap from there on.

    The bootstrap of few values is far too narrow (of 5 normal ones it covers the mean 85 times in 100). One value says
    nothing of its spread: None.

    >>> interval(np.ones(40))
    (1.0, 1.0)
    >>> interval(np.array([1.0, 3.0]))
    (-10.7062, 14.7062)
    >>> interval(np.ones(1)) is None
    True
    """
    count = len(values)
    if count < 2:
        return None
    if count < ENOUGH_FOR_BOOTSTRAP:
        mean, half = float(values.mean()), _T[count - 2] * float(values.std(ddof=1)) / count**0.5
        return round(mean - half, 12), round(mean + half, 12)
    rng = np.random.default_rng(seed)
    chunks = [values[rng.integers(0, count, (500, count))].mean(1) for _ in range(_RESAMPLES // 500)]
    low, high = np.quantile(np.concatenate(chunks), (0.025, 0.975))
    return float(low), float(high)
