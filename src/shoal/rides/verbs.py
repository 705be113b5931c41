"""`shoal rides ...`: the verbs of the task. What they compute is in shoal.rides."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal.extras import require
from shoal.rides.fit.command import COMMAND as FIT
from shoal.rides.oracle_report.command import COMMAND as ORACLE
from shoal.tasks import Command, Say, Shown

# -- pictures of the world ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CityArgs:
    """Draw the city: zones by their distance from the depot."""

    city: str = ""
    """A CSV of travel times between zones, in seconds; default: San Francisco in 207 zones."""
    zones: str = ""
    """A CSV of zone names and coordinates for --city."""
    out: str = "rides-city.png"
    """File for the map (.png or .svg)."""


def city(given: CityArgs, say: Say) -> Shown:
    """Draw the city and say its figures."""
    require("rides", "shoal rides")
    from matplotlib.figure import Figure

    from shoal.rides.figures.map import draw_city
    from shoal.rides.options import RidesOptions
    from shoal.rides.world.world import make_world

    drawn = make_world(RidesOptions(city=given.city, zones=given.zones)).city
    figure = Figure(figsize=(9, 8), layout="constrained")
    draw_city(figure.subplots(), drawn)
    path = _save(figure, given.out)
    found = drawn.summary()
    lines = [
        f"{found['name']}: {found['zones']} zones, depot {found['depot']}; {found['median_min']:.1f} minutes apart in "
        f"the median, {found['max_min']:.1f} at most; there and back differ by {found['asymmetry_percent']:.1f} %"
    ]
    if drawn.invented:
        lines.append(
            "no coordinates were given: the picture is laid out by travel times; --zones gives every zone its place"
        )
    return Shown({**found, "picture": str(path)}, [*lines, f"picture  {path}"])


@dataclass(frozen=True)
class DayArgs:
    """Draw one day of requests."""

    seed: int = 0
    """The seed of the day."""
    customers: int = 30
    """Requests of the day."""
    split: Literal["train", "held_out", "all"] = "train"
    """Which riders call: those of training, the held-out ones, or all."""
    city: str = ""
    """A CSV of travel times between zones, in seconds; default: San Francisco in 207 zones."""
    zones: str = ""
    """A CSV of zone names and coordinates for --city."""
    riders: str = ""
    """A CSV of riders; default: a population drawn from --population-seed."""
    trips: str = ""
    """A CSV of the trips that --riders make; default: drawn from home and occupation."""
    population: int = 300
    """Riders; a fifth of them is held out for evaluation where that is enough for a day."""
    population_seed: int = 0
    """Seed of the population."""
    out: str = "rides-day.png"
    """File for the map (.png or .svg)."""
    csv: str = ""
    """File for the requests, as shoal rides offer --day reads them."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise ValueError(f"expected --seed as a whole number of at least 0, got {self.seed}")


