"""Training curves. A figure function takes data and an axis; it opens and saves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

INK, MUTED = "#1f4e79", "#9aa5b1"


def curve(axis: Axes, rows: Sequence[dict[str, Any]], key: str, label: str) -> None:
    """One metric against environment steps; epochs without a value are gaps."""
    points = [(row["steps"], row.get(key)) for row in rows]
    axis.plot(
        [steps for steps, _ in points],
        [float("nan") if value is None else value for _, value in points],
        color=INK,
        linewidth=1.6,
    )
    axis.set_xlabel("environment steps")
    axis.set_ylabel(label)
    axis.grid(color=MUTED, alpha=0.3, linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.ticklabel_format(axis="x", style="sci", scilimits=(0, 5))


def target_line(axis: Axes, value: float) -> None:
    """A dashed line at a target."""
    axis.axhline(value, color=MUTED, linestyle="--", linewidth=1.2)
    axis.annotate(f"target {value:g}", (0.01, value), xycoords=("axes fraction", "data"), va="bottom", fontsize=8, color="#5b6670")
