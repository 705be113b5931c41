"""What a contest of rides came to: saving against burden, and calibration of P(accept).

Functions take the data of `shoal.rides.desk.day_view` and an axis; the `*_figure` ones make a whole figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.rides.figures.day import HALO, RING
from shoal.runs.curves import INK, LABEL, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_pareto(ax: Axes, rows: Sequence[Mapping[str, Any]], ours: Sequence[str] = (), price: str = "") -> None:
    """Minutes saved against burden; on a diagonal the net gain is the same."""
    burden = np.array([row["burden_min"] for row in rows])
    low_y = min(0.0, *(row["low"] for row in rows))
    high_y = max(1.0, *(row["high"] for row in rows))
    right, top = 1.15 * max(1.0, float(burden.max())), high_y + 0.12 * (high_y - low_y)
    ax.set_xlim(-0.03 * right, right)
    ax.set_ylim(low_y - 0.06 * (top - low_y), top)
    _draw_net_lines(ax, right, low_y, top)
    for row in rows:
        mine = row["name"] in ours
        colour = RING if mine else INK
        ax.plot([row["burden_min"]] * 2, [row["low"], row["high"]], color=colour, linewidth=1.4, alpha=0.6, zorder=3)
        style: dict[str, Any] = {"marker": "D" if mine else "o", "markersize": 9 if mine else 7}
        ax.plot(row["burden_min"], row["saved_min"], **style, color=colour, mec="white", mew=1.0, zorder=4)
    _name_points(ax, rows, ours)
    ax.set_xlabel(
        "burden on riders, as route minutes a day: what they agreed to and refused, at its price",
        fontsize=9,
        color=LABEL,
    )
    priced = f", {price} prices" if price else ""
    ax.set_ylabel(f"route minutes saved a day{priced}", fontsize=9, color=LABEL)
    ax.tick_params(labelsize=8)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _draw_net_lines(ax: Axes, right: float, low: float, top: float) -> None:
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if (top - low + right) / s <= 9)
    for net in np.arange(np.floor((low - right) / step), np.ceil(top / step) + 1) * step:
        ax.plot([-right, 2 * right], [net - right, net + 2 * right], color=MUTED, alpha=0.9 if net == 0 else 0.35,
                linewidth=1.2 if net == 0 else 0.7, zorder=1)  # fmt: skip
        x, y = right, net + right
        if y > ax.get_ylim()[1]:
            x, y = ax.get_ylim()[1] - net, ax.get_ylim()[1]
        if 0 < x <= right and y - 0.05 * (top - low) > ax.get_ylim()[0]:
            ax.annotate(f"net {net:+g}" if net else "net 0", (x, y), xytext=(-4, -4), textcoords="offset points",
                        ha="right", va="top", fontsize=7, color=LABEL, bbox=HALO)  # fmt: skip


def _name_points(ax: Axes, rows: Sequence[Mapping[str, Any]], ours: Sequence[str]) -> None:
    """A name beside each point, where it lies on no other name, point or error bar."""
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    across, height = right - left, high - low
    line, letter = 0.034 * height, 0.0085 * across  # of text of 8 points on a figure of 9 x 6 inches
    taken = [(float(row["burden_min"]), float(row["low"]), float(row["high"])) for row in rows]
    boxes = [(x - 0.006 * across, x + 0.006 * across, bottom, top) for x, bottom, top in taken]
    for row in sorted(rows, key=lambda row: float(row["saved_min"])):
        x, y = float(row["burden_min"]), float(row["saved_min"])
        words = f"{row['name']}" + (f"  {row['agreed_min_per_rider']:.1f} min/rider" if row["burden_min"] else "")
        places = []
        for lift in sorted(range(-14, 15), key=abs):
            middle = y + lift * line
            for start in (x + 0.018 * across, x - 0.018 * across - letter * len(words)):
                places.append((start, start + letter * len(words), middle - line / 2, middle + line / 2))
        free = [
            box for box in places
            if left < box[0] and box[1] < right and low < box[2] and box[3] < high
            and not any(box[0] < b[1] and b[0] < box[1] and box[2] < b[3] and b[2] < box[3] for b in boxes)
        ]  # fmt: skip
        box = (free or places)[0]
        boxes.append(box)
        colour, middle = RING if row["name"] in ours else "#1d2733", (box[2] + box[3]) / 2
        side, edge = ("left", box[0]) if box[0] > x else ("right", box[1])
        if middle != y:  # a thread from a name that had to move
            ax.plot([x, edge], [y, middle], color=MUTED, linewidth=0.7, zorder=2)
        ax.annotate(words, (edge, middle), ha=side, va="center", fontsize=8, color=colour, zorder=5, bbox=HALO)


def pareto_figure(rows: Sequence[Mapping[str, Any]], ours: Sequence[str] = (), price: str = "") -> Figure:
    """Saving against burden as a figure of its own."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    ax = figure.subplots()
    draw_pareto(ax, rows, ours, price)
    ax.set_title("What riders give, what routes gain", loc="left", fontsize=11, color="#1d2733")
    return figure


