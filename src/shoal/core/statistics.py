"""95 % intervals of a mean, for few values and for many."""

from __future__ import annotations

import functools
import math

import numpy as np

from shoal.core.arrays import Array

HALF = 1.96  # standard errors on either side: 95 % of a normal distribution
ENOUGH_FOR_BOOTSTRAP = 30
_RESAMPLES = 10_000


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
        mean, half = float(values.mean()), round(t_quantile(count - 1.0), 4) * float(values.std(ddof=1)) / count**0.5
        return round(mean - half, 12), round(mean + half, 12)
    rng = np.random.default_rng(seed)
    chunks = [values[rng.integers(0, count, (500, count))].mean(1) for _ in range(_RESAMPLES // 500)]
    low, high = np.quantile(np.concatenate(chunks), (0.025, 0.975))
    return float(low), float(high)


def t_p_value(t: float, degrees: float) -> float:
    """Two-sided p-value of Student's t (by the continued fraction of the incomplete beta function).

    >>> round(t_p_value(2.2622, 9), 4), round(t_p_value(0.0, 3), 4), round(t_p_value(1.96, 1e9), 4)
    (0.05, 1.0, 0.05)
    """
    x, a, b = degrees / (degrees + t * t), degrees / 2, 0.5
    if x >= 1.0:
        return 1.0
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(x, a, b) / a
    return 1.0 - math.exp(log_front) * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """Lentz's way through the continued fraction (Abramowitz and Stegun 26.5.8)."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or tiny)
    found = d
    for m in range(1, 300):
        for top in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + top * d or tiny)
            c = 1.0 + top / c or tiny
            found *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return found


@functools.lru_cache(maxsize=512)
def t_quantile(degrees: float) -> float:
    """The value that |t| exceeds in 5 of 100 cases.

    >>> round(t_quantile(9.0), 4), round(t_quantile(1e6), 3)
    (2.2622, 1.96)
    """
    low, high = 0.0, 1e3
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if t_p_value(middle, degrees) > 0.05 else (low, middle)
    return high
