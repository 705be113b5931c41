"""Effects between two groups of runs: intervals, p-values, what could have been seen, Holm's correction.

Means are compared by Student's t, interquartile means by the bootstrap. The percentile bootstrap of n runs is too
narrow: its spread lacks a factor sqrt(n / (n - 1)), which is put back; below 10 runs Student's t takes the place of the
normal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from shoal.core.arrays import Array
from shoal.core.seeds import generator
from shoal.core.statistics import HALF, standard_error, t_p_value, t_quantile

RESAMPLES = 4_000
SURE_FROM = 10  # runs: from here on a verdict is not called provisional
LEAST = 5  # runs: below, figures but no verdict
POWER = 0.8416  # standard errors beyond the critical value: an effect of that size is seen in 80 % of comparisons
Statistic = Callable[[Array], Array]  # of values [..., n] -> [...]
_NORMAL = NormalDist()


def iqm(values: Array) -> Array:
    """Interquartile mean: the mean of the middle half, along the last axis.

    >>> float(iqm(np.array([0.0, 1.0, 2.0, 100.0])))
    1.5
    """
    count = values.shape[-1]
    whole, part = divmod(count / 4, 1.0)
    weights = np.ones(count)
    low = int(whole)
    weights[:low] = weights[count - low :] = 0.0
    weights[low] = weights[count - low - 1] = 1.0 - part
    weighted: Array = (np.sort(values, -1) * weights).sum(-1) / weights.sum()
    return weighted


def mean(values: Array) -> Array:
    """Along the last axis."""
    found: Array = values.mean(-1)
    return found


def log_mean(values: Array) -> Array:
    """Logarithm of the geometric mean; the difference of two is the logarithm of a ratio."""
    return mean(np.log(values))


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float | None
    high: float | None
    runs: int


@dataclass(frozen=True)
class Effect:
    """What the second group has more than the first."""

    value: float
    low: float
    high: float
    p: float
    detectable: float  # the smallest effect that such a comparison finds in 80 of 100 cases
    paired: bool


def estimate(values: Sequence[float], statistic: Statistic) -> Estimate:
    """One group's figure."""
    array = np.asarray(values, np.float64)
    value = float(statistic(array)) if len(array) else math.nan
    if len(array) < 2:
        return Estimate(value, None, None, len(array))
    if statistic is iqm:
        return Estimate(value, *_bounds(iqm(array[_rows(len(array), 0)]), widening(len(array))), len(array))
    half = t_quantile(len(array) - 1.0) * standard_error(_means_of(array, statistic))
    return Estimate(value, value - half, value + half, len(array))


def effect(first: Sequence[float], second: Sequence[float], statistic: Statistic, paired: bool) -> Effect:
    """The difference statistic(second) - statistic(first). Paired: value i of both is of the same seed."""
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if statistic is not iqm:
        return _by_student(_means_of(a, statistic), _means_of(b, statistic), paired)
    drawn = iqm(b[_rows(len(b), 0 if paired else 1)]) - iqm(a[_rows(len(a), 0)])  # paired: both of a seed or neither
    wide = widening(min(len(a), len(b)))
    low, high = _bounds(drawn, wide)
    detectable = float(drawn.std()) * (wide * HALF + POWER)
    return Effect(float(iqm(b) - iqm(a)), low, high, _p(drawn, wide), detectable, paired)


def _by_student(a: Array, b: Array, paired: bool) -> Effect:
    """Of means: the paired t-test, or Welch's."""
    value = float(b.mean() - a.mean())
    if paired:
        error, degrees = standard_error(b - a), len(a) - 1.0
    else:
        parts = standard_error(a) ** 2, standard_error(b) ** 2
        error = math.sqrt(sum(parts))
        spread = parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1)
        degrees = sum(parts) ** 2 / spread if spread > 0 else float(min(len(a), len(b)) - 1)
    reach = t_quantile(round(degrees, 3))
    p = t_p_value(abs(value) / error, degrees) if error > 0 else float(value == 0)
    return Effect(value, value - reach * error, value + reach * error, p, (reach + POWER) * error, paired)


def _means_of(values: Array, statistic: Statistic) -> Array:
    """What the mean is taken of."""
    return np.log(values) if statistic is log_mean else values


def widening(runs: int) -> float:
    """How much farther than a bootstrap's own an interval of so many runs reaches.

    >>> round(widening(5), 2), round(widening(10), 3), round(widening(20), 3)
    (1.58, 1.054, 1.026)
    """
    tails = t_quantile(runs - 1.0) / HALF if runs < SURE_FROM else 1.0
    return tails * math.sqrt(runs / (runs - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979): below 0.05, with at most 5 % any of them by chance.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, largest = [0.0] * len(p_values), 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[i]))
        corrected[i] = largest
    return corrected


def _bounds(drawn: Array, wide: float) -> tuple[float, float]:
    tail = _NORMAL.cdf(-HALF * wide)
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return float(low), float(high)


def _p(drawn: Array, wide: float) -> float:
    """Two-sided, and below 0.05 just where the interval leaves out 0."""
    below = float((drawn < 0).sum() + 0.5 * (drawn == 0).sum() + 0.5) / (len(drawn) + 1)
    return 2 * _NORMAL.cdf(-abs(_NORMAL.inv_cdf(below)) / wide)


@functools.lru_cache(maxsize=64)
def _rows(count: int, stream: int) -> Array:
    """Resamples int64[RESAMPLES, count]: the same ones for every metric."""
    return generator(0, count, stream).integers(0, count, (RESAMPLES, count))
