"""Training curves as numbers, and the colours of figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

INK, MUTED, LABEL = "#1f4e79", "#9aa5b1", "#5b6670"
POINTS = 100


def on_one_axis(
    curves: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[list[float], list[list[float]]]:
    """Curves, each (x, y), read at the same x: from where all have begun to where the first of them ends.

    >>> on_one_axis([([0, 10], [0.0, 1.0]), ([0, 20], [0.0, 4.0])])[1][1][-1]
    2.0
    """
    first = max(float(x[0]) for x, _ in curves)
    last = min(float(x[-1]) for x, _ in curves)
    at = np.linspace(first, max(first, last), POINTS if last > first else 1)
    return at.tolist(), [np.interp(at, x, y).tolist() for x, y in curves]
