"""Maps of rides: a city by its distance from the depot, and a day's trips on it. Data and an axis in, marks out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.runs.curves import LABEL, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shoal.rides.world.city import City
    from shoal.rides.world.days import Day

FEW_ZONES = 40  # up to which every zone's name is written
NAME_SIZE = 6.5  # points
MAP_INCHES = 7.0  # the longer side of a map, about: what tells how much room a name takes
INK = "#1d2733"  # of names
LAND, COAST = "#eef0ec", "#8fa3ad"
FREEWAY_KMH = 40.0
HOURS = ("#1d6996", "#38a6a5", "#edad08", "#e17c05", "#94346e")  # from morning to night


def cell_corners_km(x_km: Any, y_km: Any) -> np.ndarray[Any, Any]:
    """A hexagon around every zone, float64[Z, 6, 2]; no two overlap.

    On an even grid they share their edges. In a town of uneven distances each is as large as its nearest neighbour
    allows, up to a usual size.
    """
    points = np.stack([x_km, y_km], axis=1)
    apart = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    np.fill_diagonal(apart, np.inf)
    nearest_km = apart.min(axis=1)
    usual_km = float(np.median(nearest_km)) / np.sqrt(3)
    even = float(np.ptp(nearest_km)) < 0.02 * usual_km
    radius_km = np.full(len(points), usual_km) if even else np.minimum(nearest_km / 2, usual_km)
    angles = np.pi / 6 + np.arange(6) * np.pi / 3
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray(points[:, None] + radius_km[:, None, None] * ring)


def draw_names(ax: Axes, city: City, numbers: bool = False) -> None:
    """The zones' names, where there is room: of a small town all; of a large city its districts, each once.

    A district is what names such as "Mission 2" have in common; with `numbers` each cell shows its own.
    """
    cells = cell_corners_km(city.x_km, city.y_km)
    words: dict[str, list[int]] = {}
    for zone, name in enumerate(city.zone_names):
        district, _, number = name.rpartition(" ")
        alone = city.zones <= FEW_ZONES or not district or not number.isdigit()
        words.setdefault(name if alone else district, []).append(zone)
        if numbers and not alone:
            ax.annotate(
                number, (city.x_km[zone], city.y_km[zone]), fontsize=5.5, ha="center", va="center", color=INK,
                zorder=3.1, bbox={**_HALO, "boxstyle": "round,pad=0.05", "alpha": 0.65},
            )  # fmt: skip
    inch_km = float(np.ptp(cells.reshape(-1, 2), axis=0).max()) / MAP_INCHES
    taken: list[tuple[float, float, float]] = []  # middles and half widths
    for word, zones in sorted(words.items(), key=lambda entry: -len(entry[1])):  # the largest districts first
        x, y = float(city.x_km[zones].mean()), float(city.y_km[zones].mean())
        if len(zones) == 1:  # below the middle, where stops will be
            y -= 0.6 * (y - float(cells[zones[0], :, 1].min()))
        half = 0.5 * len(word) * NAME_SIZE * 0.62 / 72 * inch_km
        if any(abs(x - a) < half + w and abs(y - b) < NAME_SIZE * 1.3 / 72 * inch_km for a, b, w in taken):
            continue
        taken.append((x, y, half))
        ax.annotate(
            word, (x, y), fontsize=NAME_SIZE, ha="center", va="center", color=INK, zorder=3.5, bbox=_HALO,
            annotation_clip=False,
        )  # fmt: skip


def draw_land(ax: Axes, city: City, fill: bool = True) -> None:
    """The empty map: zones, coast and roads where the city has them, the depot, a scale."""
    from matplotlib.collections import LineCollection, PolyCollection

    cells = cell_corners_km(city.x_km, city.y_km)
    if fill:
        ax.add_collection(PolyCollection(list(cells), facecolors=LAND, edgecolors="white", linewidths=0.8, zorder=1))
    if city.coast_km is not None:
        ring = np.concatenate([city.coast_km, city.coast_km[:1]])
        ax.plot(*ring.T, color=COAST, linewidth=1.0, zorder=3)
    if city.roads:
        widths = [1.8 if speed_kmh >= FREEWAY_KMH else 0.7 for speed_kmh, _ in city.roads]
        lines = [line for _, line in city.roads]
        edges = [width + 1.2 for width in widths]  # white beside the line, to be seen on dark zones
        ax.add_collection(LineCollection(lines, colors="white", linewidths=edges, alpha=0.6, zorder=2))
        ax.add_collection(LineCollection(lines, colors=COAST, linewidths=widths, alpha=0.8, zorder=2))
    draw_depot(ax, city)
    low, high = cells.min(axis=(0, 1)), cells.max(axis=(0, 1))
    margin = 0.03 * float(max(high - low))
    ax.set_xlim(low[0] - margin, high[0] + margin)
    ax.set_ylim(low[1] - margin - 0.05 * float(high[1] - low[1]), high[1] + margin)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_visible(False)
    if city.invented:
        ax.annotate(
            "not a map: no coordinates were given, places are laid out by travel times", (low[0], low[1] - margin),
            fontsize=8, va="center", color=LABEL, annotation_clip=False,
        )  # fmt: skip
    else:
        _draw_scale(ax, float(low[0]), float(low[1]) - margin, float(high[0] - low[0]))


def draw_depot(ax: Axes, city: City) -> None:
    """A star where the vehicles start and end."""
    x, y = city.x_km[city.depot], city.y_km[city.depot]
    ax.plot([x], [y], marker="*", markersize=13, color="black", mec="white", mew=1.0, zorder=8)
    ax.annotate("depot", (x, y), xytext=(7, 5), textcoords="offset points", fontsize=8, zorder=3.6, bbox=_HALO)


_HALO = {"boxstyle": "round,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}


def _draw_scale(ax: Axes, x_km: float, y_km: float, width_km: float) -> None:
    length_km = float(10 ** np.floor(np.log10(max(width_km / 4, 1e-9))))
    for factor in (5.0, 2.0):
        if factor * length_km <= width_km / 4:
            length_km *= factor
            break
    ax.plot([x_km, x_km + length_km], [y_km, y_km], color=LABEL, linewidth=2.0, solid_capstyle="butt", zorder=4)
    ax.annotate(
        f"{length_km:g} km", (x_km + length_km, y_km), xytext=(4, 0), textcoords="offset points", fontsize=8,
        va="center", color=LABEL,
    )  # fmt: skip


def draw_city(ax: Axes, city: City) -> None:
    """Zones coloured by the minutes it takes from the depot, with a colour bar."""
    from matplotlib.collections import PolyCollection

    minutes = city.travel_s[city.depot] / 60.0
    cells = PolyCollection(
        list(cell_corners_km(city.x_km, city.y_km)), array=minutes, cmap="YlGnBu", edgecolors="white", linewidths=0.6,
        zorder=1,
    )  # fmt: skip
    ax.add_collection(cells)
    draw_land(ax, city, fill=False)
    draw_names(ax, city, numbers=True)
    bar = ax.figure.colorbar(cells, ax=ax, shrink=0.7, pad=0.02)
    bar.set_label("minutes from the depot", fontsize=8, color=LABEL)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    pairs = city.travel_s[~np.eye(len(minutes), dtype=bool)] / 60.0
    figures = f"{len(minutes)} zones, {np.median(pairs):.0f} minutes apart in the median, {pairs.max():.0f} at most"
    ax.set_title(f"{city.name}: {figures}", loc="left", fontsize=10, color=LABEL)


def draw_day(ax: Axes, city: City, day: Day) -> None:
    """A day's trips as arrows from pickup to dropoff, coloured by the hour, numbered in booking order."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.lines import Line2D
    from matplotlib.patches import FancyArrowPatch

    draw_land(ax, city)
    draw_names(ax, city)
    requests = day.requests
    hours = requests["pickup_open"] / 3600.0
    colours = LinearSegmentedColormap.from_list("hours", list(HOURS))
    scale = Normalize(np.floor(hours.min()), max(np.ceil(hours.max()), np.floor(hours.min()) + 1))
    starts, ends = (np.stack([city.x_km[requests[s]], city.y_km[requests[s]]], 1) for s in ("pickup", "dropoff"))
    shown = spread(np.concatenate([starts, ends]))  # several stops in one zone must not hide each other
    starts, ends = shown[: len(requests)], shown[len(requests) :]
    for number, (start, end, hour, size) in enumerate(zip(starts, ends, hours, requests["size"], strict=True), 1):
        colour = colours(scale(hour))
        arrow = FancyArrowPatch(
            tuple(start), tuple(end), connectionstyle="arc3,rad=0.12", arrowstyle="-|>,head_length=5,head_width=2.5",
            shrinkA=5, shrinkB=3, color=colour, linewidth=1.3, alpha=0.8, zorder=5,
        )  # fmt: skip
        ax.add_patch(arrow)
        ax.plot(*start, marker="o", markersize=11, color=colour, mec="white", mew=1.0 + 0.8 * (size > 1), zorder=6)
        ax.plot(*end, marker="s", markersize=4, color=colour, mec="white", mew=0.7, zorder=6)
        place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 6.5, "fontweight": "bold"}
        ax.annotate(str(number), tuple(start), color="white" if _dark(colour) else "black", zorder=7, **place)
    bar = ax.figure.colorbar(ScalarMappable(scale, colours), ax=ax, shrink=0.7, pad=0.02)
    bar.ax.yaxis.set_major_formatter(lambda hour, _: f"{int(hour)}:{int(60 * (hour % 1)):02}")
    bar.set_label("pickup window opens", fontsize=8, color=LABEL)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    handles = [
        Line2D([], [], marker="o", color=MUTED, linestyle="", markersize=9, label="pickup, in booking order"),
        Line2D([], [], marker="s", color=MUTED, linestyle="", markersize=4, label="dropoff"),
        Line2D([], [], marker="*", color="black", linestyle="", markersize=9, label="depot"),
    ]
    ax.legend(handles=handles, fontsize=8, loc="upper left", frameon=False)
    ax.set_title(f"Day {day.seed}: {len(requests)} requests", loc="left", fontsize=10, color=LABEL)


def _dark(colour: tuple[float, float, float, float]) -> bool:
    """Whether white letters are easier to read on it than black ones (the luma of ITU-R BT.601)."""
    red, green, blue, _ = colour
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.6


def spread(points: np.ndarray[Any, Any], radius_km: float = 0.22) -> np.ndarray[Any, Any]:
    """Points that coincide, moved apart on a small ring, float64[n, 2]."""
    out = points.copy()
    _, group, count = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    for crowded in np.flatnonzero(count > 1):
        members = np.flatnonzero(group == crowded)
        angles = np.pi / 4 + 2 * np.pi * np.arange(len(members)) / len(members)
        out[members] += radius_km * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return out
