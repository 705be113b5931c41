"""Li and Lim's public benchmark of pickup and delivery with time windows, read into this task's own problem.

Format: a line "vehicles capacity speed", then one line a task: number, x, y, demand, earliest, latest, service time,
number of its pickup (0 for a pickup), number of its delivery (0 for a delivery); task 0 is the depot. Distances are
Euclidean.

The oracles know whole numbers and no service times. So distances are scaled and rounded up (which keeps the triangle
inequality, unlike rounding to the nearest), and the service at a task is added to every way out of it: arrival
times and windows stay as they were, and since every task is visited once, the sum of all service is a constant that
`distance` takes off again. Only the rounding is not exact, by less than 1/scale a leg: at the default scale under
0.002 % of any of the public instances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.checks import shown
from shoal.rides.routing.problem import REQUEST, Problem

Array = np.ndarray[Any, Any]
SCALE = 10_000  # units of "seconds" per unit of the instance; horizons up to 50,000 fit in 32 bits
_FIELDS = ("number", "x", "y", "demand", "earliest", "latest", "service", "pickup", "delivery")


@dataclass(frozen=True)
class Instance:
    """A benchmark instance: zones are its tasks, zone 0 the depot."""

    name: str
    problem: Problem
    requests: Array  # REQUEST[C]
    service: int  # of all tasks together, in scaled units
    scale: int

    def distance(self, cost_s: int) -> float:
        """The instance's own distance of a plan that serves everybody and costs `cost_s`."""
        return (cost_s - self.service) / self.scale

    def with_vehicles(self, vehicles: int) -> Instance:
        """The same with another fleet: the benchmark compares distances at the best-known number of vehicles."""
        return replace(self, problem=replace(self.problem, vehicles=vehicles))


def load_li_lim(path: str | Path, scale: int = SCALE) -> Instance:
    """Read an instance file. Errors name the file, the line, and what was expected."""
    path = Path(path)
    if scale < 1:
        raise ValueError(f"expected a scale of at least 1, got {scale}")
    lines = [(number, line.split()) for number, line in enumerate(path.read_text().splitlines(), 1) if line.strip()]
    if not lines:
        raise ValueError(f"{path}: expected vehicles, capacity and speed in line 1, got an empty file")
    vehicles, capacity = _head(path, *lines[0])
    rows = [_numbers(path, number, words) for number, words in lines[1:]]
    if len(rows) < 3:
        raise ValueError(f"{path}: expected a depot and at least one pickup and delivery, got {len(rows)} tasks")
    tasks = np.array(rows)  # float64[T, 9]
    where = [number for number, _ in lines[1:]]
    _check(path, where, tasks, capacity, scale)
    return _instance(path.stem, vehicles, capacity, tasks, scale)


def _instance(name: str, vehicles: int, capacity: int, tasks: Array, scale: int) -> Instance:
    x, y, earliest, latest, service = (
        tasks[:, _FIELDS.index(key)] for key in ("x", "y", "earliest", "latest", "service")
    )
    service_units = np.rint(service * scale).astype(np.int64)
    exact = np.hypot(x[:, None] - x, y[:, None] - y) * scale
    travel = np.ceil(exact - 1e-6).astype(np.int64)  # whole distances stay what they are
    travel += service_units[:, None]  # whoever leaves a task has served it
    np.fill_diagonal(travel, 0)
    opens, closes = np.rint(earliest * scale).astype(np.int64), np.rint(latest * scale).astype(np.int64)
    pickups = np.flatnonzero(tasks[:, _FIELDS.index("delivery")] > 0)
    deliveries = tasks[pickups, _FIELDS.index("delivery")].astype(np.int64)
    requests = np.zeros(len(pickups), REQUEST)
    requests["pickup"], requests["dropoff"] = pickups, deliveries
    requests["size"] = tasks[pickups, _FIELDS.index("demand")]
    requests["pickup_open"], requests["pickup_close"] = opens[pickups], closes[pickups]
    requests["dropoff_open"], requests["dropoff_close"] = opens[deliveries], closes[deliveries]
    hours = {"open_s": int(opens[0]), "close_s": int(closes[0])}
    problem = Problem(travel.astype(np.int32), 0, vehicles, capacity, **hours)
    return Instance(name, problem, requests, int(service_units.sum()), scale)


