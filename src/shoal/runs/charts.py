"""Charts as SVG from plain numbers: lines with bands, points with whiskers, effects with intervals, a bar of parts.

They need no other package, take their colours from the page (light or dark), and carry their values, which the page's
script shows under the pointer or by arrow keys. Without a script they are pictures.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shoal.runs.page import number, text

WIDTH, HEIGHT = 400, 236
LEFT, RIGHT, TOP, BOTTOM = 50, 390, 26, 192  # of the plot within it
COLOURS, DASHES = 8, 4
MOST_POINTS = 400

Values = Sequence[float | None]


@dataclass(frozen=True)
class Line:
    """One curve: `y` at the chart's `x`, a gap where it is None, and perhaps a band."""

    name: str
    y: Values
    low: Values | None = None
    high: Values | None = None
    colour: int = 0
    thin: bool = False  # drawn quietly, and not shown under the pointer


@dataclass(frozen=True)
class Point:
    """A value with its interval."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    colour: int = 0
    crossed: bool = False  # a cross in place of a dot
    about: str = ""


def chart(
    x: Sequence[float],
    lines: Sequence[Line],
    *,
    label: str,
    unit: str,
    points: Sequence[Point] = (),
    target: float | None = None,
    names: Sequence[str] = (),
    width: int = WIDTH,
    zero: bool = False,
) -> str:
    """A chart over `x`, whose values are called `unit`. `names` stand at each x in place of numbers; with `zero` the
    axis begins at 0."""
    x, lines = _thinned(x, lines)
    right = RIGHT + width - WIDTH
    ys = [v for line in lines for part in (line.y, line.low, line.high) for v in part or () if v is not None]
    ys += [v for p in points for v in (p.y, p.low, p.high) if v is not None] + ([] if target is None else [target])
    ys = [v for v in ys if math.isfinite(v)] + ([0.0] if zero else [])
    xs = [*x, *(p.x for p in points)] or [0.0]
    x_ticks = nice_ticks(min(xs), max(xs), max(3, width // 80))
    y_ticks = nice_ticks(min(ys, default=0.0), max(ys, default=1.0), 5)
    low_x, high_x = (min(xs), max(xs)) if not names else (min(xs) - 0.7, max(xs) + 0.7)
    low_y, high_y = min([*ys, y_ticks[0]]), max([*ys, y_ticks[-1]])
    scale_x = (low_x, high_x if high_x > low_x else low_x + 1.0, LEFT, right)
    scale_y = (low_y, high_y if high_y > low_y else low_y + 1.0, BOTTOM, TOP)
    out = [f"<text class='title' x='{2}' y='13'>{text(label)}</text>"]
    for tick in y_ticks:
        at = _at(tick, scale_y)
        out.append(f"<line class='grid' x1='{LEFT}' x2='{right}' y1='{at}' y2='{at}'/>")
        out.append(f"<text x='{LEFT - 6}' y='{at + 3.5:.1f}' text-anchor='end'>{text(short(tick))}</text>")
    bottom = HEIGHT
    if names:
        bottom = BOTTOM + 18 + math.ceil(6.8 * max(len(name) for name in names))
        for place, name in zip(x, names, strict=False):
            at = _at(place, scale_x)
            out.append(
                f"<text text-anchor='end' transform='translate({at + 4:.1f} {BOTTOM + 10}) rotate(-90)'>"
                f"{text(name)}</text>"
            )
    else:
        for tick in x_ticks:
            if low_x <= tick <= scale_x[1]:
                at = _at(tick, scale_x)
                out.append(f"<text x='{at}' y='{BOTTOM + 15}' text-anchor='middle'>{text(short(tick))}</text>")
        out.append(f"<text x='{(LEFT + right) / 2}' y='{HEIGHT - 8}' text-anchor='middle'>{text(unit)}</text>")
    out.append(f"<line class='axis' x1='{LEFT}' x2='{right}' y1='{BOTTOM}' y2='{BOTTOM}'/>")
    if target is not None:
        at = _at(target, scale_y)
        out.append(f"<line class='target' x1='{LEFT}' x2='{right}' y1='{at}' y2='{at}'/>")
        out.append(f"<text class='over' x='{LEFT + 4}' y='{at - 4:.1f}'>target {text(short(target))}</text>")
    for line in lines:
        if line.low is not None and line.high is not None:
            out.append(_band(x, line.low, line.high, scale_x, scale_y, line.colour))
    for line in lines:
        kind = "line thin" if line.thin else f"line d{line.colour % DASHES}"
        out.append(f"<path class='{kind} c{line.colour % COLOURS}' d='{_path(x, line.y, scale_x, scale_y)}'/>")
    out += [_point(one, scale_x, scale_y) for one in points]
    shown = [line for line in lines if not line.thin]
    data = {
        "x": [_short(v) for v in x], "fx": scale_x, "fy": scale_y, "unit": unit,
        "ticks": list(names) if names else None,
        "lines": [
            {"n": line.name, "c": line.colour % COLOURS, "y": [_short(v) for v in line.y],
             **({} if line.low is None or line.high is None else
                {"low": [_short(v) for v in line.low], "high": [_short(v) for v in line.high]})}
            for line in shown
        ],
    }  # fmt: skip
    hover = f" tabindex='0' data-chart='{text(json.dumps(data, separators=(',', ':')))}'" if shown and x else ""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' class='chart' role='img' viewBox='0 0 {width} {bottom}'"
        f" aria-label='{text(_spoken(label, shown))}'{hover}>{''.join(out)}</svg>"
    )


def legend(lines: Sequence[Line]) -> str:
    """Names beside the strokes that they are drawn with."""
    keys = (
        f"<span class='key c{line.colour % COLOURS}'><svg viewBox='0 0 26 10' aria-hidden='true'><path "
        f"class='line d{line.colour % DASHES}' d='M0 5H26'/></svg><span class='quiet'>{text(line.name)}</span></span>"
        for line in lines
    )
    return f"<p>{''.join(keys)}</p>"


@dataclass(frozen=True)
class Effect:
    """A row of a forest plot: an effect with its interval, and what it means in words."""

    label: str
    value: float
    low: float
    high: float
    words: str
    colour: int = 0
    strong: bool = False


MOST = 4.0  # units of a forest plot to each side; an effect beyond is drawn at its edge


def forest(effects: Sequence[Effect], left: str, right: str) -> str:
    """Effects with intervals around 0, in a unit of which there are dashed lines at 1; `left` and `right` say what is
    better on that side."""
    ends = [abs(end) for one in effects for end in (one.low, one.high, one.value) if math.isfinite(end)]
    span = min(MOST, max([1.2, *ends]))
    scale = (-1.05 * span, 1.05 * span, 16.0, 384.0)
    height = 26 + 34 * len(effects)
    out = [f"<text x='192' y='14' text-anchor='end'>&#8592; {text(left)}</text>",
           f"<text x='208' y='14'>{text(right)} &#8594;</text>",
           f"<line class='axis' x1='200' x2='200' y1='20' y2='{height}'/>"]  # fmt: skip
    for unit in (-1.0, 1.0):
        out.append(f"<line class='target' x1='{_at(unit, scale)}' x2='{_at(unit, scale)}' y1='20' y2='{height}'/>")
    for row, one in enumerate(effects):
        y = 34 + 34 * row
        low, high, at = (_at(max(-span, min(span, end)), scale) for end in (one.low, one.high, one.value))
        weight = " font-weight='600'" if one.strong else ""
        side = 1 if one.value > 0 else -1
        mark = (
            f"<path class='dot' d='M{at} {y + 8}l{9 * side} 6l{-9 * side} 6Z'/>"
            if abs(one.value) > span
            else f"<circle class='dot' cx='{at}' cy='{y + 14}' r='4.5'/>"
        )
        out.append(
            f"<g class='c{one.colour % COLOURS}' tabindex='0' data-tip='{text(one.words)}'>"
            f"<rect x='0' y='{y - 8}' width='400' height='32' fill='transparent'/>"
            f"<text class='over' x='2' y='{y + 3}'{weight}>{text(one.label)}</text>"
            f"<line class='whisker' x1='{low}' x2='{high}' y1='{y + 14}' y2='{y + 14}'/>{mark}</g>"
        )
    return f"<svg class='chart' role='group' viewBox='0 0 400 {height}'>{''.join(out)}</svg>"


def parts_bar(parts: Sequence[tuple[str, float]], unit: str) -> str:
    """Shares of a whole as one bar with a legend in figures."""
    whole = sum(value for _, value in parts)
    if whole <= 0:
        return ""
    bars, keys, at = [], [], 0.0
    for place, (name, value) in enumerate(parts):
        share = value / whole
        words = f"{name}: {value:,.1f} {unit}, {100 * share:.0f} %"
        bars.append(
            f"<rect class='c{place % COLOURS}' fill='currentColor' tabindex='0' data-tip='{text(words)}' "
            f"x='{1000 * at:.1f}' y='0' width='{max(1.0, 1000 * share - 2):.1f}' height='26'/>"
        )
        keys.append(f"<span class='key c{place % COLOURS}'><i></i><span class='quiet'>{text(words)}</span></span>")
        at += share
    return (
        f"<div class='bar'><svg viewBox='0 0 1000 26' preserveAspectRatio='none' role='group' "
        f"aria-label='shares of {text(number(whole))} {text(unit)}'>{''.join(bars)}</svg></div><p>{''.join(keys)}</p>"
    )


def nice_ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers that span a range.

    >>> nice_ticks(0.0, 487.0, 5), nice_ticks(-0.3, 0.9, 4)
    ([0.0, 100.0, 200.0, 300.0, 400.0, 500.0], [-0.5, 0.0, 0.5, 1.0])
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return [0.0, 1.0]
    if high <= low:
        half = abs(low) / 2 or 0.5
        low, high = low - half, low + half
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 2.5, 5.0, 10.0) if factor * power >= 0.999 * rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def short(value: float) -> str:
    """A number for an axis.

    >>> short(200000.0), short(0.25), short(-1500000.0), short(12.0)
    ('200k', '0.25', '-1.5M', '12')
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.4g}{letter}"
    return f"{value:.4g}"


