"""Do the items differ at all? The variance between items against the noise of measuring them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIKE = 0.05  # p-value from which on items are not called different


@dataclass(frozen=True)
class Difference:
    """A test of "all items are alike"."""

    test: str
    statistic: float
    p: float
    between_std: float  # estimated standard deviation of the items' values
    noise_std: float  # of one pull of one item
    share: float  # of the variance of a pull that lies between items, 0 to 1
    share_low: float  # its 95 % interval
    share_high: float

    @property
    def alike(self) -> bool:
        """Whether chance alone explains the spread."""
        return self.p >= ALIKE


def single_pulls(means: Sequence[float], errors: Sequence[float]) -> Difference | None:
    """Cochran's Q of items pulled once each; None for fewer than two, or for errors of 0.

    The noise is the measured error of evaluation alone: what another training seed would change counts as a difference
    here. `repeated_pulls` tells the two apart.
    """
    values, noise = np.asarray(means, float), np.asarray(errors, float)
    if len(values) < 2 or not (noise > 0).all():
        return None
    from scipy.stats import chi2

    weights = 1 / noise**2
    centre = float((weights * values).sum() / weights.sum())
    q, freedom = float((weights * (values - centre) ** 2).sum()), len(values) - 1
    # DerSimonian & Laird's moment estimate of the variance between items.
    between = max(0.0, (q - freedom) / float(weights.sum() - (weights**2).sum() / weights.sum()))
    within = float((noise**2).mean())
    # Q / (1 + between / within) is chi-squared for equal errors: its quantiles bound the ratio. The share is I squared
    # (Higgins & Thompson 2002), the same ratio at the distribution's mean, so that it lies within its interval.
    low, high = (max(0.0, q / chi2.ppf(share, freedom) - 1) for share in (0.975, 0.025))
    return Difference(
        "Cochran's Q", q, float(chi2.sf(q, freedom)), math.sqrt(between), math.sqrt(within),
        max(0.0, 1 - freedom / q) if q > 0 else 0.0, low / (1 + low), high / (1 + high),
    )  # fmt: skip


def repeated_pulls(groups: Sequence[Sequence[float]]) -> Difference | None:
    """One-way analysis of variance of items pulled several times, independently; None without repetitions."""
    data = [np.asarray(group, float) for group in groups if len(group)]
    total, count = sum(map(len, data)), len(data)
    if count < 2 or total <= count:
        return None
    from scipy.stats import f

    centre = np.concatenate(data).mean()
    within = float(sum(((group - group.mean()) ** 2).sum() for group in data)) / (total - count)
    above = float(sum(len(group) * (group.mean() - centre) ** 2 for group in data)) / (count - 1)
    size = (total - sum(len(group) ** 2 for group in data) / total) / (count - 1)  # pulls an item, on average
    ratio = above / within if within > 0 else math.inf
    between = max(0.0, (above - within) / size)

    def share(quantile: float) -> float:
        """Of the variance, by inverting the F distribution of the ratio."""
        found = max(0.0, (ratio / float(f.ppf(quantile, count - 1, total - count)) - 1) / size)
        return found / (1 + found) if math.isfinite(found) else 1.0

    return Difference(
        "one-way analysis of variance", ratio if math.isfinite(ratio) else 1e300,
        float(f.sf(ratio, count - 1, total - count)), math.sqrt(between), math.sqrt(within),
        between / (between + within) if between + within > 0 else 0.0, share(0.975), share(0.025),
    )  # fmt: skip
