"""The way of a grid world's episode as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from shoal.runs.curves import INK, LABEL, MUTED

BAND, LAST, FIRST = "#c9d8e8", "#b8402a", "#3c8d5a"


def way_figure(
    way: Sequence[tuple[int, int]], corners: Sequence[tuple[str, int, int]], region: int, size: int, title: str
) -> Figure:
    """The way of a grid world's episode: cells (row, column) in order, and regions by name, first row and column."""
    figure = Figure(figsize=(4.6, 4.8), layout="constrained")
    ax = figure.subplots()
    for name, row, column in corners:
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), region, region, facecolor=BAND, edgecolor=MUTED))
        ax.text(column + region / 2 - 0.5, row + region / 2 - 0.5, name, fontsize=6, ha="center", va="center")
    rows, columns = np.array(way, float).T
    ax.plot(columns, rows, color=INK, linewidth=1.3)
    ax.plot(columns[:1], rows[:1], "o", color=FIRST, ms=6)
    ax.plot(columns[-1:], rows[-1:], "s", color=LAST, ms=6)
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylim(size - 0.5, -0.5)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize=8, color=LABEL)
    return figure
