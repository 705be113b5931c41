"""A user's own city, riders and bookings, as CSV files: readers that check everything, and writers of the same formats.

| file | columns |
|---|---|
| matrix | seconds from the row's zone to the column's; a first cell `zone` says that names are in row and column 1 |
| zones | `name`, `x_km`, `y_km` (or `longitude`, `latitude`); optional `depot` (1 once), weights `home`, `work`, ... |
| riders | `rider`, `age`, `occupation`, `income`, `home`; optional `type`, `effect`, `held_out` |
| trips | `rider`, `pickup`, `dropoff`, `purpose`, `pickup_open`: the riders' diaries |
| requests | `rider`, `pickup`, `dropoff`, `purpose`, the four times of the windows; optional `size`, `mood`, `seed` |

A zone is given by name or by number from 0, a rider by the text in the riders' file, a time as H:MM or H:MM:SS. Cells
are separated by commas or semicolons; columns of other names are the user's own and change nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.seeds import generator
from shoal.rides.routing.problem import DAY_S, REQUEST
from shoal.rides.world.answers import PURPOSES, Kind
from shoal.rides.world.city import City, san_francisco
from shoal.rides.world.city_files import load_city, write_city
from shoal.rides.world.days import SLOT_S, Day
from shoal.rides.world.population import AGES, INCOMES, OCCUPATIONS, type_given_profile
from shoal.rides.world.riders import EFFECT_SD, SLOTS, Riders, draw_diaries, picked
from shoal.rides.world.tables import FileError, Table, clock, refuse, write_table

Array = np.ndarray[Any, Any]

__all__ = ["FileError", "load_city", "load_requests", "load_riders", "write_city", "write_day", "write_riders"]

KINDS = tuple(kind.name.lower() for kind in Kind)
PROFILE = (("age", AGES), ("occupation", OCCUPATIONS), ("income", INCOMES))
AGE_FROM, OLDEST = (35, 55, 70), 120  # years with which the later age groups begin
TRIP_COLUMNS = ("rider", "pickup", "dropoff", "purpose", "pickup_open")
WINDOWS = ("pickup_open", "pickup_close", "dropoff_open", "dropoff_close")
PARTY = 99  # the most that a file may ask for; the fleet's capacity is checked when it is known


class Zones:
    """Zones by name or number."""

    def __init__(self, city: City) -> None:
        self._city = city
        self._number = {name: zone for zone, name in enumerate(city.zone_names)}
        self._number |= {str(zone): zone for zone in range(city.zones)}

    def read(self, table: Table, row: int, column: str) -> int:
        """The zone of a cell."""
        cell = table[row, column]
        zone = self._number.get(cell)
        if zone is None:
            names = self._city.zone_names
            near = difflib.get_close_matches(cell, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            if not near and self._city is san_francisco():
                hint = (
                    ". In a town of your own, train there first: shoal train rides --city MATRIX.csv --zones ZONES.csv"
                )
            known = f"a zone of {self._city.name}: a name such as {names[0]!r} or a number from 0 to {len(names) - 1}"
            table.refuse(row, column, known, f"{cell!r}{hint}")
        return zone


class Names:
    """Riders by what their file calls them."""

    def __init__(self, names: Iterable[str]) -> None:
        self._number = {str(name): rider for rider, name in enumerate(names)}
        self._numbered = all(name == str(rider) for name, rider in self._number.items())

    def read(self, table: Table, row: int, column: str = "rider") -> int:
        """The number of a cell's rider."""
        cell = table[row, column]
        rider = self._number.get(cell)
        if rider is None:
            last = len(self._number) - 1
            known = f"a rider's number from 0 to {last}" if self._numbered else "a rider of the riders' file"
            near = [] if self._numbered else difflib.get_close_matches(cell, self._number, 1)
            table.refuse(row, column, known, repr(cell) + (f"; did you mean {near[0]!r}?" if near else ""))
        return rider


class UnderWay:
    """When each rider may be under way: nobody can ride twice at the same time, but out and back is fine."""

    def __init__(self) -> None:
        self._taken: dict[int, list[tuple[int, int, int]]] = {}  # by rider: from, to, row

    def add(self, table: Table, row: int, rider: int, request: Any, earlier_min: int = 0, later_min: int = 0) -> None:
        """Note a ride from its pickup's opening to its dropoff's closing, with what was agreed; refuse an overlap."""
        begin_s, end_s = under_way_s(request, earlier_min, later_min)
        for other_begin_s, other_end_s, other in self._taken.setdefault(rider, []):
            if begin_s < other_end_s and other_begin_s < end_s:
                table.refuse(
                    row,
                    "pickup_open",
                    f"a ride that begins at {clock(other_end_s)} or later, or ends by {clock(other_begin_s)}, since "
                    f"the same rider may be under way between (row {other + 2}; leave `rider` empty for somebody else)",
                    f"one from {clock(begin_s)} to {clock(end_s)}",
                )
        self._taken[rider].append((begin_s, end_s, row))


