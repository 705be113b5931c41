"""The 16 offers to a rider priced by every oracle, beside what long searches say they cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import rankdata

from shoal.core.arrays import Array
from shoal.rides.options import BURDENS
from shoal.rides.routing.neural.oracle import NeuralOracle
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import (
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    OFFER_MIN,
    Problem,
    Status,
    widened,
)

TRUTH_KEYS, TRUTH_ITERATIONS = 3, 3000  # searches for each offer of a state, and how long each is
PATIENCE_S = 60 * BURDENS["default"][0] * OFFER_MIN  # what an offer costs beside travel, in seconds of driving
Menu = tuple[Array, Array]  # cost of the day under each offer int64[N, 16], status int8[N, 16]
_OFFERS = np.arange(NUM_OFFERS)


def states(problem: Problem, days: Array) -> tuple[Plans, Array]:
    """Days on which all but the last request are booked, and the last, who calls now."""
    count, customers = days.shape
    oracle, plans = RoutingOracle(problem), Plans(problem, count, customers)
    for step in range(customers - 1):
        oracle.add(plans, days[:, step].copy(), _keys(count), 300)
    return plans, days[:, -1].copy()


def pricers(neural: NeuralOracle) -> dict[str, Callable[[Plans, Array], Menu]]:
    """The oracles by name."""
    own = RoutingOracle(neural.problem)
    return {
        "insertion": partial(_insertion, own),
        "pooled": lambda plans, request: _two(own.pooled_menu(plans, request, _keys(plans.num_days))),
        "neural, greedy": lambda plans, request: neural.price(plans, request, _every_offer(plans)),
    }


def truth(problem: Problem, plans: Plans, request: Array) -> Menu:
    """Long searches for each offer. What serves narrow windows serves wider ones, so their price bounds those."""
    days, offered = np.repeat(plans.requests, NUM_OFFERS, 0), np.repeat(request[:, None], NUM_OFFERS, 1)
    last = plans.max_requests - 1
    days[:, last] = widened(offered, OFFER_EARLIER_MIN, OFFER_LATER_MIN).reshape(-1)
    middle = days["pickup_open"] + days["pickup_close"]
    days = np.take_along_axis(days, np.argsort(middle, axis=1, kind="stable"), 1)
    pooled = RoutingOracle(problem).pooled_menu(plans, request, _keys(plans.num_days, 77), bases=8, iterations=1000)
    cost = np.where(pooled.status == Status.OK, pooled.cost_s, np.inf).reshape(-1)
    for turn in range(TRUTH_KEYS):
        oracle, tried = RoutingOracle(problem), Plans(problem, len(days), plans.max_requests)
        keys = _keys(len(days), turn)
        for step in range(plans.max_requests):
            oracle.add(tried, days[:, step].copy(), keys, 0)
        oracle.polish(tried, keys, TRUTH_ITERATIONS)
        cost = np.minimum(cost, np.where(tried.served.all(1), tried.cost_s, np.inf))
    square = cost.reshape(-1, 4, 4)  # earlier falls along the first axis, later grows along the second
    square = np.minimum.accumulate(square[:, ::-1], 1)[:, ::-1]
    found = np.minimum.accumulate(square, 2).reshape(-1, NUM_OFFERS)
    fine = np.isfinite(found)
    return np.where(fine, found, 0).astype(np.int64), np.where(fine, Status.OK, Status.UNKNOWN)


def offer_errors(neural: NeuralOracle, days: Array) -> list[dict[str, Any]]:
    """A row for each oracle: wrong signs of the net saving, rank correlation, and what choosing by it loses."""
    plans, request = states(neural.problem, days)
    true_s, known = truth(neural.problem, plans, request)
    rows = []
    for name, price in pricers(neural).items():
        price(plans, request)  # compiles
        began = time.process_time()
        cost_s, status = price(plans, request)
        cpu_ms = 1000 * (time.process_time() - began) / len(days)
        rows.append({"oracle": name, **compared(cost_s, status, true_s, known), "cpu_ms_a_state": cpu_ms})
    return rows


def compared(cost_s: Array, status: Array, true_s: Array, known: Array) -> dict[str, Any]:
    """Prices beside true ones; an offer that an oracle cannot price is one that it takes for the worst.

    A sign is that of an offer's net saving against no change: travel saved less the rider's patience. An oracle that
    guesses is wrong in half of them.
    """
    usable = (known == Status.OK).all(1) & (status[:, NO_CHANGE] == Status.OK)
    ours = np.where(status == Status.OK, cost_s + PATIENCE_S, 10.0**9)[usable]
    theirs = (true_s + PATIENCE_S)[usable]
    other = _OFFERS != NO_CHANGE
    wins, true_wins = (one[:, other] < one[:, [NO_CHANGE]] for one in (ours, theirs))
    rows = np.arange(len(ours))
    lost_s = theirs[rows, ours.argmin(1)] - theirs.min(1)
    ranks = [_correlation(a, b) for a, b in zip(ours, theirs, strict=True)]
    return {
        "states": len(ours),
        "sign_errors_percent": float(100 * (wins != true_wins).mean()) if len(ours) else None,
        "true_savings_percent": float(100 * true_wins.mean()) if len(ours) else None,
        "rank_correlation": float(np.mean(ranks)) if ranks else None,
        "lost_min": float(lost_s.mean() / 60) if len(ours) else None,
        "error_min": float(np.abs(cost_s - true_s)[usable].mean() / 60) if len(ours) else None,
    }


def _correlation(one: Array, other: Array) -> float:
    """Spearman's; 0 where one of them ranks nothing."""
    a, b = rankdata(one), rankdata(other)
    return float(np.corrcoef(a, b)[0, 1]) if a.std() and b.std() else 0.0


def _insertion(oracle: RoutingOracle, plans: Plans, request: Array) -> Menu:
    extra_s, status = oracle.insertion_menu(plans, request)
    return extra_s + plans.cost_s[:, None], status


def _two(menu: Any) -> Menu:
    return menu.cost_s, menu.status


def _every_offer(plans: Plans) -> Array:
    return np.tile(_OFFERS, (plans.num_days, 1))


def _keys(count: int, turn: int = 0) -> Array:
    return (np.arange(count) + 1_000_003 * turn).astype(np.uint64)