def _thinned(x: Sequence[float], lines: Sequence[Line]) -> tuple[Sequence[float], Sequence[Line]]:
    """Every k-th of many points, and the last."""
    stride = math.ceil(len(x) / MOST_POINTS)
    if stride <= 1:
        return x, lines
    kept = sorted({*range(0, len(x), stride), len(x) - 1})

    def of(values: Values | None) -> list[float | None] | None:
        return None if values is None else [values[i] for i in kept]

    return [x[i] for i in kept], [
        Line(line.name, of(line.y) or [], of(line.low), of(line.high), line.colour, line.thin) for line in lines
    ]


Scale = tuple[float, float, float, float]


def _at(value: float, scale: Scale) -> float:
    low, high, start, end = scale
    return round(start + (value - low) / (high - low) * (end - start), 1)


def _stretches(x: Sequence[float], *values: Values) -> Iterator[list[int]]:
    """Places without a gap, stretch by stretch."""
    run: list[int] = []
    for place in range(len(x)):
        if all(v[place] is not None and math.isfinite(v[place] or 0.0) for v in values):
            run.append(place)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _path(x: Sequence[float], y: Values, scale_x: Scale, scale_y: Scale) -> str:
    parts = []
    for run in _stretches(x, y):
        spots = [f"{_at(x[i], scale_x)} {_at(y[i] or 0.0, scale_y)}" for i in run]
        parts.append("M" + "L".join(spots if len(spots) > 1 else spots * 2))
    return "".join(parts)


