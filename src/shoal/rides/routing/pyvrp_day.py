"""One day as PyVRP sees it: requests as paired shipments that may be left out for their turned-away cost.

The objective is the task's own, travel plus the penalties of who is turned away. Waiting is free: only distance costs.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.problem import Problem, turned_away_s

Array = np.ndarray[Any, Any]

# PyVRP shakes up to 25 places an iteration, made for hundreds of customers. With 10 an iteration on 30 requests takes
# 0.55 of the time, and the best of 2 x 1,000 iterations costs the same: -0.003 +- 0.036 % over 24 paired days.
# To squeeze everybody into a tight fleet takes the large steps (Li and Lim's lc201 with 3 vehicles).
MAX_PERTURBATIONS = 10
MAX_PERTURBATIONS_SERVE_ALL = 25
SETTINGS = (1, MAX_PERTURBATIONS, MAX_PERTURBATIONS_SERVE_ALL)  # what a price depends on; first: version of this model


@dataclass(frozen=True)
class Budget:
    """How long PyVRP may search: iterations (the same result everywhere) or seconds (better on a faster machine)."""

    iterations: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if (self.iterations > 0) == (self.seconds > 0):
            raise ValueError(f"expected either iterations or seconds above 0, got {self.iterations} and {self.seconds}")


def solve_day(
    problem: Problem, requests: Array, budget: Budget, seeds: int, serve_all: bool = False
) -> tuple[list[list[int]], list[str]]:
    """The best of `seeds` searches: its routes, as sequences of stops, and what the checker says of them (nothing).

    Whoever is on no route is turned away. With `serve_all` nobody may be; then no routes and a sentence are
    returned if the search finds none that serve everybody.
    """
    import pyvrp

    impossible = _impossible(requests)
    if serve_all and impossible.any():
        return [], [f"request {np.flatnonzero(impossible)[0]} has a window that closes before it opens"]
    numbers = np.flatnonzero(~impossible)  # of the requests that PyVRP hears of
    if len(numbers) == 0:
        return [], []
    data = _model(problem, requests[numbers], serve_all)
    steps = MAX_PERTURBATIONS_SERVE_ALL if serve_all else MAX_PERTURBATIONS
    found = [_search(data, budget, steps, seed) for seed in range(seeds)]
    feasible = [one for one in found if one.is_feasible()]
    if not feasible and serve_all:
        return [], [f"no routes that serve all {len(requests)} requests were found"]
    if not feasible:  # to drive nowhere is feasible, and a search that starts there cannot end worse
        feasible = [_search(data, budget, steps, seeds, pyvrp.Solution(data, []))]
    plans = [_routes(solution, numbers) for solution in feasible]
    routes = min(plans, key=lambda plan: total_cost_s(problem, requests, plan))
    return routes, check_routes(problem, requests, routes, served=_served(routes, len(requests)))


def total_cost_s(problem: Problem, requests: Array, routes: list[list[int]]) -> int:
    """Travel plus the penalties of all requests that are on no route."""
    away = ~_served(routes, len(requests))
    return cost_s(problem, routes, requests) + int(turned_away_s(problem, requests[away]).sum())


def unserved(routes: list[list[int]], count: int) -> tuple[int, ...]:
    """The requests on no route, of `count`."""
    return tuple(int(request) for request in np.flatnonzero(~_served(routes, count)))


def _served(routes: list[list[int]], count: int) -> Array:
    served = np.zeros(count, np.bool_)
    served[[stop // 2 for route in routes for stop in route if 0 <= stop < 2 * count]] = True
    return served


def _impossible(requests: Array) -> Array:
    """bool[C]: an empty window, or one that is over before the day begins (PyVRP takes neither)."""
    return np.asarray(
        (requests["pickup_open"] > requests["pickup_close"])
        | (requests["dropoff_open"] > requests["dropoff_close"])
        | (requests["pickup_close"] < 0)
        | (requests["dropoff_close"] < 0)
    )


def _model(problem: Problem, requests: Array, serve_all: bool) -> Any:
    import pyvrp

    # Only the zones of the day: PyVRP's matrices and neighbourhoods are over all locations it is given.
    zones = np.concatenate([[problem.depot], requests["pickup"], requests["dropoff"]])
    locations, place = np.unique(zones, return_inverse=True)
    travel = problem.travel_s[np.ix_(locations, locations)].astype(np.int64)
    prizes = turned_away_s(problem, requests)
    count = len(requests)
    shipments = [
        pyvrp.Shipment(
            pickup_location=int(place[1 + i]),
            delivery_location=int(place[1 + count + i]),
            pickup_tw_early=max(0, int(row["pickup_open"])),
            pickup_tw_late=int(row["pickup_close"]),
            delivery_tw_early=max(0, int(row["dropoff_open"])),
            delivery_tw_late=int(row["dropoff_close"]),
            amount=[int(row["size"])],
            prize=0 if serve_all else int(prizes[i]),
            required=serve_all,
        )
        for i, row in enumerate(requests)
    ]
    fleet = pyvrp.VehicleType(
        num_available=problem.vehicles,
        capacity=[problem.capacity],
        tw_early=problem.open_s,
        tw_late=problem.close_s,
        unit_distance_cost=1,
        unit_duration_cost=0,
    )
    depot = pyvrp.Depot(int(place[0]), tw_early=problem.open_s, tw_late=problem.close_s)
    somewhere = [pyvrp.Location(float(i), 0.0) for i in range(len(locations))]  # coordinates mean nothing to the search
    return pyvrp.ProblemData(somewhere, [], [depot], [fleet], [travel], [travel], [], shipments)


def _search(data: Any, budget: Budget, steps: int, seed: int, start: Any = None) -> Any:
    import pyvrp
    from pyvrp.exceptions import PenaltyBoundWarning
    from pyvrp.search import PerturbationParams
    from pyvrp.stop import MaxIterations, MaxRuntime

    stop = MaxIterations(budget.iterations) if budget.iterations else MaxRuntime(budget.seconds)
    params = pyvrp.SolveParams(perturbation=PerturbationParams(1, steps))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", PenaltyBoundWarning
        )  # a tight day; whether it was solved is checked by the caller
        return pyvrp.solve(
            data, stop, seed=seed, collect_stats=False, display=False, params=params, initial_solution=start
        ).best


def _routes(solution: Any, numbers: Array) -> list[list[int]]:
    """Stops by the requests' own numbers, routes in the order of their first stop."""
    routes = [
        [2 * int(numbers[activity.idx]) + int(activity.is_delivery()) for activity in route if activity.is_shipment()]
        for route in solution.routes()
    ]
    return sorted(route for route in routes if route)