def under_way_s(request: Any, earlier_min: Any = 0, later_min: Any = 0) -> tuple[Any, Any]:
    """From when to when a rider may be under way, in seconds, whatever an agreed change does to the windows."""
    return request["pickup_open"] - 60 * earlier_min, request["dropoff_close"] + 60 * later_min


def load_riders(path: Path | str, city: City, trips: Path | str | None = None, seed: int = 0) -> Riders:
    """Riders of the user's own, in the order of the file. `rider` is any text that tells them apart.

    What a file does not say is drawn from `seed`: types given the profile, diaries given home and occupation. Without a
    column `held_out`, the last fifth is held out.
    """
    table = Table(path, ("rider", "age", "occupation", "income", "home"), ("type", "effect", "held_out"))
    zones, count = Zones(city), len(table)
    names = [table[row, "rider"] for row in range(count)]
    first = {name: row for row, name in reversed(list(enumerate(names)))}
    for row, name in enumerate(names):
        if not name:
            table.refuse(row, "rider", "a number or a name that tells the rider apart")
        if first[name] != row:
            table.refuse(row, "rider", "every rider once", f"{name!r} again, as in row {first[name] + 2}")
    codes = {
        column: np.array([_code(table, row, column, choices) for row in range(count)], np.int8)
        for column, choices in PROFILE
    }
    home = np.array([zones.read(table, row, "home") for row in range(count)], np.int32)
    rng = generator(seed, 2)
    kind = picked(rng.random(count), type_given_profile()[codes["age"], codes["occupation"], codes["income"]])
    effect = rng.normal(0.0, EFFECT_SD, count)
    if "type" in table:
        kind = np.array([table.choice(row, "type", KINDS) for row in range(count)])
    if "effect" in table:
        effect = np.array([table.real(row, "effect") for row in range(count)])
    held_out = np.arange(count) >= count - count // 5
    if "held_out" in table:
        held_out = np.array([table.whole(row, "held_out", 0, 1) == 1 for row in range(count)])
    drawn = draw_diaries(city, rng, home, codes["occupation"])
    diaries = drawn if trips is None else _load_trips(Path(trips), city, names)
    hidden: dict[str, Any] = {"kind": kind.astype(np.int8), "effect": effect, "held_out": held_out}
    return Riders(**codes, home=home, **hidden, **diaries, name=np.array(names))


def _code(table: Table, row: int, column: str, choices: Sequence[str]) -> int:
    """The position of a profile's word; an age may be given in years."""
    cell = table[row, column]
    if column == "age" and cell.isascii() and cell.isdigit() and int(cell) <= OLDEST:
        return sum(int(cell) >= years for years in AGE_FROM)
    return table.choice(row, column, choices)


def _load_trips(path: Path, city: City, names: list[str]) -> dict[str, Array]:
    table, zones, riders = Table(path, TRIP_COLUMNS), Zones(city), Names(names)
    diaries: list[list[tuple[int, int, int, int]]] = [[] for _ in names]
    for row in range(len(table)):
        rider = riders.read(table, row)
        pickup, dropoff = read_ways(table, row, zones)
        slot, rest = divmod(table.time_s(row, "pickup_open"), SLOT_S)
        if rest or slot >= SLOTS:
            table.refuse(row, "pickup_open", "a full or half hour before 24:00")
        diaries[rider].append((pickup, dropoff, table.choice(row, "purpose", PURPOSES), slot))
    for rider, diary in enumerate(diaries):
        if not diary:
            refuse(path, "at least one trip of every rider", f"none of rider {names[rider]}")
    most = max(len(diary) for diary in diaries)
    filled = np.array([diary + diary[-1:] * (most - len(diary)) for diary in diaries])  # [R, T, 4]
    pickup_zones, dropoff_zones, purpose, slots = filled.transpose(2, 0, 1)
    return {
        "trip_pickup": pickup_zones.astype(np.int32),
        "trip_dropoff": dropoff_zones.astype(np.int32),
        "trip_purpose": purpose.astype(np.int8),
        "trip_slot": slots.astype(np.int32),
        "trip_direct_s": city.travel_s[pickup_zones, dropoff_zones],
        "trip_count": np.array([len(diary) for diary in diaries], np.int32),
    }


def write_riders(riders: Riders, city: City, path: Path | str, trips: Path | str) -> None:
    """Write riders and their diaries so that `load_riders` reads the same ones."""
    header = ["rider", "age", "occupation", "income", "home", "type", "effect", "held_out"]
    rows = []
    diaries = []
    for rider in range(riders.count):
        profile = [names[getattr(riders, column)[rider]] for column, names in PROFILE]
        hidden = [KINDS[riders.kind[rider]], float(riders.effect[rider]), int(riders.held_out[rider])]
        rows.append([riders.name[rider], *profile, city.zone_names[riders.home[rider]], *hidden])
        for trip in range(riders.trip_count[rider]):
            ends = [city.zone_names[zones[rider, trip]] for zones in (riders.trip_pickup, riders.trip_dropoff)]
            purpose, slot = PURPOSES[riders.trip_purpose[rider, trip]], int(riders.trip_slot[rider, trip])
            diaries.append([riders.name[rider], *ends, purpose, clock(slot * SLOT_S)])
    write_table(trips, [TRIP_COLUMNS, *diaries])
    write_table(path, [header, *rows])