def _head(path: Path, number: int, words: list[str]) -> tuple[int, int]:
    values = _parse(path, number, words)
    if len(values) < 2 or any(value < 1 or value != int(value) for value in values[:2]):
        raise ValueError(f"{path}, line {number}: expected vehicles, capacity and speed, got {shown(' '.join(words))}")
    if len(values) > 2 and values[2] != 1:
        raise ValueError(
            f"{path}, line {number}: expected speed 1, as in all of Li and Lim's instances, got {shown(words[2])}"
        )
    return int(values[0]), int(values[1])


def _numbers(path: Path, number: int, words: list[str]) -> list[float]:
    if len(words) != len(_FIELDS):
        raise ValueError(
            f"{path}, line {number}: expected {len(_FIELDS)} numbers ({', '.join(_FIELDS)}), got {len(words)}"
        )
    return _parse(path, number, words)


def _parse(path: Path, number: int, words: list[str]) -> list[float]:
    values = []
    for column, word in enumerate(words, 1):
        try:
            values.append(float(word))
        except ValueError:
            raise ValueError(f"{path}, line {number}, column {column}: expected a number, got {shown(word)}") from None
        if not np.isfinite(values[-1]):
            raise ValueError(f"{path}, line {number}, column {column}: expected a finite number, got {shown(word)}")
    return values


def _check(path: Path, where: list[int], tasks: Array, capacity: int, scale: int) -> None:
    """Numbering, pairs, demands and windows; `where` gives each task's line."""
    largest = np.iinfo(np.int32).max
    for task, row in enumerate(tasks):
        at = f"{path}, line {where[task]}"
        number, x, y, demand, earliest, latest, service, pickup, delivery = row
        if number != task:
            raise ValueError(f"{at}: expected task {task}, got {number:g}: tasks are numbered from 0 without gaps")
        if earliest < 0 or latest < earliest or service < 0:
            got = f"{earliest:g}, {latest:g}, {service:g}"
            raise ValueError(f"{at}: expected 0 <= earliest <= latest and service of at least 0, got {got}")
        widest = max(latest, abs(x), abs(y)) + service
        if widest * scale >= largest / 4:
            raise ValueError(f"{at}: {widest:g} does not fit in 32 bits at scale {scale}: use a smaller scale")
        if task == 0:
            if demand or pickup or delivery or service:
                raise ValueError(f"{at}: expected the depot, without demand, service or partner, as task 0")
            continue
        if (pickup > 0) == (delivery > 0):
            raise ValueError(
                f"{at}: expected either a pickup or a delivery number above 0, got {pickup:g} and {delivery:g}"
            )
        partner, role = (delivery, "delivery") if delivery > 0 else (pickup, "pickup")
        if partner != int(partner) or not 1 <= partner < len(tasks):
            raise ValueError(f"{at}: expected its {role} as a task of 1 to {len(tasks) - 1}, got {partner:g}")
        other = tasks[int(partner)]
        if other[7 if delivery > 0 else 8] != task or other[3] != -demand:
            raise ValueError(
                f"{at}: task {int(partner)} (line {where[int(partner)]}) is not its {role} with the opposite demand"
            )
        if (demand > 0) != (delivery > 0) or demand != int(demand):
            raise ValueError(
                f"{at}: expected a whole demand above 0 at a pickup and below 0 at a delivery, got {demand:g}"
            )
        if abs(demand) > capacity:
            raise ValueError(f"{at}: a demand of {demand:g} fits in no vehicle of capacity {capacity}")
