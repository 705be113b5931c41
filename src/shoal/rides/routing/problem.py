"""The one problem definition that every oracle and the checker share: a dial-a-ride day with time windows.

Vehicles start and end at the depot. A request is a pair of stops, pickup before dropoff in the same vehicle, each
served inside its window; waiting is free, there is no service time. The cost of a day is the total travel time
in integer seconds; the fleet is a hard limit. Times are seconds since midnight.

A *stop* is an int: 2 * r is the pickup of request r, 2 * r + 1 its dropoff. A route is a sequence of stops without
the depot; an unused vehicle has an empty route.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

DAY_S = 24 * 3600

REQUEST = np.dtype(
    [
        ("pickup", "i4"),  # zone
        ("dropoff", "i4"),  # zone
        ("size", "i4"),  # riders in the party
        ("pickup_open", "i4"),
        ("pickup_close", "i4"),
        ("dropoff_open", "i4"),
        ("dropoff_close", "i4"),
    ]
)  # one request; times in seconds since midnight


class Status(IntEnum):
    """How pricing ended. A cost means something only with OK."""

    OK = 0
    UNSERVED = 1  # every level of the oracle was tried and none could place the request
    UNKNOWN = 2  # this oracle gave up early: another may find a route
    ERROR = 3


@dataclass(frozen=True)
class Problem:
    """What all days of a city share."""

    travel_s: np.ndarray[Any, Any]  # int32[Z, Z], asymmetric, zero diagonal, closed under the triangle inequality
    depot: int  # zone
    vehicles: int = 5
    capacity: int = 6
    open_s: int = 0  # no vehicle leaves the depot before ...
    close_s: int = 2 * DAY_S  # ... or is back after this; late dropoffs may end after midnight

    def __post_init__(self) -> None:
        matrix = self.travel_s
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.dtype != np.int32:
            raise ValueError(f"expected travel_s as int32[Z, Z], got {matrix.dtype}{list(matrix.shape)}")
        if not 0 <= self.depot < len(matrix):
            raise ValueError(f"expected the depot as a zone of 0 to {len(matrix) - 1}, got {self.depot}")
        if self.vehicles < 1:
            raise ValueError(f"expected at least 1 vehicle, got {self.vehicles}: with none nobody can be served")
        if self.capacity < 1:
            raise ValueError(f"expected a capacity of at least 1, got {self.capacity}")


# 16 offers: index 4 * i + j asks for EARLIER_MIN[i] minutes earlier and LATER_MIN[j] later; 12 asks for nothing.
EARLIER_MIN = (30, 20, 10, 0)
LATER_MIN = (0, 10, 20, 30)
NUM_OFFERS = 16
NO_CHANGE = 12
OFFER_EARLIER_MIN = np.repeat(np.array(EARLIER_MIN, np.int32), 4)  # int32[16]
OFFER_LATER_MIN = np.tile(np.array(LATER_MIN, np.int32), 4)  # int32[16]
OFFER_MIN = OFFER_EARLIER_MIN + OFFER_LATER_MIN  # int32[16], minutes that a rider agrees to


def widened(requests: np.ndarray[Any, Any], earlier_min: Any, later_min: Any) -> np.ndarray[Any, Any]:
    """Requests after an accepted offer that widens: both windows open earlier and close later."""
    out = requests.copy()
    for stop in ("pickup", "dropoff"):
        out[f"{stop}_open"] = requests[f"{stop}_open"] - 60 * np.asarray(earlier_min)
        out[f"{stop}_close"] = requests[f"{stop}_close"] + 60 * np.asarray(later_min)
    return out


def shifted(requests: np.ndarray[Any, Any], earlier_min: Any, later_min: Any) -> np.ndarray[Any, Any]:
    """Requests after an accepted offer that shifts: the pickup window earlier, the dropoff window later, as a whole."""
    out = requests.copy()
    for end in ("open", "close"):
        out[f"pickup_{end}"] = requests[f"pickup_{end}"] - 60 * np.asarray(earlier_min)
        out[f"dropoff_{end}"] = requests[f"dropoff_{end}"] + 60 * np.asarray(later_min)
    return out


EFFECTS = {"widen": widened, "shift": shifted}


def turned_away_s(problem: Problem, request: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a request that nobody can place costs: its own round trip from the depot plus 30 minutes, int64[...]."""
    travel, depot = problem.travel_s, problem.depot
    pickup, dropoff = request["pickup"], request["dropoff"]
    trip = travel[depot, pickup].astype(np.int64) + travel[pickup, dropoff] + travel[dropoff, depot]
    return np.asarray(trip + 30 * 60, np.int64)
