"""A user's own city as CSV files: a matrix of travel times in seconds, and a table of zones.

Times that are not whole are rounded up: then a + b >= c stays true of the rounded ones.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from shoal.rides.routing.problem import DAY_S
from shoal.rides.world.city import ATTRACTIONS, City, closed
from shoal.rides.world.tables import Notice, Table, read_cells, real, refuse, write_table

Array = np.ndarray[Any, Any]

CORNER = "zone"  # in the first cell of a matrix: the first row and column are names
MAP_KMH = 18.0  # turns times into a map where no coordinates are given


def load_city(matrix_csv: Path | str, zones_csv: Path | str | None = None) -> City:
    """A city of the user's own.

    Without zones the map is laid out from the travel times and the depot is where the round trips are shortest.
    """
    matrix_path = Path(matrix_csv)
    travel_s, names = _read_matrix(matrix_path)
    repaired = closed(travel_s)
    if (worse := repaired < travel_s).any():
        start, end = np.unravel_index(np.argmax(travel_s - repaired), travel_s.shape)
        warnings.warn(
            f"{matrix_path}: {int(worse.sum())} of {worse.size} travel times are longer than a detour; the worst, "
            f"row {start + 1 + bool(names)}, column {end + 1 + bool(names)}: {travel_s[start, end]} s against "
            f"{repaired[start, end]} s. The shorter times are used",
            Notice,
            stacklevel=2,
        )
    if zones_csv is not None:
        return _with_zones(matrix_path, Path(zones_csv), repaired, names)
    x_km, y_km = _laid_out(repaired)
    round_trips_s = repaired.sum(axis=0, dtype=np.int64) + repaired.sum(axis=1, dtype=np.int64)
    zone_names = names or tuple(f"zone {zone}" for zone in range(len(repaired)))
    depot = int(np.argmin(round_trips_s))
    return City(matrix_path.stem, repaired, x_km, y_km, depot, zone_names, invented=True)


def write_city(city: City, matrix_csv: Path | str, zones_csv: Path | str) -> None:
    """Write a city so that `load_city` reads the same one."""
    assert city.attraction is not None
    rows = [[name, *row] for name, row in zip(city.zone_names, city.travel_s.tolist(), strict=True)]
    header = ["name", "x_km", "y_km", "depot", *ATTRACTIONS]
    columns = [city.zone_names, city.x_km.tolist(), city.y_km.tolist()]
    depot = [int(zone == city.depot) for zone in range(city.zones)]
    zones = list(zip(*columns, depot, *city.attraction.tolist(), strict=True))
    write_table(zones_csv, [header, *zones])
    write_table(matrix_csv, [[CORNER, *city.zone_names], *rows])


def _read_matrix(path: Path) -> tuple[Array, tuple[str, ...]]:
    cells = read_cells(path)
    names: tuple[str, ...] = ()
    first = 0  # where the numbers begin, in rows and columns
    if cells[0][0].lower() == CORNER:
        first, names = 1, tuple(cells[0][1:])
        for at, row in enumerate(cells[1:]):
            if at < len(names) and row[0] != names[at]:
                refuse(path, f"{names[at]!r}, as in the first row", repr(row[0]), at + 2, 1)
        _check_names(path, names, row=1)
    zones = len(cells) - first
    if zones < 2:
        refuse(path, "a square table of at least 2 zones", f"{zones} row{'s' * (zones != 1)} of numbers")
    travel_s = np.empty((zones, zones), np.int32)
    for at, row in enumerate(cells[first:]):
        if len(row) - first != zones:
            expected = f"{zones} numbers, since the table has {zones} rows and is to be square"
            refuse(path, expected, str(len(row) - first), at + first + 1)
        for to, cell in enumerate(row[first:]):
            travel_s[at, to] = _seconds(path, at + first + 1, to + first + 1, cell, diagonal=at == to)
    if travel_s.max() <= 120:
        warnings.warn(
            f"{path}: the longest travel time is {travel_s.max()} seconds; if these are minutes, multiply them by 60",
            Notice,
            stacklevel=3,
        )
    return travel_s, names


def _seconds(path: Path, row: int, column: int, cell: str, diagonal: bool) -> int:
    value = real(path, row, column, cell, "a travel time in seconds")
    if diagonal and value != 0:
        refuse(path, "0, since this is the way from a zone to itself", repr(cell), row, column)
    if not 0 <= value <= DAY_S:
        refuse(path, f"a travel time from 0 to {DAY_S} seconds", repr(cell), row, column)
    return math.ceil(value)


def _check_names(path: Path, names: tuple[str, ...], row: int | None = None) -> None:
    """Names tell zones apart, from each other and from numbers of zones."""
    for at, name in enumerate(names):
        where: dict[str, Any] = {"row": row or at + 2, "column": at + 2 if row else "name"}
        if not name or name.lstrip("-").isdigit():
            refuse(path, "a zone's name that is not a number", repr(name), **where)
        if name in names[:at]:
            refuse(path, "every zone once", f"{name!r} again", **where)


def _with_zones(matrix_path: Path, path: Path, travel_s: Array, names: tuple[str, ...]) -> City:
    degrees = "longitude" in read_cells(path)[0]
    columns = ("longitude", "latitude") if degrees else ("x_km", "y_km")
    table = Table(path, ("name", *columns), ("depot", *ATTRACTIONS))
    if len(table) != len(travel_s):
        refuse(path, f"{len(travel_s)} zones, as in {matrix_path}", str(len(table)))
    zone_names = tuple(table[row, "name"] for row in range(len(table)))
    _check_names(path, zone_names)
    for row, name in enumerate(names):
        if zone_names[row] != name:
            table.refuse(row, "name", f"{name!r}, as in {matrix_path}, in the same order")
    place = np.array([[table.real(row, column) for column in columns] for row in range(len(table))])
    if degrees:
        middle = place.mean(axis=0)
        place = (place - middle) * (111.32 * math.cos(math.radians(middle[1])), 111.0)  # km in a degree
    depots = [row for row in range(len(table)) if "depot" in table and table.whole(row, "depot", 0, 1)]
    if "depot" in table and len(depots) != 1:
        refuse(path, "1 in exactly one row", f"{len(depots)} rows with 1", depots[1] + 2 if depots else None, "depot")
    round_trips_s = travel_s.sum(axis=0, dtype=np.int64) + travel_s.sum(axis=1, dtype=np.int64)
    depot = depots[0] if depots else int(np.argmin(round_trips_s))
    x_km, y_km = place.T.copy()
    return City(matrix_path.stem, travel_s, x_km, y_km, depot, zone_names, _weights(table))


def _weights(table: Table) -> Array:
    out = np.ones((len(ATTRACTIONS), len(table)))
    for at, name in enumerate(ATTRACTIONS):
        if name not in table:
            continue
        for row in range(len(table)):
            out[at, row] = table.real(row, name)
            if out[at, row] < 0:
                table.refuse(row, name, "a weight of at least 0")
        if (out[at] > 0).sum() < 2:
            refuse(table.path, "at least 2 zones with a weight above 0", str(int((out[at] > 0).sum())), None, name)
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def _laid_out(travel_s: Array) -> tuple[Array, Array]:
    """Points on a plane whose distances resemble the travel times, in km (classical scaling, Torgerson 1952)."""
    distance_km = 0.5 * (travel_s + travel_s.T.astype(np.float64)) / 3600 * MAP_KMH
    squared = distance_km**2
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    plane = np.zeros((len(travel_s), 2))
    plane[:, : min(2, len(travel_s))] = (vectors[:, ::-1] * np.sqrt(values[::-1].clip(min=0.0)))[:, :2]
    return plane[:, 0].copy(), plane[:, 1].copy()
