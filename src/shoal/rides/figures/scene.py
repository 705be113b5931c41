"""A day as a map with a slider through its requests, for a page: before and after, windows, a sheet per vehicle.

It is drawn from the data of `contest.unfold.scene`, which may have come from anybody: all of it is checked or escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.runs.charts import COLOURS
from shoal.runs.page import stage, table, text

WIDTH, MARGIN = 400.0, 6.0
NEVER = -1

Spot = tuple[float, float]


class _Paper:
    """Kilometres to the units of the picture."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        corners = [spot for cell in data["cells"] for spot in cell]
        self._low_x, high_x = (end(float(x) for x, _ in corners) for end in (min, max))
        low_y, self._high_y = (end(float(y) for _, y in corners) for end in (min, max))
        self._scale = (WIDTH - 2 * MARGIN) / max(1e-6, high_x - self._low_x)
        self.height = (self._high_y - low_y) * self._scale + 2 * MARGIN

    def at(self, spot: Sequence[float]) -> Spot:
        x, y = (float(part) for part in spot)
        return (
            round((x - self._low_x) * self._scale + MARGIN, 1),
            round((self._high_y - y) * self._scale + MARGIN, 1),
        )

    def path(self, spots: Sequence[Sequence[float]], end: str = "") -> str:
        return "M" + "L".join(f"{x} {y}" for x, y in map(self.at, spots)) + end


def scene(data: Mapping[str, Any]) -> str:
    """Markup: two maps under one slider, and the vehicles' sheets."""
    paper = _Paper(data)
    land = _land(data, paper)
    maps = "".join(
        f"<div><h3>{text(title)}</h3>{_map(data, data[which], paper, land, which == 'after')}</div>"
        for which, title in (("before", "without offers"), ("after", f"negotiated by {data['name']}"))
    )
    words = ["no request yet: all vehicles stand at the depot"]
    words += [_said(row, data, place) for place, row in enumerate(data["requests"])]
    keys = [
        ("<circle class='waiting' cx='0' cy='0' r='4'/>", "pickup"), ("<rect class='stop' x='-3' y='-3' width='6' "
         "height='6'/>", "dropoff"), ("<circle class='ring' cx='0' cy='0' r='4.5'/>", "windows changed, as agreed"),
        ("<circle class='booked' cx='0' cy='0' r='4.5'/>", "the request just booked"),
    ]  # fmt: skip
    legend = "".join(
        f"<span class='key'><svg viewBox='-13 -5 26 10' aria-hidden='true'>{mark}</svg>"
        f"<span class='quiet'>{text(name)}</span></span>"
        for mark, name in keys
    )
    about = (
        f"{data['title']}. Colours are vehicles; a stop under the pointer says what its rider asked, agreed and got."
    )
    if data.get("invented"):
        about += " Not a map: no coordinates were given, places are laid out by travel times."
    return (
        f"<p class='facts'>{text(about)}</p>"
        + stage("requests of the day", words, f"<div class='pair'>{maps}</div><p>{legend}</p>", ms=700)
        + _sheets(data)
    )


def _land(data: Mapping[str, Any], paper: _Paper) -> str:
    cells = "".join(paper.path(cell, "Z") for cell in data["cells"])
    out = f"<path class='land' d='{cells}'/>"
    if data["coast"]:
        out += f"<path class='coast' d='{paper.path(data['coast'], 'Z')}'/>"
    roads = "".join(paper.path(road) for road in data["roads"] if len(road) > 1)
    return out + (f"<path class='road' d='{roads}'/>" if roads else "")


