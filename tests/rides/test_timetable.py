"""Timetables of routes: hand-worked ones, and the windows kept on real days."""

from __future__ import annotations

import numpy as np

from shoal.rides.contest.play import contest
from shoal.rides.desk.timetable import NEVER, ride_s, timetable
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import max_change
from shoal.rides.routing.problem import REQUEST, Problem

# Three zones on a line, ten minutes apart; the depot is zone 0.
LINE = Problem(np.array([[0, 600, 1200], [600, 0, 600], [1200, 600, 0]], np.int32), depot=0)


def test_a_vehicle_that_would_wait_with_a_rider_on_board_comes_later() -> None:
    """It could pick up at 600 s, but the dropoff opens at 3000: so it comes when the pickup window closes, at 1800."""
    request = np.array([(1, 2, 1, 0, 1800, 3000, 4000)], REQUEST)
    assert timetable(LINE, request, [[0, 1]]).tolist() == [1800, 3000]
    assert ride_s(timetable(LINE, request, [[0, 1]])).tolist() == [1200]


def test_what_comes_later_does_not_delay_riders_before_it() -> None:
    """An empty vehicle waits by itself: the first rider is served at once, whenever the second wants to go."""
    requests = np.array([(1, 2, 1, 0, 1800, 0, 4000), (2, 1, 1, 9000, 9900, 9000, 12000)], REQUEST)
    assert timetable(LINE, requests, [[0, 1, 2, 3]]).tolist() == [600, 1200, 9000, 9600]


def test_shared_rides_move_together() -> None:
    """Both riders board as late as the common stretch allows."""
    requests = np.array([(1, 2, 1, 0, 9000, 5000, 6000), (1, 0, 1, 0, 9000, 0, 9000)], REQUEST)
    assert timetable(LINE, requests, [[0, 2, 1, 3]]).tolist() == [4400, 5000, 4400, 6200]


def test_who_is_on_no_route_is_never_served() -> None:
    """Turned-away requests have no times and no time on board."""
    requests = np.array([(1, 2, 1, 0, 1800, 0, 4000), (2, 1, 1, 0, 100, 0, 200)], REQUEST)
    times = timetable(LINE, requests, [[0, 1], []])
    assert times.tolist() == [600, 1200, NEVER, NEVER]
    assert ride_s(times).tolist() == [600, 0]


def test_the_timetables_of_real_days_keep_every_window_and_every_leg() -> None:
    """Each stop lies in its window, and from each to the next there is time to drive."""
    found = contest({"max-change": max_change()}, RidesOptions(start="none"), days=4, iterations=10)
    travel_s, play = found.world.problem.travel_s, found.played["max-change"]
    for day in range(4):
        requests, routes = play.requests[day], play.routes(day)
        times = timetable(found.world.problem, requests, routes)
        for side, at in (("pickup", 0), ("dropoff", 1)):
            assert (times[at::2] >= requests[f"{side}_open"]).all()
            assert (times[at::2] <= requests[f"{side}_close"]).all()
        for route in routes:
            zones = [requests[stop // 2]["dropoff" if stop % 2 else "pickup"] for stop in route]
            legs = travel_s[zones[:-1], zones[1:]]
            assert (np.diff(times[route]) >= legs).all()
        assert (ride_s(times) >= found.direct_s[day]).all()
