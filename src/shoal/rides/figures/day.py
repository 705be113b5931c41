"""Played days of rides: routes before and after negotiation, and windows over the day.

Functions take the data of `shoal.rides.desk.day_view` and an axis; the `*_figure` ones make a whole figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.rides.figures.map import FEW_ZONES, draw_land, draw_names, spread
from shoal.runs.curves import LABEL, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from shoal.rides.world.city import City

# Of vehicles: told apart by people who see colours differently, too (after Okabe & Ito 2008).
VEHICLES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#5b4b8a", "#b8860b", "#56b4e9", "#4d4d4d")
RING = "#c1121f"
HALO = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
PICKUP, DROPOFF, EXTRA = "#1f6f8b", "#b5651d", 0.35


def draw_routes(ax: Axes, city: City, data: Mapping[str, Any]) -> None:
    """Every vehicle's way through the day: filled dots are pickups, squares dropoffs, a red ring an agreed change."""
    draw_land(ax, city)
    if city.zones <= FEW_ZONES:
        draw_names(ax, city)
    moved = set(data["moved"])
    stops = [stop for line in data["routes"] for stop in line["stops"]]
    zones = [zone for line in data["routes"] for zone in line["zones"][1:-1]]
    shown = spread(np.stack([city.x_km[zones], city.y_km[zones]], 1)) if zones else np.zeros((0, 2))
    place = dict(zip(stops, shown, strict=True))
    depot = np.array([city.x_km[city.depot], city.y_km[city.depot]])
    for vehicle, line in enumerate(data["routes"]):
        if not line["stops"]:
            continue
        colour = VEHICLES[vehicle % len(VEHICLES)]
        way = np.array([depot, *(place[stop] for stop in line["stops"]), depot])
        ax.plot(*way.T, color="white", linewidth=3.0, alpha=0.7, zorder=4, solid_joinstyle="round")
        ax.plot(*way.T, color=colour, linewidth=1.4, alpha=0.85, zorder=5, solid_joinstyle="round")
        _arrows(ax, way, colour)
        for stop in line["stops"]:
            pickup = stop % 2 == 0
            style: dict[str, Any] = {"marker": "o" if pickup else "s", "markersize": 6.0 if pickup else 4.5}
            ax.plot(*place[stop], **style, color=colour, mec="white", mew=0.8, zorder=6)
            if pickup and stop // 2 in moved:
                ax.plot(*place[stop], marker="o", markersize=13, mfc="none", mec=RING, mew=1.8, zorder=7)
                ax.annotate(
                    str(stop // 2 + 1), tuple(place[stop]), xytext=(8, 7), textcoords="offset points", fontsize=8.5,
                    fontweight="bold", color=RING, zorder=9, bbox=HALO,
                )  # fmt: skip
    away = f", {data['turned_away']} turned away" if data.get("turned_away") else ""
    used = sum(1 for line in data["routes"] if line["stops"])
    title = f"{data['title']}: {data['travel_min']:,.0f} minutes driven by {used} vehicles{away}"
    ax.set_title(title, loc="left", fontsize=11, color="#1d2733")


def _arrows(ax: Axes, way: Any, colour: str) -> None:
    """Small heads in the middle of the longer legs say which way a vehicle goes."""
    for start, end in pairwise(way):
        if np.hypot(*(end - start)) > 1.5:
            middle = 0.55 * end + 0.45 * start
            toward = middle + 0.02 * (end - start)
            ax.annotate(
                "", tuple(toward), tuple(middle),
                arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 0.0, "mutation_scale": 11, "alpha": 0.9},
                zorder=5,
            )  # fmt: skip


