"""Kernels over orders, as scikit-learn's regressor takes them. (Importing this module imports scikit-learn.)"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, NormalizedKernelMixin

from shoal.core.arrays import Array
from shoal.search.bandit.orders import kendall


class Mallows(NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    """exp(-d / length_scale) with d the Kendall distance of two rank vectors.

    Positive definite for every length scale above 0: it is, up to a constant, a product over pairs of things of kernels
    on {first, second} (Jiao & Vert 2015, "The Kendall and Mallows kernels for permutations").

    >>> ranks = np.array([[0, 1, 2], [0, 2, 1], [2, 1, 0]])
    >>> Mallows(2.0)(ranks).round(3).tolist()
    [[1.0, 0.607, 0.223], [0.607, 1.0, 0.368], [0.223, 0.368, 1.0]]
    """

    def __init__(self, length_scale: float = 3.0, length_scale_bounds: tuple[float, float] | str = (0.5, 30.0)) -> None:
        self.length_scale = length_scale
        self.length_scale_bounds = length_scale_bounds

    @property
    def hyperparameter_length_scale(self) -> Any:
        return Hyperparameter("length_scale", "numeric", self.length_scale_bounds)

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        distances = kendall(np.asarray(X), None if Y is None else np.asarray(Y))
        values: Array = np.exp(-distances / self.length_scale)
        if not eval_gradient:
            return values
        if Y is not None:
            raise ValueError("expected a gradient of the kernel of X with itself only: Y must be None")
        if self.hyperparameter_length_scale.fixed:
            return values, np.empty((*values.shape, 0))
        return values, (values * distances / self.length_scale)[:, :, None]  # by the logarithm of the length scale

    def is_stationary(self) -> bool:
        """It depends on the relative order alone, so relabelling the things changes nothing."""
        return True

    def __repr__(self) -> str:
        return f"Mallows(length_scale={self.length_scale:.3g})"
