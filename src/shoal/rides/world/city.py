"""A city: zones on a map and the travel time between every two of them.

Times are whole seconds, differ by direction, and are closed under the triangle inequality, so that no detour is ever
faster than the way itself: the oracles rely on it when they take a stop out of a route.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.rides.routing.problem import Problem

Array = np.ndarray[Any, Any]

PURPOSES = ("work", "medical", "school", "shopping", "leisure")  # why a trip is made; codes are positions
ATTRACTIONS = ("home", *PURPOSES)


@dataclass(frozen=True, eq=False)
class City:
    """Zones, their travel times, and what draws trips to them.

    >>> city = san_francisco()
    >>> city.zones, city.zone_names[city.depot], city.summary()["triangle_violations"]
    (207, 'South of Market 1', 0)
    """

    name: str
    travel_s: Array  # int32[Z, Z], row from, column to
    x_km: Array  # float64[Z], east
    y_km: Array  # float64[Z], north
    depot: int  # zone
    zone_names: tuple[str, ...]
    attraction: Array | None = None  # float64[6, Z], rows as ATTRACTIONS, each summing to 1; None: all zones alike
    coast_km: Array | None = None  # float64[n, 2], an outline to draw
    roads: tuple[tuple[float, Array], ...] = ()  # km/h and float64[n, 2] in km, to draw
    invented: bool = False  # the places are laid out from the travel times: nobody gave coordinates

    def __post_init__(self) -> None:
        zones = len(self.zone_names)
        Problem(self.travel_s, self.depot)  # its checks are the city's: int32, square, a depot that exists
        if zones < 2:
            raise ValueError(f"expected at least 2 zones, got {zones}: a trip leads from one to another")
        if self.attraction is None:
            object.__setattr__(self, "attraction", np.full((len(ATTRACTIONS), zones), 1.0 / zones))
        expected = {"travel_s": (zones, zones), "x_km": (zones,), "y_km": (zones,)}
        expected["attraction"] = (len(ATTRACTIONS), zones)
        for field, shape in expected.items():
            array = getattr(self, field)
            if array.shape != shape:
                raise ValueError(f"expected {field} of shape {shape} for {zones} zone names, got {array.shape}")
            array.setflags(write=False)  # a city is shared by every environment

    @property
    def zones(self) -> int:
        """How many zones there are."""
        return len(self.zone_names)

    def problem(self, vehicles: int = 5, capacity: int = 6) -> Problem:
        """The routing problem of this city's days."""
        return Problem(self.travel_s, self.depot, vehicles, capacity)

    def closeness(self, scale_s: float = 600.0) -> Array:
        """How near two zones are, float32[Z, Z], symmetric: 1 in place, falling by e every `scale_s` of travel."""
        return _closeness(self, scale_s)

    def summary(self) -> dict[str, Any]:
        """Figures of the matrix over all ordered pairs of different zones; times in minutes."""
        pairs = ~np.eye(self.zones, dtype=bool)
        travel_min = self.travel_s[pairs] / 60.0
        difference = np.abs(self.travel_s - self.travel_s.T)[pairs] / np.maximum(self.travel_s[pairs], 1)
        return {
            "name": self.name,
            "zones": self.zones,
            "depot": self.zone_names[self.depot],
            "median_min": float(np.median(travel_min)),
            "min_min": float(travel_min.min()),
            "max_min": float(travel_min.max()),
            "asymmetric_share": float((self.travel_s != self.travel_s.T)[pairs].mean()),
            "asymmetry_percent": float(100.0 * difference.mean()),  # mean |there - back| / there
            "triangle_violations": len(triangle_violations(self.travel_s)),
        }


@functools.lru_cache(maxsize=8)
def _closeness(city: City, scale_s: float) -> Array:
    both_s = 0.5 * (city.travel_s + city.travel_s.T.astype(np.float64))
    out = np.exp(-both_s / scale_s).astype(np.float32)
    out.setflags(write=False)
    return out


def closed(travel_s: Array) -> Array:
    """The largest matrix at most `travel_s` that keeps the triangle inequality, int32[Z, Z] (Floyd-Warshall)."""
    out = travel_s.astype(np.int64)
    for via in range(len(out)):
        np.minimum(out, out[:, via, None] + out[via], out=out)
    return out.astype(np.int32)


def triangle_violations(travel_s: Array) -> Array:
    """Pairs of zones with a way round that is faster than the way itself, int64[k, 2]."""
    return np.argwhere(closed(travel_s) < travel_s)


@functools.cache
def san_francisco() -> City:
    """The city that rides comes with: 207 zones over San Francisco."""
    from shoal.rides.world import geography
    from shoal.rides.world.streets import travel_seconds

    points = geography.hexagons()
    places = geography.NEIGHBOURHOODS
    centres = geography.kilometres([place[1:3] for place in places])
    nearest = np.argmin(((points[:, None] - centres) ** 2).sum(axis=2), axis=1)
    count = np.zeros(len(places), np.int64)
    names = []
    for place in nearest:
        count[place] += 1
        names.append(f"{places[place][0]} {count[place]}")

    def around(column: int) -> Array:
        return geography.near(points, [place[1:3] for place in places], [place[column] for place in places], 0.6)

    hospitals = geography.near(points, geography.HOSPITALS, [place[2] for place in geography.HOSPITALS], 0.35)
    attraction = np.stack([around(3), around(4), hospitals, around(5), around(6), around(7)])  # as ATTRACTIONS
    depot = int(np.argmin(((points - geography.kilometres([geography.DEPOT])) ** 2).sum(axis=1)))
    x_km, y_km = points.T.copy()
    roads = tuple((speed_kmh, geography.kilometres(corners)) for _, speed_kmh, corners in geography.ROADS)
    return City(
        "San Francisco",
        travel_seconds(points),
        x_km,
        y_km,
        depot,
        tuple(names),
        attraction,
        geography.kilometres(geography.COAST),
        roads,
    )
