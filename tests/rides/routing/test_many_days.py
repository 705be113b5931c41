"""Every plan of very many random days passes the independent checker."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import EFFECTS, NUM_OFFERS, OFFER_EARLIER_MIN, OFFER_LATER_MIN, Problem
from shoal.rides.world.city import san_francisco
from shoal.rides.world.days import Days
from shoal.rides.world.riders import draw_riders


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_plan_passes_the_checker(count):
    """Random days, fleets, effects and offers; half of the days squeezed into three hours: some are turned away."""
    city = san_francisco()
    riders, rng = draw_riders(city), np.random.default_rng(7)
    wrong, away, batch = [], 0, 250
    for first in range(0, count, batch):
        squeezed = (first // batch) % 2 == 1
        days = Days(city, riders, customers=20, peak_s=(7 * 3600, 10 * 3600) if squeezed else None)
        problem = Problem(city.travel_s, city.depot, vehicles=int(rng.integers(3, 7)), capacity=int(rng.integers(3, 7)))
        effect = EFFECTS["widen" if rng.random() < 0.5 else "shift"]
        asked = np.stack([days.draw(first + day).requests for day in range(batch)])
        plans, oracle = Plans(problem, batch, 20), RoutingOracle(problem)
        for step in range(20):
            offer = rng.integers(0, NUM_OFFERS, batch)
            request = effect(asked[:, step], OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
            keys = rng.integers(0, 2**63, batch).astype(np.uint64)
            oracle.add(plans, request, keys, iterations=5, escalate=(200,))
        for day in range(batch):
            routes = plans.routes(day)
            wrong += check_routes(problem, plans.requests[day], routes, plans.served[day])
            if cost_s(problem, routes, plans.requests[day]) != plans.cost_s[day]:
                wrong.append(f"day {first + day}: another cost than its routes")
        away += int((~plans.served).sum())
    assert wrong == []
    assert away > 0  # so that days with and without unserved requests were checked
