"""Routing oracles side by side: how far their routes are above the best known, and what planning many days takes.

Functions take a report of `shoal rides oracle report` and an axis; `report_figure` makes a whole figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shoal.rides.figures.day import RING
from shoal.runs.curves import INK, LABEL, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Report = Mapping[str, Any]
TIMED = 30  # requests a day of the times, where those of several sizes were taken
_STYLES = ("-", "--", ":", "-.")


def report_figure(found: Report) -> Figure:
    """Gaps by number of requests; beside them, if it was taken, the CPU time by number of days."""
    from matplotlib.figure import Figure

    timed = [part for part in found["sizes"] if part["speed"]]
    figure = Figure(figsize=(11 if timed else 6, 4.6), layout="constrained")
    axes = figure.subplots(1, 2 if timed else 1, squeeze=False)[0]
    draw_gaps(axes[0], found)
    if timed:
        draw_times(axes[1], next((part for part in timed if part["requests"] == TIMED), timed[-1]))
    return figure


def draw_gaps(ax: Axes, found: Report) -> None:
    """Percent above the best known, mean and standard error over the days."""
    by_oracle: dict[str, list[tuple[int, float, float]]] = {}
    for part in found["sizes"]:
        for row in part["plans"]:
            if row["gap_percent"] is not None:
                point = (part["requests"], row["gap_percent"], row["standard_error"] or 0.0)
                by_oracle.setdefault(row["oracle"], []).append(point)
    for name, style in _styled(list(by_oracle)).items():
        x, y, error = zip(*by_oracle[name], strict=True)
        ax.errorbar(x, y, error, label=name, capsize=2, elinewidth=0.8, **style)
    ax.set_ylim(bottom=0)
    ax.set_xticks([part["requests"] for part in found["sizes"]])
    _finish(ax, "requests a day", f"route minutes above the best known plan, %, {found['days']} days")


def draw_times(ax: Axes, part: Mapping[str, Any]) -> None:
    """CPU time of days that are planned in one call, with the fewest threads that were tried."""
    fewest = min(row.get("threads", 1) for row in part["speed"])
    rows = [row for row in part["speed"] if row.get("threads", 1) == fewest]
    for name, style in _styled(list(dict.fromkeys(row["oracle"] for row in rows))).items():
        points = [(row["days"], row["cpu_ms"]) for row in rows if row["oracle"] == name]
        ax.plot(*zip(*points, strict=True), label=name, **style)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ticks = sorted({row["days"] for row in rows})
    ax.set_xticks(ticks, [f"{days:,}" for days in ticks])
    _finish(ax, f"days of {part['requests']} requests in one call", "CPU time, ms")


def _styled(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour for the network and one for the searches; lines tell apart those of a kind."""
    counts: dict[str, int] = {}
    found = {}
    for name in names:
        colour = RING if name.startswith("neural") else MUTED if name == "insertion" else INK
        line = _STYLES[counts.get(colour, 0) % len(_STYLES)]
        counts[colour] = counts.get(colour, 0) + 1
        found[name] = {"color": colour, "linestyle": line, "marker": "o", "markersize": 4, "linewidth": 1.4}
    return found


def _finish(ax: Axes, x: str, y: str) -> None:
    ax.set_xlabel(x, fontsize=9, color=LABEL)
    ax.set_ylabel(y, fontsize=9, color=LABEL)
    ax.tick_params(labelsize=8)
    ax.legend(fontsize=8, frameon=False)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