def load_requests(path: Path | str, city: City, riders: Riders, *, capacity: int | None = None, seed: int = 0) -> Day:
    """A day of the user's own bookings, in booking order.

    Without a column `mood` the draws behind the answers come from the seed, the file's own where it has one.
    """
    table = Table(path, ("rider", "pickup", "dropoff", "purpose", *WINDOWS), ("size", "mood", "seed"))
    zones, names, under_way, count = Zones(city), Names(riders.name), UnderWay(), len(table)
    requests = np.zeros(count, REQUEST)
    rider, purpose = np.zeros(count, np.int32), np.zeros(count, np.int8)
    for row in range(count):
        rider[row] = names.read(table, row)
        purpose[row] = table.choice(row, "purpose", PURPOSES)
        requests[row]["pickup"], requests[row]["dropoff"] = read_ways(table, row, zones)
        requests[row]["size"] = table.whole(row, "size", 1, capacity or PARTY, "a party") if "size" in table else 1
        for column in WINDOWS:
            requests[row][column] = table.time_s(row, column)
        check_windows(table, row, requests[row], city)
        under_way.add(table, row, int(rider[row]), requests[row])
    if "seed" in table:
        seed = table.whole(0, "seed", 0, 2**64 - 1, "a seed")
        for row in range(count):
            if table[row, "seed"] != table[0, "seed"]:
                table.refuse(row, "seed", f"{seed}, the one seed of the day, as in row 2")
    mood = generator(seed, 2).random(count)
    if "mood" in table:
        for row in range(count):
            mood[row] = table.real(row, "mood")
            if not 0 <= mood[row] < 1:
                table.refuse(row, "mood", "a number of at least 0 and below 1")
    return Day(seed, requests, rider, purpose, mood)


def write_day(day: Day, path: Path | str, city: City | None = None, riders: Riders | None = None) -> None:
    """Write a day so that `load_requests` reads the same one; with a city zones, with riders they by their names."""
    names = range(int(day.rider.max()) + 1) if riders is None else riders.name
    rows: list[list[Any]] = [["rider", "pickup", "dropoff", "purpose", *WINDOWS, "size", "mood", "seed"]]
    for request, rider, purpose, mood in zip(day.requests, day.rider, day.purpose, day.mood, strict=True):
        ends = [int(request["pickup"]), int(request["dropoff"])]
        places = ends if city is None else [city.zone_names[zone] for zone in ends]
        times = [clock(request[column]) for column in WINDOWS]
        rows.append([names[rider], *places, PURPOSES[purpose], *times, int(request["size"]), float(mood), day.seed])
    write_table(path, rows)


def read_ways(table: Table, row: int, zones: Zones) -> tuple[int, int]:
    pickup, dropoff = zones.read(table, row, "pickup"), zones.read(table, row, "dropoff")
    if pickup == dropoff:
        table.refuse(row, "dropoff", "another zone than the pickup's")
    return pickup, dropoff


def check_windows(table: Table, row: int, request: Any, city: City) -> None:
    """Refuse windows that no vehicle could ever keep."""
    travel_s, pickup, dropoff = city.travel_s, request["pickup"], request["dropoff"]
    for stop in ("pickup", "dropoff"):
        open_s, close_s = int(request[f"{stop}_open"]), int(request[f"{stop}_close"])
        if close_s < open_s:
            table.refuse(row, f"{stop}_close", f"{clock(open_s)}, when it opens, or later")
    if request["pickup_open"] >= DAY_S:
        table.refuse(row, "pickup_open", "a time before 24:00")
    reached_s = max(int(request["pickup_open"]), int(travel_s[city.depot, pickup]))
    if request["pickup_close"] < reached_s:
        table.refuse(row, "pickup_close", f"{clock(reached_s)} or later: vehicles leave the depot at 0:00")
    arrived_s = reached_s + int(travel_s[pickup, dropoff])
    if request["dropoff_close"] < arrived_s:
        direct_s = int(travel_s[pickup, dropoff])
        table.refuse(
            row,
            "dropoff_close",
            f"{clock(arrived_s)} or later, since the ride takes {-(-direct_s // 60)} minutes and cannot begin before "
            f"{clock(reached_s)}",
        )
    if request["dropoff_close"] + travel_s[dropoff, city.depot] > 2 * DAY_S:
        table.refuse(row, "dropoff_close", "a time after which the vehicle is back at the depot within 48 hours")
