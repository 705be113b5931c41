"""Hindsight: optimal where that can be counted out, feasible, never refused, and above everybody else."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shoal.core.seeds import Stream
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions
from shoal.rides.policies.hindsight import STARTS, answers_known, best_offers, book_starts, hindsight, loss_min, search
from shoal.rides.policies.simple import POLICIES
from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.problem import EFFECTS, NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, OFFER_MIN
from shoal.rides.routing.problem import turned_away_s as away


def make(num_envs: int, *, seed: int = 4, **options: Any) -> RidesVectorEnv:
    defaults: dict[str, Any] = {
        "customers": 8,
        "iterations": 3,
        "knowledge": "true",
        "prices": "insertion",
        "start": "none",
    }
    env = RidesVectorEnv(num_envs, RidesOptions(**{**defaults, **options}), stream=Stream.EVALUATE)
    env.reset(seed=seed)
    return env


def play(env: RidesVectorEnv, policy: Any, seed: int = 0) -> Any:
    """Figures of the days."""
    obs, _ = env.reset(seed=seed)
    infos: dict[str, Any] = {}
    for _ in range(env.options.customers):
        obs, _, _, _, infos = env.step(policy(env, obs))
    return infos["final_info"]


def agreed(env: RidesVectorEnv, requests: Any, offers: Any) -> Any:
    return EFFECTS[env.options.offer_effect](requests, OFFER_EARLIER_MIN[offers], OFFER_LATER_MIN[offers])


@pytest.mark.parametrize("effect", ["widen", "shift"])
def test_finds_the_optimum_of_days_of_two_requests(effect):
    """One vehicle, two requests: all routes under all accepted offers are counted out by the independent checker."""
    env = make(5, customers=2, vehicles=1, offer_effect=effect, burden="easy")
    # Both riders travel in the morning, so that routes compete: rider 1 half an hour after rider 0.
    requests = env.bookings.requests
    later_s = requests["pickup_open"][:, 0] + 1800 - requests["pickup_open"][:, 1]
    for name in ("pickup_open", "pickup_close", "dropoff_open", "dropoff_close"):
        requests[name][:, 1] += later_s
    problem, known = env.world.problem, answers_known(env.bookings)
    starts = book_starts(env.bookings, np.arange(5), 3)
    offers, loss_s = search(starts, 400)
    assert (offers != NO_CHANGE).any()
    orders = [o for o in itertools.permutations(range(4)) if o.index(0) < o.index(1) and o.index(2) < o.index(3)]
    routes = [([list(order)], [True, True]) for order in orders]
    routes += [([[0, 1]], [True, False]), ([[2, 3]], [False, True]), ([[]], [False, False])]
    for day in range(5):
        best = np.inf
        for pair in itertools.product(range(16), repeat=2):
            if not (known[day, 0, pair[0]] and known[day, 1, pair[1]]):
                continue
            windows = agreed(env, requests[day], np.array(pair))
            for route, served in routes:
                if not check_routes(problem, windows, route, served):
                    burden = sum(60 * 0.02 * OFFER_MIN[offer] for offer, yes in zip(pair, served, strict=True) if yes)
                    penalty = away(problem, requests[day])[~np.array(served)].sum()
                    best = min(best, cost_s(problem, route, windows) + round(burden) + penalty)
        assert loss_s.reshape(5, STARTS)[day].min() == best


@pytest.mark.parametrize(("effect", "vehicles"), [("widen", 5), ("shift", 5), ("widen", 1)])
def test_search_keeps_its_books(effect, vehicles):
    """Routes pass the checker under the offers, which are all accepted; the loss adds up, and never above the start."""
    env = make(6, customers=12, offer_effect=effect, vehicles=vehicles)
    days = book_starts(env.bookings, np.arange(6), 3)
    before_s = np.rint(60 * loss_min(days))
    offers, loss_s = search(days, 200)
    known, plans = answers_known(days), days.plans
    for n in range(days.num_days):
        windows, routes, served = agreed(env, days.requests[n], offers[n]), plans.routes(n), plans.served[n]
        assert not check_routes(env.world.problem, windows, routes, served)
        assert known[n, np.arange(12), offers[n]].all()
        assert (offers[n][~served] == NO_CHANGE).all()
        penalty_s = away(env.world.problem, days.requests[n])[~served].sum()
        assert plans.cost_s[n] == cost_s(env.world.problem, routes, windows)
        assert plans.penalty_s[n] == penalty_s
        assert loss_s[n] == plans.cost_s[n] + penalty_s + 3 * OFFER_MIN[offers[n]].sum()  # 0.05 minutes are 3 seconds
    assert (loss_s <= before_s).all()
    assert loss_s.sum() < 0.97 * before_s.sum()
    if vehicles == 1:
        assert not plans.served.all()


def test_no_minute_is_asked_for_that_is_not_used():
    """No offer of the result can be exchanged for a smaller accepted one with the same routes."""
    env = make(6, customers=12)
    days = book_starts(env.bookings, np.arange(6), 3)
    offers, _ = search(days, 100)
    known = answers_known(days)
    for n, r in zip(*np.nonzero(offers != NO_CHANGE), strict=True):
        for smaller in np.flatnonzero(known[n, r] & (OFFER_MIN[offers[n, r]] > OFFER_MIN)):
            other = offers[n].copy()
            other[r] = smaller
            windows = agreed(env, days.requests[n], other)
            assert check_routes(env.world.problem, windows, days.plans.routes(n), days.plans.served[n])


def test_never_refused_and_never_worse_than_its_starts():
    """Every offer is accepted when the environment makes it; on every day it does as well as each of four starts."""
    env = make(8, iterations=10)
    starts = loss_min(book_starts(env.bookings, np.arange(8), 10)).reshape(8, STARTS)
    day = play(env, hindsight(200), seed=4)
    assert (day["refused"] == 0).all()
    assert day["agreed_min"].sum() > 0
    loss = day["cost_s"] / 60 + 0.05 * day["agreed_min"]
    assert (loss <= starts.min(1) + 1e-9).all()


def test_asks_nobody_where_patience_is_dear():
    """At an hour of driving per minute agreed to, no offer is worth it."""
    env = make(4, burden="own", patience=60.0)
    assert (best_offers(env.bookings, np.arange(4), 3, 100) == NO_CHANGE).all()


def test_is_at_least_every_other_policy():
    """Short form of the bar: on 8 paired days its mean net gain is above that of all others, with few iterations."""
    env = RidesVectorEnv(
        8, RidesOptions(knowledge="true", prices="insertion", start="lookahead"), stream=Stream.EVALUATE
    )
    best = play(env, hindsight(300))["net_min"].mean()
    for name in ("none", "random", "everything", "max-change", "max-expected", "myopic", "lookahead", "informed"):
        assert best > play(env, POLICIES[name]())["net_min"].mean() + 10
    assert best > play(env, POLICIES["rollout"](4))["net_min"].mean() + 10


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_is_at_least_every_other_policy_on_200_days():
    """The bar, on 200 paired days with P learned from histories."""
    env = RidesVectorEnv(200, RidesOptions(), stream=Stream.EVALUATE)
    best = play(env, hindsight())["net_min"].mean()
    for name in POLICIES:
        if name != "hindsight":
            assert best >= play(env, POLICIES[name]())["net_min"].mean()