def routes_figure(
    city: City, pictures: Sequence[Mapping[str, Any]], title: str = "", ring: str = "windows changed"
) -> Figure:
    """The days side by side on the same map; `ring` says what a red ring stands for."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(7.4 * len(pictures), 7.1), layout="constrained")
    for ax, data in zip(np.atleast_1d(figure.subplots(1, len(pictures))), pictures, strict=True):
        draw_routes(ax, city, data)
    mark: dict[str, Any] = {"color": MUTED, "linestyle": "", "mec": "white"}
    handles = [
        Line2D([], [], marker="o", markersize=8, label="pickup", **mark),
        Line2D([], [], marker="s", markersize=7, label="dropoff", **mark),
        Line2D(
            [],
            [],
            marker="o",
            markersize=12,
            mfc="none",
            mec=RING,
            mew=1.8,
            linestyle="",
            label=ring,
        ),
    ]
    used = sorted({v for data in pictures for v, line in enumerate(data["routes"]) if line["stops"]})
    handles += [Line2D([], [], color=VEHICLES[v % len(VEHICLES)], lw=2, label=f"vehicle {v + 1}") for v in used]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(8, len(handles)), frameon=False, fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=LABEL)
    return figure


def draw_windows(ax: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line per request: the windows asked for, what was agreed beyond them, and when the vehicle came."""
    for line, row in enumerate(rows):
        if row["answer"] == "yes":
            ax.axhspan(line - 0.5, line + 0.5, color=RING, alpha=0.05, lw=0, zorder=0)
        for side, colour, shift in (("pickup", PICKUP, -0.19), ("dropoff", DROPOFF, 0.19)):
            (asked_open, asked_close), (agreed_open, agreed_close) = row[side]["asked"], row[side]["agreed"]
            bar: dict[str, Any] = {"height": 0.32, "align": "center", "linewidth": 0}
            ax.barh(line + shift, agreed_close - agreed_open, left=agreed_open, color=colour, alpha=EXTRA, **bar)
            ax.barh(line + shift, asked_close - asked_open, left=asked_open, color=colour, alpha=0.85, **bar)
            if row[side]["served"] is not None:
                served = row[side]["served"]
                ends = [line + shift - 0.24, line + shift + 0.24]
                ax.plot([served] * 2, ends, color="white", linewidth=3.4, solid_capstyle="butt", zorder=3)
                ax.plot([served] * 2, ends, color="black", linewidth=1.6, solid_capstyle="butt", zorder=4)
        right = max(row["dropoff"]["agreed"][1], row["dropoff"]["asked"][1])
        text, colour = _answer(row)
        if row["pickup"]["served"] is None:
            text, colour = f"turned away {text}", RING
        place: dict[str, Any] = {"xytext": (5, 0), "textcoords": "offset points", "va": "center", "fontsize": 7.5}
        ax.annotate(text, (right, line), color=colour, **place)
    ax.set_yticks(range(len(rows)), [str(row["request"]) for row in rows], fontsize=7.5)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    low = min(row["pickup"]["agreed"][0] for row in rows)
    high = max(row["dropoff"]["agreed"][1] for row in rows)
    ax.set_xlim(np.floor(low * 2) / 2 - 0.25, high + 1.6)
    ax.xaxis.set_major_locator(_every(1 if high - low < 9 else 2))
    ax.xaxis.set_major_formatter(lambda hour, _: f"{int(hour)}:00")
    ax.tick_params(labelsize=8, length=0)
    ax.grid(axis="x", color=MUTED, alpha=0.35, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.set_ylabel("requests, numbered as they were booked", fontsize=9, color=LABEL)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)


def _every(hours: int) -> Any:
    from matplotlib.ticker import MultipleLocator

    return MultipleLocator(hours)


def _answer(row: Mapping[str, Any]) -> tuple[str, str]:
    asked = [f"{row[f'{way}_min']} {way}" for way in ("earlier", "later") if row[f"{way}_min"]]
    words = " + ".join(asked)
    said = {"none": ("", LABEL), "yes": (f"agreed: {words} min", RING), "no": (f"refused: {words} min", LABEL)}
    return said[row["answer"]]


def windows_figure(rows: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """All requests of a day, from morning to night."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(11, 1.6 + 0.24 * len(rows)), layout="constrained")
    ax = figure.subplots()
    draw_windows(ax, rows)
    handles: list[Any] = []
    for side, colour in (("pickup", PICKUP), ("dropoff", DROPOFF)):
        handles += [
            Patch(facecolor=colour, alpha=0.85, label=f"{side} window as asked"),
            Patch(facecolor=colour, alpha=EXTRA, label=f"agreed beyond it ({side})"),
        ]
    handles.append(Line2D([], [], color="black", marker="|", markersize=9, mew=1.8, linestyle="", label="served"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    ax.set_title(title, loc="left", fontsize=11, color="#1d2733")
    return figure
