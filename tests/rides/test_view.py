"""A day in words."""

from __future__ import annotations

import numpy as np

from shoal.rides.desk.text import day_rows
from shoal.rides.routing.problem import REQUEST
from shoal.rides.world.city import City
from shoal.rides.world.days import Day
from shoal.rides.world.riders import draw_riders


def town() -> City:
    return City("t", np.array([[0, 600], [750, 0]], np.int32), np.zeros(2), np.arange(2.0), 0, ("Here", "There"))


def test_a_row_says_all_of_a_request() -> None:
    """Written out by hand; the hidden type and the mood are not shown."""
    requests = np.array([(1, 0, 2, 27000, 28800, 28200, 30000)], REQUEST)
    day = Day(0, requests, np.array([4], np.int32), np.array([1], np.int8), np.array([0.5]))
    riders = draw_riders(town(), count=10, held_out=2)
    row = day_rows(town(), day, riders)[0]
    profile = row.pop("profile")
    assert row == {
        "request": 1,
        "rider": 4,
        "purpose": "medical",
        "party": 2,
        "from": "There",
        "to": "Here",
        "direct_min": 12.5,
        "pickup": "7:30-8:00",
        "dropoff": "7:50-8:20",
    }
    assert len(profile.split(", ")) == 3
