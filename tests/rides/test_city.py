"""The city: calibrated, asymmetric, closed, and the same every time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shoal.rides.world import geography, streets
from shoal.rides.world.city import ATTRACTIONS, City, closed, san_francisco, triangle_violations


@pytest.fixture(scope="module")
def city() -> City:
    return san_francisco()


def test_has_207_zones_on_land(city: City) -> None:
    """The outline holds exactly 207 centres, and every one of them is inside it."""
    points = np.stack([city.x_km, city.y_km], axis=1)
    assert city.zones == geography.ZONES == 207
    assert geography.on_land(points, geography.kilometres(geography.COAST)).all()
    assert len(set(city.zone_names)) == 207


def test_outline_has_the_area_of_the_city() -> None:
    """The peninsula north of the county line has about 121 square km of land."""
    x, y = geography.kilometres(geography.COAST).T
    area = 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
    assert area == pytest.approx(121, abs=4)


def test_travel_times_are_calibrated(city: City) -> None:
    """Median about 20 and maximum about 40 minutes, all reachable, differing by direction, no violation."""
    figures = city.summary()
    assert figures["median_min"] == pytest.approx(20, abs=1)
    assert figures["max_min"] == pytest.approx(40, abs=4)
    assert 3 < figures["min_min"] < 7
    assert 3 < figures["asymmetry_percent"] < 10
    assert figures["asymmetric_share"] > 0.95
    assert figures["triangle_violations"] == 0


def test_matrix_is_whole_seconds_with_a_zero_diagonal(city: City) -> None:
    """int32, positive between different zones, 0 in place; shared, so nobody may write to it."""
    assert city.travel_s.dtype == np.int32
    assert (np.diag(city.travel_s) == 0).all()
    assert (city.travel_s[~np.eye(207, dtype=bool)] > 0).all()
    with pytest.raises(ValueError, match="read-only"):
        city.travel_s[0, 1] = 1


def test_triangle_holds_by_plain_search(city: City) -> None:
    """A sample of triples, checked without the code under test."""
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 207, (3, 200_000))
    assert (city.travel_s[a, c] <= city.travel_s[a, b].astype(int) + city.travel_s[b, c]).all()


def test_depot_is_downtown(city: City) -> None:
    """Within 1.5 km of the centre."""
    x, y = geography.kilometres([geography.DOWNTOWN])[0]
    assert np.hypot(city.x_km[city.depot] - x, city.y_km[city.depot] - y) < 1.5


def test_neighbours_touch_and_most_have_six() -> None:
    """Inner hexagons have six neighbours, at one pitch; edges come in both directions."""
    points = geography.hexagons()
    edges = streets.neighbours(points)
    lengths = np.hypot(*(points[edges[:, 0]] - points[edges[:, 1]]).T)
    assert lengths == pytest.approx(geography.PITCH_KM)
    assert np.bincount(edges[:, 0]).max() == 6
    assert {(a, b) for a, b in edges} == {(b, a) for a, b in edges}


def test_climbing_takes_longer_than_coming_down() -> None:
    """Over all edges that climb more than 50 m, the way up is slower on average."""
    points = geography.hexagons()
    seconds, heights = streets.edge_seconds(points), geography.heights_m(points)
    steep = [(a, b) for a, b in streets.neighbours(points) if heights[b] - heights[a] > 50]
    assert len(steep) > 20
    assert np.mean([seconds[a, b] - seconds[b, a] for a, b in steep]) > 5


def test_freeways_are_faster_than_streets() -> None:
    """An edge along a freeway takes less than half of the median edge."""
    points = geography.hexagons()
    seconds = streets.edge_seconds(points)
    fast = [seconds[edge] for edge, kmh in streets.road_speeds(points).items() if kmh >= 60 and seconds[edge] > 0]
    assert len(fast) > 20
    assert np.median(fast) < 0.5 * np.median(seconds[seconds > 0])


def test_closure_of_a_worked_matrix() -> None:
    """0 -> 2 directly takes 10, by way of 1 it takes 5; nothing else changes."""
    matrix = np.array([[0, 2, 10], [4, 0, 3], [7, 6, 0]], np.int32)
    assert triangle_violations(matrix).tolist() == [[0, 2]]
    assert closed(matrix).tolist() == [[0, 2, 5], [4, 0, 3], [7, 6, 0]]


def test_closure_of_random_matrices_is_closed() -> None:
    """The closure has no violations, lies below the matrix, and is its own closure."""
    rng = np.random.default_rng(1)
    for zones in (2, 3, 9):
        matrix = rng.integers(1, 1000, (zones, zones)).astype(np.int32)
        np.fill_diagonal(matrix, 0)
        out = closed(matrix)
        for a, b, c in itertools.product(range(zones), repeat=3):
            assert out[a, c] <= out[a, b] + out[b, c]
        assert (out <= matrix).all()
        assert (closed(out) == out).all()


def test_closeness_falls_with_travel_time(city: City) -> None:
    """1 in place, symmetric, and e to the -1 at ten minutes there and back on average."""
    near = city.closeness()
    assert near.dtype == np.float32
    assert (np.diag(near) == 1).all()
    assert (near == near.T).all()
    a, b = 3, 90
    mean_s = (city.travel_s[a, b] + city.travel_s[b, a]) / 2
    assert near[a, b] == pytest.approx(np.exp(-mean_s / 600), rel=1e-5)


def test_attraction_rows_are_shares(city: City) -> None:
    """Every row sums to 1; work is more concentrated than homes."""
    assert city.attraction is not None
    assert city.attraction.sum(axis=1) == pytest.approx(np.ones(len(ATTRACTIONS)))
    assert np.sort(city.attraction[1])[-20:].sum() > np.sort(city.attraction[0])[-20:].sum() + 0.1


def test_refuses_parts_that_do_not_fit() -> None:
    """Shapes and the depot are checked, and the message has both sides."""
    square, line = np.zeros((2, 2), np.int32), np.zeros(2)
    with pytest.raises(ValueError, match=r"expected x_km of shape \(2,\).*got \(3,\)"):
        City("t", square, np.zeros(3), line, 0, ("a", "b"))
    with pytest.raises(ValueError, match="expected the depot as a zone of 0 to 1, got 2"):
        City("t", square, line, line, 2, ("a", "b"))
    with pytest.raises(ValueError, match="at least 2 zones"):
        City("t", np.zeros((1, 1), np.int32), np.zeros(1), np.zeros(1), 0, ("a",))
