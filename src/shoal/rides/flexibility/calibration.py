"""How good predicted probabilities are: log loss, Brier score, calibration error, reliability curve."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NUM_BINS = 15
_TINY = 1e-6  # a float32 probability may round to 0 or 1: an infinite loss would say nothing about the others


class Calibration:
    """Sums over predictions and what then happened; add in any pieces, read at any time.

    >>> seen = Calibration()
    >>> seen.add(np.array([0.8, 0.8, 0.8, 0.8, 0.8]), np.array([1, 1, 1, 1, 0]))
    >>> {name: round(value, 3) for name, value in seen.metrics().items()}
    {'answers': 5, 'log_loss': 0.5, 'brier': 0.16, 'ece': 0.0}
    """

    def __init__(self, sums: Array | None = None) -> None:
        # float64[NUM_BINS, 5]: count, predicted, accepted, log loss, squared error, by bin of the prediction
        self.sums = np.zeros((NUM_BINS, 5)) if sums is None else np.array(sums, np.float64)

    def add(self, predicted: Array, accepted: Array) -> None:
        """Predictions [K] made before the answers accepted [K] (0 or 1) were known."""
        p = np.clip(np.asarray(predicted, np.float64), _TINY, 1 - _TINY)
        y = np.asarray(accepted, np.float64)
        bins = np.minimum((p * NUM_BINS).astype(np.int64), NUM_BINS - 1)
        loss = -np.where(y > 0, np.log(p), np.log1p(-p))
        for column, values in enumerate((np.ones_like(p), p, y, loss, (p - y) ** 2)):
            self.sums[:, column] += np.bincount(bins, values, NUM_BINS)

    def metrics(self) -> dict[str, float]:
        """Number of answers, mean log loss, Brier score, expected calibration error; empty without answers."""
        count, predicted, accepted, loss, squared = self.sums.T
        total = count.sum()
        if total == 0:
            return {}
        return {
            "answers": int(total),
            "log_loss": float(loss.sum() / total),
            "brier": float(squared.sum() / total),
            "ece": float(np.abs(predicted - accepted).sum() / total),
        }

    def curve(self) -> tuple[Array, Array, Array]:
        """Reliability: mean prediction, share accepted and count of every bin that has answers."""
        some = self.sums[:, 0] > 0
        count, predicted, accepted = self.sums[some, :3].T
        return predicted / count, accepted / count, count.astype(np.int64)
