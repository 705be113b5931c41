"""Vehicles keep their numbers from one plan to the next."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.rides.vehicles import numbered_alike


def test_the_same_routes_in_any_order_get_the_same_numbers() -> None:
    """Whatever a search did to the order of vehicles is undone, empty ones included."""
    routes = [[0, 1], [2, 4, 3, 5], [], [6, 7], []]
    rng = np.random.default_rng(0)
    for _ in range(20):
        shuffled = [routes[at] for at in rng.permutation(len(routes))]
        assert [shuffled[at] for at in numbered_alike(routes, shuffled)] == routes


def test_a_vehicle_follows_the_most_shared_stops() -> None:
    """Worked by hand: request 1 went over to the first vehicle, a new one drives the rest; nobody shares with it."""
    before = [[0, 1, 2, 3], [4, 5], []]
    after = [[6, 7], [4, 5, 2, 3], [0, 1]]
    order = numbered_alike(before, after)
    assert [after[at] for at in order] == [[0, 1], [4, 5, 2, 3], [6, 7]]
    with pytest.raises(ValueError, match="as many vehicles, got 3 and 2"):
        numbered_alike(before, after[:2])
