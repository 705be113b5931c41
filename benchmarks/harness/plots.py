"""Pictures of stored results, as SVG that every browser and every page of docs shows, in light and dark."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from benchmarks.harness.figures import Results

_WIDTH, _HEIGHT = 720, 380
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 176, 16, 46
_COLOURS = ("#1f6fb4", "#c8501e", "#3f8f3a", "#8a4fa8", "#a3832a")
_STYLE = """text { font: 13px system-ui, sans-serif; fill: #333 } .axis { stroke: #999; stroke-width: 1 }
.level { stroke: #777; stroke-dasharray: 5 4 } .grid { stroke: #999; stroke-opacity: .25 }
@media (prefers-color-scheme: dark) { text { fill: #ddd } .level { stroke: #aaa } }"""


@dataclass(frozen=True)
class Series:
    """A line with a band around it."""

    name: str
    x: Sequence[float]
    low: Sequence[float]
    middle: Sequence[float]
    high: Sequence[float]


def chart(series: Sequence[Series], levels: dict[str, float], x_label: str, y_label: str) -> str:
    """Lines, bands and horizontal levels, each with its name at the right."""
    all_y = [value for one in series for value in (*one.low, *one.high)] + list(levels.values())
    all_x = [value for one in series for value in one.x]
    y_low, y_high = min(all_y), max(all_y)
    x_low, x_high = min(all_x), max(all_x)

    def x_of(value: float) -> float:
        return _LEFT + (value - x_low) / (x_high - x_low or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y_of(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - y_low) / (y_high - y_low or 1) * (_HEIGHT - _TOP - _BOTTOM)

    def points(xs: Sequence[float], ys: Sequence[float]) -> str:
        return " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in zip(xs, ys, strict=True))

    parts = []
    for value in _ticks(y_low, y_high):
        y = y_of(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:,.4g}</text>')
    for value in _ticks(x_low, x_high):
        parts.append(f'<text x="{x_of(value):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{value:,g}</text>')
    ends: list[tuple[float, str, str]] = []
    for name, value in levels.items():
        y = y_of(value)
        parts.append(f'<line class="level" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        ends.append((y, name, ""))
    for colour, one in zip(_COLOURS, series, strict=False):
        band = points([*one.x, *one.x[::-1]], [*one.low, *one.high[::-1]])
        parts.append(f'<polygon points="{band}" fill="{colour}" fill-opacity=".18"/>')
        line = points(one.x, one.middle)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        ends.append((y_of(one.middle[-1]), one.name, f' style="fill: {colour}"'))
    below = -math.inf
    for wanted, name, style in sorted(ends):
        below = max(wanted + 4, below + 15)  # names never overlap
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{below:.1f}"{style}>{escape(name)}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
    across = f'transform="translate(15 {_HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {across}>{escape(y_label)}</text>")
    base = f'y1="{_HEIGHT - _BOTTOM}" y2="{_HEIGHT - _BOTTOM}"'
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" {base}/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


def _ticks(low: float, high: float) -> list[float]:
    """About five round numbers in a range.

    >>> _ticks(0, 11)
    [0.0, 2.5, 5.0, 7.5, 10.0]
    """
    rough = (high - low) / 5 or 1.0
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= rough)
    first = math.ceil(low / step)
    return [round(step * n, 10) for n in range(first, math.floor(high / step) + 1)]


# -- the pictures --------------------------------------------------------------------------------------

_LEARNING = {
    "scratch": "from nothing",
    "lookahead": "from lookahead",
    "taught": "from taught",
    "scratch-rewards": "from nothing, by rewards",
    "scratch-regression": "regression",
}


def rides_learning(results: Results) -> str | None:
    """Learning curves on the same few held-out days: mean of the seeds, and all of them as a band."""
    if not results.stored("rides_credit"):
        return None
    parts: list[dict[str, Any]] = results.data("rides_credit")["parts"]
    series, levels = [], {}
    for arm, name in _LEARNING.items():
        made = [part for part in parts if part["name"].startswith(f"{arm} seed ") and "curve" in part]
        if made:
            curves, levels = [part["curve"] for part in made], made[0]["levels"]
            nets = [[point[2] for point in points] for points in zip(*curves, strict=True)]
            days = [point[0] for point in curves[0]]
            bands = [list(map(of, nets)) for of in (min, statistics.fmean, max)]
            series.append(Series(f"{name} ({len(curves)})", days, *bands))
    return chart(series, levels, "days trained on", "net gain, minutes a day") if series else None


def rides_noise(results: Results) -> str | None:
    """The gradient noise scale: a line for each estimator, a dot for each stage of the training."""
    if not results.stored("credit_noise"):
        return None
    found: dict[str, dict[str, float | None]] = {}
    for row in results.rows("credit_noise"):
        stage, estimator = row.name.removeprefix("rides, ").split(": gradient noise scale, ")
        found.setdefault(estimator, {})[stage] = row.value
    return dots(found, "days of noise as large as the gradient (no dot: too many to tell)")


def dots(found: dict[str, dict[str, float | None]], x_label: str) -> str:
    """Values by row and kind on a logarithmic axis."""
    values = [value for by_kind in found.values() for value in by_kind.values() if value is not None]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    left, right, step, top = 190, 24, 34, 40
    bottom = top + step * len(found)

    def x_of(value: float) -> float:
        return left + (math.log10(value) - low) / (high - low or 1) * (_WIDTH - left - right)

    parts = []
    for power in range(low, high + 1):
        x = x_of(10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 8}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{10.0**power:,g}</text>')
    kinds = list(dict.fromkeys(kind for by_kind in found.values() for kind in by_kind))
    for number, kind in enumerate(kinds):
        x = left + 160 * number
        parts.append(f'<circle cx="{x}" cy="14" r="5" fill="{_COLOURS[number]}"/>')
        parts.append(f'<text x="{x + 10}" y="18">{escape(kind)}</text>')
    for number, (name, by_kind) in enumerate(found.items()):
        y = top + step * number + step / 2
        parts.append(f'<text x="{left - 14}" y="{y + 4:.0f}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<line class="grid" x1="{left}" x2="{_WIDTH - right}" y1="{y:.0f}" y2="{y:.0f}"/>')
        for kind, value in by_kind.items():
            if value is not None:
                colour = _COLOURS[kinds.index(kind)]
                parts.append(f'<circle cx="{x_of(value):.1f}" cy="{y:.0f}" r="6" fill="{colour}"/>')
    parts.append(f'<text x="{left}" y="{bottom + 40}">{escape(x_label)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + 52}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>", ""])


PICTURES: dict[str, Callable[[Results], str | None]] = {
    "docs/images/rides-learning.svg": rides_learning,
    "docs/images/rides-noise.svg": rides_noise,
}