def _map(data: Mapping[str, Any], day: Mapping[str, Any], paper: _Paper, land: str, after: bool) -> str:
    """One of the two: routes and stops after each request; and to point at, every stop from its request on."""
    depot, places = data["depot"], [paper.at(place) for place in data["places"]]
    count = len(data["requests"])
    out = [land]
    for step, routes in enumerate(day["plans"], start=1):
        ways, marks = "", ""
        for vehicle, route in enumerate(routes):
            if not route:
                continue
            colour = f"c{vehicle % COLOURS}"
            d = paper.path([depot, *(data["places"][int(stop)] for stop in route), depot])
            ways += f"<path class='under' d='{d}'/><path class='way {colour}' d='{d}'/>"
            marks += f"<g class='{colour}'>{''.join(_mark(int(stop), places[int(stop)]) for stop in route)}</g>"
        x, y = places[2 * (step - 1)]
        marks += f"<circle class='booked' cx='{x}' cy='{y}' r='5.5'/>"
        out.append(f"<g {_during(step, count)}>{ways}{marks}</g>")
    for request, row in enumerate(data["requests"]):
        about = text(_about(row, data, day, request, after))
        points = "".join(
            f"<circle fill='transparent' tabindex='0' data-tip='{about}' cx='{x}' cy='{y}' r='8'/>"
            for x, y in places[2 * request : 2 * request + 2]
        )
        x, y = places[2 * request]
        ring = f"<circle class='ring' cx='{x}' cy='{y}' r='7.5'/>" if after and row["answer"] == "yes" else ""
        out.append(f"<g data-from='{request + 1}'>{ring}{points}</g>")
    x, y = paper.at(depot)
    out.append(f"<path class='axis' d='M{x - 5} {y}H{x + 5}M{x} {y - 5}V{y + 5}'/>")
    out.append(f"<text class='number' x='{x + 6}' y='{y - 5}'>depot</text>")
    for step, driven in enumerate([0.0, *map(float, day["minutes"])]):
        out.append(f"<text class='number' {_during(step, count)} x='6' y='{paper.height - 6:.0f}'>"
                   f"{driven:,.0f} minutes driven</text>")  # fmt: skip
    return f"<svg class='map chart' role='group' viewBox='0 0 {WIDTH:.0f} {paper.height:.0f}'>{''.join(out)}</svg>"


def _during(step: int, count: int) -> str:
    """Of what is there at one step only; the last stays."""
    return f"data-from='{step}'" + (f" data-to='{step + 1}'" if step < count else "")


def _mark(stop: int, place: Spot) -> str:
    x, y = place
    if stop % 2:
        return f"<rect class='stop' x='{x - 3:.1f}' y='{y - 3:.1f}' width='6' height='6'/>"
    return f"<circle class='waiting' cx='{x}' cy='{y}' r='4'/>"


def _said(row: Mapping[str, Any], data: Mapping[str, Any], place: int) -> str:
    """A request in a line."""
    asked = " and ".join(f"{int(row[f'{way}_min'])} minutes {way}" for way in ("earlier", "later") if row[f"{way}_min"])
    answer = {"yes": f"asked to come {asked}: agreed", "no": f"asked to come {asked}: refused"}
    said = answer.get(row["answer"], "booked as asked")
    away = "; turned away" if data["after"]["times"][2 * place] == NEVER else ""
    way = f"{row['pickup_zone']} to {row['dropoff_zone']}"
    return f"request {place + 1}, {way}, {_window(row, 'pickup', 'asked')}: {said}{away}"


def _about(row: Mapping[str, Any], data: Mapping[str, Any], day: Mapping[str, Any], request: int, after: bool) -> str:
    """What a rider asked, agreed and got, line by line."""
    lines = [f"request {request + 1}"]
    for place, side in enumerate(("pickup", "dropoff")):
        lines.append(f"{side}, {row[f'{side}_zone']}")
        lines.append(f"  asked {_window(row, side, 'asked')}")
        if after and row["answer"] == "yes":
            lines.append(f"  agreed {_window(row, side, 'agreed')}")
        served = float(day["times"][2 * request + place])
        lines.append("  turned away" if served == NEVER else f"  served {_clock(served / 3600)}")
    return "\n".join(lines)


def _window(row: Mapping[str, Any], side: str, which: str) -> str:
    opens, closes = row[side][which]
    return f"{_clock(opens)} to {_clock(closes)}"


def _clock(hours: float) -> str:
    """Hours since midnight as a time.

    >>> _clock(8.5)
    '08:30'
    """
    minutes = round(60 * float(hours))
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def _sheets(data: Mapping[str, Any]) -> str:
    """A table for each vehicle of the negotiated day."""
    parts = []
    for vehicle, route in enumerate(data["after"]["plans"][-1]):
        if not route:
            continue
        rows, on_board = [], 0
        for stop in map(int, route):
            row = data["requests"][stop // 2]
            side = "dropoff" if stop % 2 else "pickup"
            on_board += -1 if stop % 2 else 1
            time = _clock(float(data["after"]["times"][stop]) / 3600)
            rows.append(
                [time, side, str(stop // 2 + 1), row[f"{side}_zone"], _window(row, side, "agreed"), str(on_board)]
            )
        head = ["time", "stop", "request", "zone", "window", "on board"]
        parts.append(
            f"<details><summary class='c{vehicle % COLOURS}'>vehicle {vehicle + 1}, {len(route)} stops</summary>"
            f"{table(head, rows)}</details>"
        )
    return f"<h3>Sheets of the vehicles, as negotiated</h3>{''.join(parts)}" if parts else ""
