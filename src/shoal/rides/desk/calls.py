"""The day so far and the call that comes in, as a booking screen has them: a CSV file and a line of text."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from shoal.rides.desk.offer import Booked
from shoal.rides.routing.problem import (
    EARLIER_MIN,
    LATER_MIN,
    NO_CHANGE,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    REQUEST,
)
from shoal.rides.world.answers import PURPOSES
from shoal.rides.world.city import City
from shoal.rides.world.days import open_windows
from shoal.rides.world.files import WINDOWS, Names, UnderWay, Zones, check_windows, read_ways
from shoal.rides.world.riders import Riders
from shoal.rides.world.tables import Table, refuse
from shoal.rides.world.world import World

Array = np.ndarray[Any, Any]
COLUMNS = ("rider", "pickup", "dropoff", "purpose", *WINDOWS)
AGREED = ("earlier_min", "later_min")  # what the rider agreed to; the windows themselves are as asked
UNKNOWN = -1  # a rider of whom nothing is known


def load_booked(path: Path | str, city: City, riders: Riders, capacity: int) -> Booked:
    """The bookings of a day, in booking order: the columns of a requests file, and what was agreed.

    `rider` may be empty for somebody who is not among the riders; `earlier_min` and `later_min` may be left out. A
    rider may book several rides that cannot meet, such as out and back.
    """
    table = Table(path, COLUMNS, ("size", "mood", "seed", *AGREED))
    rows = [_read(table, row, city, riders, capacity) for row in range(len(table))]
    requests = np.zeros(len(rows), REQUEST)
    rider, purpose = np.zeros(len(rows), np.int32), np.zeros(len(rows), np.int8)
    agreed = np.full(len(rows), NO_CHANGE, np.int8)
    under_way = UnderWay()
    for row, (request, who, why) in enumerate(rows):
        requests[row], rider[row], purpose[row] = request, who, why
        if AGREED[0] in table or AGREED[1] in table:
            agreed[row] = _agreed(table, row)
        if who != UNKNOWN:
            change = int(OFFER_EARLIER_MIN[agreed[row]]), int(OFFER_LATER_MIN[agreed[row]])
            under_way.add(table, row, who, request, *change)
    return Booked(requests, rider, purpose, agreed, tuple(table.others(row) for row in range(len(table))))


def parse_call(text: str, city: City, riders: Riders, capacity: int) -> tuple[Any, int, int]:
    """A request as "pickup=Mission 2, dropoff=3, purpose=medical, pickup_open=9:00": (REQUEST record, rider, purpose).

    The names are those of a requests file. `rider` and `size` may be left out, and so may the other three times: a
    window is half an hour long, and the dropoff's begins the direct time after the pickup's, rounded up to 5 minutes.
    """
    return _read(_Line(text), 0, city, riders, capacity)


class _Line(Table):
    """One row, given on the command line."""

    def __init__(self, text: str) -> None:
        self.path = Path("--request")
        known = (*COLUMNS, "size")
        cells: dict[str, str] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals or name not in known:
                refuse(self.path, f"name=value of {', '.join(known)}, with commas between", repr(part.strip()))
            if name in cells:
                refuse(self.path, "every name once", f"{name!r} again")
            cells[name] = value
        cells.setdefault("rider", "")
        for name in ("pickup", "dropoff", "purpose", "pickup_open"):
            if name not in cells:
                refuse(self.path, f"{name}=...", repr(text))
        times = [name for name in WINDOWS if name in cells]
        if len(times) not in (1, len(WINDOWS)):
            refuse(self.path, f"pickup_open alone, or all of {', '.join(WINDOWS)}", ", ".join(times))
        self._column = {name: at for at, name in enumerate(cells)}
        self._rows = [list(cells.values())]

    def refuse(self, row: int, column: str, expected: str, got: str | None = None) -> NoReturn:
        column = column if column in self else "pickup_open"  # from which the other times follow
        refuse(self.path, expected, repr(self[row, column]) if got is None else got, None, column)


def _read(table: Table, row: int, city: City, riders: Riders, capacity: int) -> tuple[Any, int, int]:
    who = UNKNOWN
    if table[row, "rider"]:
        who = Names(riders.name).read(table, row)
    request = np.zeros(1, REQUEST)
    request["pickup"], request["dropoff"] = read_ways(table, row, Zones(city))
    request["size"] = table.whole(row, "size", 1, capacity, "a party") if "size" in table else 1
    if "pickup_close" in table:
        for column in WINDOWS:
            request[column] = table.time_s(row, column)
    else:
        direct_s = city.travel_s[request["pickup"], request["dropoff"]]
        open_windows(request, direct_s, table.time_s(row, "pickup_open"), False)
    check_windows(table, row, request[0], city)
    return request[0], who, table.choice(row, "purpose", PURPOSES)


def _agreed(table: Table, row: int) -> int:
    """The number of the offer that was agreed to."""
    earlier, later = (
        table.choice(row, column, [str(minutes) for minutes in choices]) if column in table else default
        for column, choices, default in zip(AGREED, (EARLIER_MIN, LATER_MIN), (3, 0), strict=True)
    )
    return 4 * earlier + later


def _check_free(booked: Booked, text: str, call: tuple[Any, int, int]) -> None:
    """Refuse a call of somebody who may be under way then."""
    line, under_way = _Line(text), UnderWay()
    for row in np.flatnonzero(booked.rider == call[1]):
        change = int(OFFER_EARLIER_MIN[booked.agreed[row]]), int(OFFER_LATER_MIN[booked.agreed[row]])
        under_way.add(line, int(row), call[1], booked.requests[row], *change)
    under_way.add(line, len(booked), call[1], call[0])


def find_call(world: World, day: str, request: str, row: int | None) -> tuple[Booked, tuple[Any, int, int]]:
    """The day so far, and the call: (REQUEST record, rider, purpose). `row` counts as a spreadsheet does, from 2."""
    capacity = world.options.capacity
    if not day and row is not None:
        raise ValueError("--row: expected --day too, the file that the row is of")
    booked = load_booked(day, world.city, world.riders, capacity) if day else Booked.nothing()
    if row is None:
        call = parse_call(request, world.city, world.riders, capacity)
        if call[1] != UNKNOWN:
            _check_free(booked, request, call)
        return booked, call
    if not 2 <= row <= len(booked) + 1:
        raise ValueError(f"--row: expected a row of 2 to {len(booked) + 1} of {day} (row 1 is the header), got {row}")
    at = row - 2
    return booked.until(at), (booked.requests[at], int(booked.rider[at]), int(booked.purpose[at]))
