"""Solving whole days at leisure."""

from __future__ import annotations

import numpy as np
import pytest
from days_of_chance import keys_of, optimum, random_city, random_days

from benchmarks.rides.solving import solve
from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans


def test_small_days_are_solved_to_optimality() -> None:
    """Eight days of six requests: the optimum every time."""
    problem = random_city(vehicles=3)
    days = random_days(problem, 8, 6, seed=3, hours=(7, 11))
    for requests in days:
        best = optimum(problem, requests)
        solution = solve(problem, requests, iterations=500)
        assert check_routes(problem, requests, solution.routes, served(requests, solution.unserved)) == []
        assert (best is None) == bool(solution.unserved)
        assert best is None or solution.cost_s == best


def test_a_day_of_thirty_is_shorter_than_incremental_planning() -> None:
    """Knowing all requests and annealing beats adding them one by one; the books agree with the checker."""
    problem = random_city(zones=200)
    days = random_days(problem, 6, 30)
    oracle, plans = RoutingOracle(problem), Plans(problem, 6, 30)
    for k in range(30):
        oracle.add(plans, days[:, k], keys_of(k, 6))
    solutions = [solve(problem, requests, iterations=4000, key=n) for n, requests in enumerate(days)]
    for requests, solution in zip(days, solutions, strict=True):
        assert solution.unserved == []
        assert check_routes(problem, requests, solution.routes) == []
        assert solution.cost_s == cost_s(problem, solution.routes, requests)
    assert sum(solution.cost_s for solution in solutions) < plans.total_s.sum()


def test_iterations_make_it_deterministic() -> None:
    """The same key and iterations give the same routes; a time limit is kept roughly."""
    problem = random_city()
    requests = random_days(problem, 1, 15)[0]
    assert solve(problem, requests, iterations=300, key=5) == solve(problem, requests, iterations=300, key=5)
    assert solve(problem, requests, seconds=0.2).iterations > 2000


def test_who_cannot_be_served_is_named() -> None:
    """One vehicle of one seat and everybody at once: some are unserved, the others are planned soundly."""
    problem = random_city(vehicles=1, capacity=2)
    requests = random_days(problem, 1, 6, hours=(8, 9))[0]
    solution = solve(problem, requests, iterations=200)
    assert solution.unserved
    assert check_routes(problem, requests, solution.routes, served(requests, solution.unserved)) == []
    with pytest.raises(ValueError, match="at least one request"):
        solve(problem, requests[:0])


def served(requests: np.ndarray, unserved: list[int]) -> np.ndarray:
    """bool[C]."""
    return ~np.isin(np.arange(len(requests)), unserved)