def draw_calibration(ax: Axes, curves: Sequence[Mapping[str, Any]], counts_ax: Axes | None = None) -> None:
    """Share accepted against P(accept) as predicted, with 95 % intervals; how many of each below."""
    ax.plot([0, 1], [0, 1], color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    for curve, colour, shift in zip(curves, (INK, RING), (-0.008, 0.008), strict=False):
        predicted, observed = np.array(curve["predicted"]), np.array(curve["observed"])
        count = np.array(curve["count"], float)
        if not len(count):
            continue
        low, high = _wilson(observed, count)
        label = f"{curve['label']} ({int(count.sum()):,}; calibration error {100 * curve['ece']:.1f} %)"
        # A bar is as strong as what it rests on: those of a handful of offers are long and must not rule the eye.
        weight = np.sqrt(count / count.max())
        ax.vlines(predicted, low, high, color=colour, linewidth=1.4, alpha=0.08 + 0.5 * weight, zorder=2)
        size = 12 + 240 * count / count.sum()
        ax.scatter(predicted, observed, s=size, color=colour, edgecolors="white", linewidths=0.8, label=label, zorder=3)
        if counts_ax is not None:
            counts_ax.bar(predicted + shift, count / count.sum(), width=0.016, color=colour, alpha=0.75)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.02)
    ax.set_ylabel("share that was accepted", fontsize=9, color=LABEL)
    if ax.collections:
        from matplotlib.collections import PathCollection

        legend = ax.legend(fontsize=8, loc="lower right", frameon=False)
        for handle in legend.legend_handles:
            if isinstance(handle, PathCollection):
                handle.set_sizes([40.0])
    ax.grid(color=MUTED, alpha=0.3, linewidth=0.6)
    last = ax
    if counts_ax is not None:
        counts_ax.set_ylabel("share of offers", fontsize=8, color=LABEL)
        last = counts_ax
    last.set_xlabel("P(accept) as predicted", fontsize=9, color=LABEL)
    for axis in (ax, counts_ax):
        if axis is not None:
            axis.tick_params(labelsize=8)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)


def _wilson(share: Any, count: Any, z: float = 1.96) -> tuple[Any, Any]:
    """95 % interval of a share (Wilson 1927): sensible at 0 and 1 as well."""
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return middle - half, middle + half


def calibration_figure(curves: Sequence[Mapping[str, Any]]) -> Figure:
    """Reliability with the distribution of predictions under it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6.6), layout="constrained")
    top, below = figure.subplots(2, 1, height_ratios=(4, 1), sharex=True)
    draw_calibration(top, curves, below)
    top.set_title("Do riders accept as often as predicted?", loc="left", fontsize=11, color="#1d2733")
    return figure
