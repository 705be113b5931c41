"""The independent judge of routes."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.problem import REQUEST, Problem

# Four zones on a line, 0 - 1 - 2 - 3, 100 s apart going up and 110 s going down; the depot is zone 0.
TRAVEL_S = np.array([[(b - a) * 100 if b >= a else (a - b) * 110 for b in range(4)] for a in range(4)], np.int32)


def problem(**changes: object) -> Problem:
    return Problem(**{"travel_s": TRAVEL_S, "depot": 0, "vehicles": 2, "capacity": 2, **changes})  # type: ignore[arg-type]


def two_requests() -> np.ndarray:
    """Request 0: zone 1 to 3, request 1: zone 2 to 3."""
    requests = np.zeros(2, REQUEST)
    requests[0] = (1, 3, 1, 1000, 1100, 1200, 1300)
    requests[1] = (2, 3, 1, 1000, 1200, 1200, 1400)
    return requests


SHARED = [[0, 2, 1, 3], []]  # pick up both on the way, drop both off in zone 3


def test_a_shared_ride_is_feasible_and_costs_one_round_trip() -> None:
    """Depot to zone 3 through 1 and 2 is 300 s, back is 330 s."""
    assert check_routes(problem(), two_requests(), SHARED) == []
    assert cost_s(problem(), SHARED, two_requests()) == 630


def test_waiting_for_a_window_to_open_delays_what_follows() -> None:
    """Zone 1 opens at 1000, so zone 3 is reached at 1200 at the earliest, not at 300."""
    requests = two_requests()
    requests[0]["dropoff_close"] = requests[0]["dropoff_open"] = 1200
    assert check_routes(problem(), requests, SHARED) == []
    requests[0]["dropoff_close"] = requests[0]["dropoff_open"] = 1199
    assert check_routes(problem(), requests, SHARED) == [
        "vehicle 0: reaches the dropoff of request 0 at 1200 s, after its window closed at 1199 s"
    ]


def test_arriving_exactly_when_the_window_closes_is_in_time() -> None:
    """From the opening of the depot at 1000 s zone 1 is reached at 1100 s, the last moment."""
    requests = two_requests()
    requests["dropoff_close"] = 2000
    assert check_routes(problem(open_s=1000), requests, [[0, 1], [2, 3]]) == []
    assert check_routes(problem(open_s=1001), requests, [[0, 1], [2, 3]]) == [
        "vehicle 0: reaches the pickup of request 0 at 1101 s, after its window closed at 1100 s",
        "vehicle 1: reaches the pickup of request 1 at 1201 s, after its window closed at 1200 s",
    ]


def test_the_depot_closes() -> None:
    """Leaving zone 3 at 1200 s the vehicle is back at 1530 s."""
    assert check_routes(problem(close_s=1530), two_requests(), SHARED) == []
    assert check_routes(problem(close_s=1529), two_requests(), SHARED) == [
        "vehicle 0: is back at 1530 s, the depot closes at 1529 s"
    ]


def test_capacity_counts_everybody_on_board() -> None:
    """One seat is too few for two riders at once, and enough for one after the other."""
    late = two_requests()
    late[1] = (2, 3, 1, 1000, 9000, 1200, 9000)
    assert check_routes(problem(capacity=1), late, [[0, 1, 2, 3], []]) == []
    assert check_routes(problem(capacity=1), late, SHARED) == [
        "vehicle 0: carries 2 after the pickup of request 1, its capacity is 1"
    ]
    late["size"] = (2, 1)
    assert check_routes(problem(), late, SHARED) == [
        "vehicle 0: carries 3 after the pickup of request 1, its capacity is 2"
    ]


def test_fleet_is_a_hard_limit_and_empty_routes_are_free() -> None:
    """Three vehicles may be listed if two of them stay at home."""
    requests = two_requests()
    assert check_routes(problem(vehicles=1), requests, [[], [0, 2, 1, 3], []]) == []
    assert check_routes(problem(vehicles=1), requests, [[0, 1], [2, 3]]) == ["2 vehicles are used, the fleet has 1"]
    assert cost_s(problem(), [[0, 1], [], [2, 3]], requests) == 2 * 630


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        ([[1, 0, 2, 3]], "vehicle 0: drops off request 0 before picking it up"),
        ([[0, 2, 3], [1]], "request 0 is picked up by vehicle 0 and dropped off by vehicle 1"),
        ([[0, 1]], "request 1 is on no route and not declared unserved"),
        ([[0, 0, 1, 2, 3]], "the pickup of request 0 is visited 2 times, expected once"),
        ([[0, 2, 3]], "the dropoff of request 0 is visited 0 times, expected once"),
        ([[0, 2, 1, 3, 4]], "vehicle 0: stop 4 does not exist, 2 requests have stops below 4"),
        ([[-1, 0, 2, 1, 3]], "vehicle 0: stop -1 does not exist, 2 requests have stops below 4"),
    ],
)
def test_pairing_faults_are_named(routes: list[list[int]], expected: str) -> None:
    """Every stop exactly once, both of a request in one vehicle, pickup first."""
    requests = two_requests()
    for name in ("pickup_close", "dropoff_close"):
        requests[name] = 90_000
    assert check_routes(problem(), requests, routes) == [expected]


def test_unserved_requests_are_declared_or_a_fault() -> None:
    """Declared unserved and on no route is fine; declared and driven is not."""
    requests = two_requests()
    assert check_routes(problem(), requests, [[0, 1]], served=[True, False]) == []
    assert check_routes(problem(), requests, SHARED, served=np.array([True, False])) == [
        "request 1 is declared unserved, but vehicle 0 stops for it"
    ]
    assert check_routes(problem(), requests, SHARED, served=[True]) == ["expected served for 2 requests, got 1"]


def test_a_window_that_closes_before_it_opens_is_a_fault() -> None:
    """Even when the vehicle comes in between, nobody can be served in an empty window."""
    requests = two_requests()
    requests[1]["dropoff_open"], requests[1]["dropoff_close"] = 1300, 1250
    assert check_routes(problem(), requests, SHARED) == [
        "vehicle 0: the window of the dropoff of request 1 opens at 1300 s, after it closes at 1250 s"
    ]


def test_every_fault_is_reported_not_only_the_first() -> None:
    """One seat and a depot that closes early are two faults and two sentences."""
    found = check_routes(problem(capacity=1, close_s=1500), two_requests(), SHARED)
    assert len(found) == 2
    assert check_routes(problem(), two_requests(), []) == [
        "request 0 is on no route and not declared unserved",
        "request 1 is on no route and not declared unserved",
    ]
    assert cost_s(problem(), [], two_requests()) == 0


def test_agrees_with_brute_force_over_schedules() -> None:
    """A route is feasible exactly when some choice of whole-second service times is: tried on tiny random days."""
    rng = np.random.default_rng(7)
    travel_s = np.array([[0, 2, 3], [1, 0, 2], [3, 1, 0]], np.int32)
    seen = {True: 0, False: 0}
    for _ in range(300):
        requests = np.zeros(2, REQUEST)
        for row in requests:
            row["pickup"], row["dropoff"] = rng.choice(3, 2, replace=False)
            row["size"] = 1
            for side in ("pickup", "dropoff"):
                row[f"{side}_open"] = rng.integers(0, 8) + (4 if side == "dropoff" else 0)
                row[f"{side}_close"] = row[f"{side}_open"] + rng.integers(2, 8)
        small = Problem(travel_s, depot=0, vehicles=1, capacity=2, close_s=int(rng.integers(14, 20)))
        route = [0, 2, 1, 3] if rng.random() < 0.5 else [0, 1, 2, 3]
        feasible = check_routes(small, requests, [route]) == []
        seen[feasible] += 1
        assert feasible == _some_schedule(small, requests, route)
    assert min(seen.values()) > 60  # both answers occur, or the test says nothing


def _some_schedule(small: Problem, requests: np.ndarray, route: list[int]) -> bool:
    times = dict.fromkeys(range(small.close_s + 1), small.depot)  # moment -> zone, any departure
    for stop in route:
        row, side = requests[stop // 2], "dropoff" if stop % 2 else "pickup"
        reachable = {
            t
            for t in range(int(row[f"{side}_open"]), int(row[f"{side}_close"]) + 1)
            if any(t >= before + small.travel_s[zone, row[side]] for before, zone in times.items())
        }
        times = dict.fromkeys(reachable, int(row[side]))
    return any(t + small.travel_s[zone, small.depot] <= small.close_s for t, zone in times.items())