def _band(x: Sequence[float], low: Values, high: Values, scale_x: Scale, scale_y: Scale, colour: int) -> str:
    out = ""
    for run in _stretches(x, low, high):
        there = [f"{_at(x[i], scale_x)} {_at(high[i] or 0.0, scale_y)}" for i in run]
        back = [f"{_at(x[i], scale_x)} {_at(low[i] or 0.0, scale_y)}" for i in reversed(run)]
        out += f"<path class='band c{colour % COLOURS}' d='M{'L'.join([*there, *back])}Z'/>"
    return out


def _point(one: Point, scale_x: Scale, scale_y: Scale) -> str:
    x, y = _at(one.x, scale_x), _at(one.y, scale_y)
    about = f" tabindex='0' data-tip='{text(one.about)}'" if one.about else ""
    out = ""
    if one.low is not None and one.high is not None:
        ends = _at(one.low, scale_y), _at(one.high, scale_y)
        out = f"<line class='whisker' x1='{x}' x2='{x}' y1='{ends[0]}' y2='{ends[1]}'/>"
    mark = (
        f"<path class='cross' d='M{x - 4} {y - 4}l8 8m0 -8l-8 8'/>"
        if one.crossed
        else f"<circle class='dot' cx='{x}' cy='{y}' r='4'/>"
    )
    kind = "bad-mark" if one.crossed else f"c{one.colour % COLOURS}"
    return f"<g class='{kind}'{about}>{out}{mark}</g>"


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _spoken(label: str, lines: Sequence[Line]) -> str:
    ends = [(line.name, next((v for v in reversed(line.y) if v is not None), None)) for line in lines]
    last = ", ".join(f"{name} ends at {number(value)}" for name, value in ends if value is not None)
    return f"{label}: {last}" if last else label
