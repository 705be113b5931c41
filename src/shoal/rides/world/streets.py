"""The street graph over the hexagons of San Francisco, and the travel times that follow from it.

A directed edge joins neighbouring hexagons. It takes as long as its local streets, or the fastest road that runs
through both; climbing costs more than rolling down, the way into downtown more than the way out, and streets run
faster one way than the other in alternating rows, as one-way pairs do. Edges are whole seconds, so shortest paths are
exact sums of integers and the triangle inequality holds to the second.
"""

from __future__ import annotations

import itertools

import numpy as np

from shoal.extras import require
from shoal.rides.world import geography
from shoal.rides.world.geography import Array

# Calibrated together to a median of 20 and a maximum of 40 minutes (tests/rides/test_city.py).
LOCAL_KMH = 15.0
DETOUR = 1.03  # on top of the zigzag from hexagon to hexagon, which alone adds up to 15 %
SIGNAL_S = 6.0  # a zone's worth of crossings, on every road but a freeway
FREEWAY_KMH = 50.0
CLIMB_S_PER_M = 0.2
FALL_S_PER_M = 0.05
CONGESTION = 0.5  # share of time added at the very centre, into it; half of that on the way out
CONGESTION_KM = 4.0
ONE_WAY = 0.1  # share of time gained with the stream and lost against it
LEAVE_S, ARRIVE_S = 105, 135  # between a door and the through street; up to half as much again downtown


def neighbours(points: Array) -> Array:
    """Directed edges between hexagons that touch, int64[E, 2]."""
    distance = np.hypot(*(points[:, None] - points).transpose(2, 0, 1))
    return np.argwhere((distance > 0) & (distance < 1.1 * geography.PITCH_KM))


def road_speeds(points: Array) -> dict[tuple[int, int], float]:
    """The fastest road between neighbouring hexagons, in km/h, by directed edge; roads run both ways."""
    speeds: dict[tuple[int, int], float] = {}
    for _, speed_kmh, corners in geography.ROADS:
        line = geography.kilometres(corners)
        steps = [np.linspace(a, b, 60) for a, b in itertools.pairwise(line)]
        track = np.concatenate(steps)
        visited = np.argmin(((track[:, None] - points) ** 2).sum(axis=2), axis=1)
        for here, there in itertools.pairwise(visited.tolist()):
            if here != there:
                for edge in ((here, there), (there, here)):
                    speeds[edge] = max(speed_kmh, speeds.get(edge, 0.0))
    return speeds


def edge_seconds(points: Array) -> Array:
    """Seconds along every directed edge, int64[Z, Z]; 0 where there is none."""
    zones = len(points)
    edges = neighbours(points)
    start, end = edges.T
    step = points[end] - points[start]
    speed = np.full((zones, zones), LOCAL_KMH)
    for (here, there), speed_kmh in road_speeds(points).items():
        speed[here, there] = max(speed_kmh, LOCAL_KMH)
    edge_speed = speed[start, end]
    freeway = edge_speed >= FREEWAY_KMH

    seconds = np.hypot(*step.T) * DETOUR * 3600 / edge_speed + np.where(freeway, 0.0, SIGNAL_S)
    downtown = geography.kilometres([geography.DOWNTOWN])[0]
    distance = np.hypot(*(points - downtown).T)
    crowding = CONGESTION * np.exp(-np.minimum(distance[start], distance[end]) / CONGESTION_KM)
    seconds *= 1.0 + np.where(distance[end] < distance[start], crowding, 0.5 * crowding)

    # Rows of hexagons alternate, and so do the two families of diagonals: which way is fast depends on the line.
    row = np.rint(points[:, 1] / (geography.PITCH_KM * np.sqrt(0.75))).astype(np.int64)
    along_row = row[start] == row[end]
    line = np.where(along_row, row[start], np.rint((points[start, 0] + points[end, 0]) / geography.PITCH_KM))
    forward = np.where(along_row, step[:, 0] > 0, step[:, 1] > 0)
    with_stream = forward == (line % 2 == 0)
    seconds *= np.where(freeway, 1.0, np.where(with_stream, 1.0 - ONE_WAY, 1.0 + ONE_WAY))

    rise_m = geography.heights_m(points)[end] - geography.heights_m(points)[start]
    seconds += np.where(rise_m > 0, CLIMB_S_PER_M * rise_m, -FALL_S_PER_M * rise_m)
    out = np.zeros((zones, zones), np.int64)
    out[start, end] = np.rint(seconds)
    return out


def travel_seconds(points: Array) -> Array:
    """Travel time between all pairs of zones, int32[Z, Z]: out of the door, the shortest path, to the door."""
    require("rides", "the city")
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import shortest_path

    path_s = shortest_path(csr_array(edge_seconds(points).astype(np.float64)), method="D")
    if not np.isfinite(path_s).all():
        raise ValueError("expected every hexagon to be reachable from every other: the outline falls into parts")
    downtown = geography.kilometres([geography.DOWNTOWN])[0]
    busy = 1.0 + 0.5 * np.exp(-np.hypot(*(points - downtown).T) / CONGESTION_KM)
    leave_s, arrive_s = np.rint(LEAVE_S * busy), np.rint(ARRIVE_S * busy)
    travel_s = leave_s[:, None] + path_s + arrive_s
    np.fill_diagonal(travel_s, 0.0)
    return np.asarray(travel_s, np.int32)
