"""Training curves. A figure function takes data and an axis; it opens and saves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

INK, MUTED, LABEL = "#1f4e79", "#9aa5b1", "#5b6670"


def curve(axis: Axes, rows: Sequence[dict[str, Any]], key: str, label: str) -> None:
    """One metric against environment steps; epochs without a value are gaps, rows without the metric are left out."""
    rows = [row for row in rows if key in row]
    steps = [row["steps"] for row in rows]
    values = [float("nan") if row.get(key) is None else row[key] for row in rows]
    axis.plot(steps, values, color=INK, linewidth=1.6)
    _dress(axis, label)
    if max((value for value in values if value == value), default=0.0) >= 10_000:
        axis.yaxis.set_major_formatter(EngFormatter(sep=""))


def _dress(axis: Axes, label: str) -> None:
    axis.set_title(label, loc="left", fontsize=10, color=LABEL)
    axis.set_xlabel("environment steps", fontsize=9, color=LABEL)
    axis.grid(color=MUTED, alpha=0.3, linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_major_locator(MaxNLocator(5))


def bundle_figure(curves: Sequence[tuple[Sequence[int], Sequence[float]]], label: str) -> Figure:
    """The same metric of several runs, each (steps, values), and their mean where all of them have gone."""
    figure = Figure(figsize=(6.0, 3.2), layout="constrained")
    axis = figure.subplots()
    for steps, values in curves:
        axis.plot(steps, values, color=MUTED, linewidth=1.0)
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    if len(curves) > 1 and last > first:
        at = np.linspace(first, last, 200)
        mean = np.mean([np.interp(at, steps, values) for steps, values in curves], 0)
        axis.plot(at, mean, color=INK, linewidth=2.0)
    _dress(axis, f"{label}: {len(curves)} runs and their mean")
    return figure


def target_line(axis: Axes, value: float) -> None:
    """A dashed line at a target."""
    axis.axhline(value, color=MUTED, linestyle="--", linewidth=1.2)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "xytext": (0, -3), "textcoords": "offset points"}
    axis.annotate(f"target {value:g}", (0.01, value), va="top", fontsize=8, color=LABEL, **place)


def curve_figure(rows: Sequence[dict[str, Any]], key: str, label: str, target: float | None = None) -> Figure:
    """One metric as a figure of its own, small enough for the width of a phone."""
    figure = Figure(figsize=(4.8, 2.7), layout="constrained")
    axis = figure.subplots()
    curve(axis, rows, key, label)
    if target is not None:
        target_line(axis, target)
    return figure
