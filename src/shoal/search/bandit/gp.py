"""A Gaussian process over a finite set, from noisy pulls of some of its items."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.arrays import Array

JITTER = 1e-8  # of the standardised variance: two exact pulls of one item must not make the matrix singular


@dataclass(frozen=True)
class Posterior:
    """What is believed of every item after some pulls, in the units of the pulls."""

    mean: Array  # float64[n]
    covariance: Array  # float64[n, n]: of the items' values, without the noise of another pull
    kernel: str  # the fitted kernel in words
    noise_std: float  # between pulls of one item, beyond the measured error; in the units of the pulls

    @property
    def std(self) -> Array:
        """float64[n]: of each item's value."""
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))


class FiniteGP:
    """Regression over the rows of `points` with any scikit-learn kernel; the Mallows kernel by default.

    Targets are standardised. Each pull brings its own measured error; what pulls of one item differ by beyond that
    (another training seed) is one more hyper-parameter. Hyper-parameters maximise the marginal likelihood
    from `fit_from` pulls on; with fewer they stay where `kernel` has them.

    >>> from shoal.search.bandit.orders import all_ranks
    >>> found = FiniteGP(all_ranks(3), fit_from=9).posterior([0, 5], [1.0, 3.0], [0.1, 0.1])
    >>> found.mean.round(2).tolist()
    [1.03, 1.69, 1.69, 2.31, 2.31, 2.97]
    """

    def __init__(self, points: Array, kernel: Any = None, *, fit_from: int = 6) -> None:
        self.points, self.fit_from = np.asarray(points, np.float64), fit_from
        self.kernel = kernel if kernel is not None else default_kernel()

    def posterior(
        self,
        items: Sequence[int],
        means: Sequence[float],
        errors: Sequence[float],
        under_way: Sequence[int] = (),
    ) -> Posterior:
        """Condition on pulls: which items, their measured means and the standard errors of those.

        Pulls `under_way` lower the standard deviations as if they had come out at their posterior means, and nothing
        else.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from threadpoolctl import threadpool_limits

        values, noise = np.asarray(means, np.float64), np.asarray(errors, np.float64)
        self._check(items, values, noise)
        centre, scale = standard(values, noise)
        regressor = GaussianProcessRegressor(
            self.kernel,
            alpha=(noise / scale) ** 2 + JITTER if len(values) else JITTER,
            optimizer="fmin_l_bfgs_b" if len(values) >= self.fit_from else None,
        )
        # Matrices of 20 rows: a second thread costs ten times what it saves, and could change the last bits.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length scale at its bound is an answer too
            if len(values):
                regressor.fit(self.points[np.asarray(items)], (values - centre) / scale)
            mean, covariance = regressor.predict(self.points, return_cov=True)
            fitted = getattr(regressor, "kernel_", self.kernel)
            if len(under_way):
                noises = [*(noise / scale), *np.zeros(len(under_way))]
                covariance = self._imagine(fitted, [*items, *under_way], noises)
        white = white_level(fitted)  # scikit-learn's covariance is of other noisy pulls: take the noise out again
        covariance = scale**2 * (covariance - white * np.eye(len(self.points)))
        return Posterior(centre + scale * mean, covariance, repr(fitted), float(scale * np.sqrt(white)))

    def _imagine(self, kernel: Any, items: Sequence[int], noise: Sequence[float]) -> Array:
        """The covariance once these items have been pulled, whatever comes out: float64[n, n]."""
        from sklearn.gaussian_process import GaussianProcessRegressor

        regressor = GaussianProcessRegressor(kernel, alpha=np.asarray(noise) ** 2 + JITTER, optimizer=None)
        regressor.fit(self.points[np.asarray(items)], np.zeros(len(items)))
        return np.asarray(regressor.predict(self.points, return_cov=True)[1])

    def similarity(self, items: Array) -> Array:
        """Correlation of every item with some of them before any pull, noise left out: float64[n, len(items)]."""
        values = np.asarray(self.kernel(self.points, self.points[items]))  # a WhiteKernel is 0 between two sets
        return np.asarray(values / np.sqrt(np.outer(self._variance, self._variance[items])))

    @property
    def _variance(self) -> Array:
        return np.asarray(self.kernel.diag(self.points)) - white_level(self.kernel)

    def _check(self, items: Sequence[int], values: Array, noise: Array) -> None:
        if not len(items) == len(values) == len(noise):
            raise ValueError(f"expected one mean and one error per item, got {len(items)}, {len(values)}, {len(noise)}")
        if not (np.isfinite(values).all() and np.isfinite(noise).all() and (noise >= 0).all()):
            raise ValueError(f"expected finite means and errors of at least 0, got {values.tolist()}, {noise.tolist()}")
        if len(items) and not 0 <= min(items) <= max(items) < len(self.points):
            raise ValueError(f"expected items in 0 .. {len(self.points) - 1}, got {list(items)}")


def default_kernel() -> Any:
    """Signal variance x Mallows + noise between pulls, in standardised units."""
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel

    from shoal.search.bandit.kernels import Mallows

    return ConstantKernel(1.0, (0.1, 10.0)) * Mallows() + WhiteKernel(0.01, (1e-4, 1.0))


def standard(values: Array, noise: Array) -> tuple[float, float]:
    """Centre and scale of the pulls; alike pulls are measured by their error, a single exact one by 1."""
    if not len(values):
        return 0.0, 1.0
    spread = float(values.std()) if len(values) > 1 else 0.0
    return float(values.mean()), max(spread, float(np.median(noise))) or 1.0


def white_level(kernel: Any) -> float:
    """Variance of the WhiteKernel parts of a sum of kernels."""
    from sklearn.gaussian_process.kernels import Sum, WhiteKernel

    if isinstance(kernel, Sum):
        return white_level(kernel.k1) + white_level(kernel.k2)
    return float(kernel.noise_level) if isinstance(kernel, WhiteKernel) else 0.0