def day(given: DayArgs, say: Say) -> Shown:
    """Print a day's requests, draw them and, with --csv, write them."""
    require("rides", "shoal rides")
    from matplotlib.figure import Figure

    from shoal.rides.desk.text import day_rows
    from shoal.rides.figures.map import draw_day
    from shoal.rides.options import RidesOptions
    from shoal.rides.world.files import write_day
    from shoal.rides.world.world import make_world

    names = ("customers", "city", "zones", "riders", "trips", "population", "population_seed")
    world = make_world(RidesOptions(**{name: getattr(given, name) for name in names}))
    drawn = world.days(given.split).draw(given.seed)
    figure = Figure(figsize=(10, 8), layout="constrained")
    draw_day(figure.subplots(), world.city, drawn)
    path = _save(figure, given.out)
    if given.csv:
        write_day(drawn, given.csv, world.city, world.riders)
    rows = day_rows(world.city, drawn, world.riders)
    data = {"seed": given.seed, "requests": rows, "picture": str(path), "csv": given.csv or None}
    last = [f"requests {given.csv}"] if given.csv else []
    return Shown(data, [*_columns(rows), "", f"picture  {path}", *last])


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as aligned text; numbers to the right."""
    names = list(rows[0])
    cells = [names, *([str(row[name]) for name in names] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    right = [isinstance(rows[0][name], int | float) for name in names]
    lines = []
    for line in cells:
        padded = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(line, widths, right, strict=True)
        )
        lines.append("  ".join(padded).rstrip())
    return lines


def _save(figure: Any, out: str) -> Path:
    path = Path(out)
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"--out: expected a file that ends in .png, .svg or .pdf, got {out!r}")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ValueError(f"--out {out}: cannot be written: {error.strerror}") from None
    return path


# -- the booking desk --------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfferArgs:
    """Print the offer of a trained run to the rider who is calling now."""

    run: str
    """Run folder of rides, or its name under --runs-dir."""
    day: str = ""
    """CSV of the day's bookings so far, in booking order; earlier_min and later_min say what riders agreed to."""
    request: str = ""
    """The call: "rider=17, pickup=Mission 2, dropoff=3, purpose=medical, pickup_open=9:00"."""
    row: int | None = None
    """The call is this row of --day, as a spreadsheet counts (the header is row 1); rows above it are booked."""
    think: str = ""
    """Seconds to think before the answer, such as 0.3s: as many more futures of the day are sampled as end in time.
    More precise, and not always the same answer: that depends on how many there were."""
    think_loop: Literal["open", "closed"] = "open"
    """With --think. open: in the futures every later rider is asked generously. closed: the run's agent negotiates with
    them, once for each of its three best offers; that takes a hundred times as long a future."""
    picture: str = ""
    """File for a map of the routes if the offer is accepted (.png or .svg)."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def offer(given: OfferArgs, say: Say) -> Shown:
    """Print the offer, its price, P(accept) and the routes under either answer."""
    require("rides", "shoal rides")
    if bool(given.request) == (given.row is not None):
        raise ValueError("expected the call as --request or as --row of --day, one of the two")
    if given.think_loop == "closed" and not given.think:
        raise ValueError("--think-loop closed says how to think: add --think 0.3s")
    from shoal.rides.desk.calls import find_call
    from shoal.rides.desk.view import offer_data, offer_lines
    from shoal.rides.policies.learned import Negotiator

    think_s = _seconds(given.think) if given.think else None
    agent = Negotiator(given.run, runs_dir=given.runs_dir, think_s=think_s, loop=given.think_loop)
    desk = agent.desk()
    booked, call = find_call(desk.world, given.day, given.request, given.row)
    agent.offer(booked, *call)  # compiles or loads what is compiled; an open desk answers at the second call's speed
    begin_s = time.perf_counter()
    found = agent.offer(booked, *call)
    data = offer_data(desk.world, booked, call, found) | {"answer_ms": 1000 * (time.perf_counter() - begin_s)}
    if given.picture:
        from shoal.rides.figures.day import routes_figure

        _save(routes_figure(desk.world.city, data["pictures"], ring="this call"), given.picture)
    del data["pictures"]
    lines = [*offer_lines(data), *([f"picture  {given.picture}"] if given.picture else [])]
    return Shown(data, lines)


def _seconds(text: str) -> float:
    """The seconds of `0.3s`, `0.3` or `300ms`.

    >>> _seconds("0.3s"), _seconds("300ms")
    (0.3, 0.3)
    """
    number, scale = (text[:-2], 1000.0) if text.endswith("ms") else (text.removesuffix("s"), 1.0)
    try:
        seconds = float(number) / scale
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 3600:
        raise ValueError(f"expected --think as seconds above 0, such as 0.3s or 300ms, got {text!r}")
    return seconds


COMMANDS = {
    "city": Command("the city as a map", CityArgs, city),
    "day": Command("one day's requests: a table, a map, a CSV file", DayArgs, day, usage="[--seed N]"),
    "offer": Command(
        "the offer of a trained run to the rider who is calling now", OfferArgs, offer, "RUN --day FILE", first="run"
    ),
    "fit": FIT,
    "oracle": ORACLE,
}
