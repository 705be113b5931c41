"""The incremental oracle and its menus, against brute force and the independent checker."""

from __future__ import annotations

import numpy as np
import pytest
from days_of_chance import cheapest_insertion, drive, keys_of, optimum, random_city, random_days

from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import (
    EFFECTS,
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    Problem,
    Status,
    turned_away_s,
)


def assert_sound(plans: Plans) -> None:
    """Every day's routes keep every rule, and the books agree with them."""
    for n in range(plans.num_days):
        known = plans.count[n]
        requests, served = plans.requests[n, :known], plans.served[n, :known]
        assert check_routes(plans.problem, requests, plans.routes(n), served) == []
        assert plans.cost_s[n] == cost_s(plans.problem, plans.routes(n), requests)
        assert plans.penalty_s[n] == turned_away_s(plans.problem, requests[~served]).sum()
        assert not plans.served[n, known:].any()


def book(oracle: RoutingOracle, plans: Plans, days: np.ndarray, iterations: int = 30, seed: int = 0, **options) -> None:
    """Add all requests of the days in their order."""
    for k in range(days.shape[1]):
        oracle.add(plans, days[:, k], keys_of(seed * 1000 + k, len(days)), iterations, **options)


@pytest.mark.parametrize("effect", ["widen", "shift"])
def test_insertion_menu_is_exact(effect: str) -> None:
    """Every one of the 16 prices is that of trying all pairs of positions, and infeasible where none fits."""
    problem = random_city(vehicles=2, capacity=3)
    days = random_days(problem, 12, 8, hours=(7, 10))
    oracle, plans = RoutingOracle(problem), Plans(problem, 12, 8)
    book(oracle, plans, days[:, :7], iterations=5, escalate=())
    extra_s, status = oracle.insertion_menu(plans, days[:, 7], effect)
    feasible = 0
    for n in range(12):
        requests = plans.requests[n].copy()
        for offer in range(NUM_OFFERS):
            requests[7] = EFFECTS[effect](days[n : n + 1, 7], OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])[0]
            expected = cheapest_insertion(problem, requests, plans.routes(n), 7)
            feasible += expected is not None
            assert status[n, offer] == (Status.UNKNOWN if expected is None else Status.OK)
            assert extra_s[n, offer] == (expected or 0)
    assert 20 < feasible < 12 * 16  # both outcomes were tried


def test_add_without_iterations_is_the_menu_without_an_offer() -> None:
    """With no ruins the cost grows by exactly the insertion price of no change."""
    problem = random_city()
    days = random_days(problem, 6, 12)
    oracle, plans = RoutingOracle(problem), Plans(problem, 6, 12)
    for k in range(12):
        before = plans.cost_s.copy()
        extra_s, status = oracle.insertion_menu(plans, days[:, k])
        assert (status[:, NO_CHANGE] == Status.OK).all()
        oracle.add(plans, days[:, k], keys_of(k, 6), iterations=0)
        np.testing.assert_array_equal(plans.cost_s - before, extra_s[:, NO_CHANGE])
    assert_sound(plans)


@pytest.mark.parametrize(("vehicles", "capacity", "hours"), [(5, 6, (6, 20)), (3, 2, (7, 9)), (1, 1, (6, 22))])
def test_plans_stay_sound(vehicles: int, capacity: int, hours: tuple[int, int]) -> None:
    """After every step the routes keep windows, capacity, pairing and the books, even when riders are turned away."""
    problem = random_city(vehicles=vehicles, capacity=capacity)
    days = random_days(problem, 8, 16, hours=hours)
    oracle, plans = RoutingOracle(problem), Plans(problem, 8, 16)
    for k in range(16):
        status = oracle.add(plans, days[:, k], keys_of(k, 8), escalate=(100,))
        np.testing.assert_array_equal(status == Status.OK, plans.served[:, k])
        assert_sound(plans)
    assert vehicles > 1 or not plans.served.all()


def test_ruin_and_recreate_finds_optima() -> None:
    """On days of six requests the incremental oracle is optimal nearly always, insertion alone is not."""
    problem = random_city(vehicles=3)
    days = random_days(problem, 12, 6, hours=(7, 11))
    best = [optimum(problem, days[n]) for n in range(12)]
    optimal = {}
    for iterations in (0, 60):
        oracle, plans = RoutingOracle(problem), Plans(problem, 12, 6)
        book(oracle, plans, days, iterations)
        assert all(best[n] is None or plans.served[n].sum() < 6 or plans.cost_s[n] >= best[n] for n in range(12))
        optimal[iterations] = sum(plans.served[n].all() and plans.cost_s[n] == best[n] for n in range(12))
    assert optimal[60] >= sum(cost is not None for cost in best) - 1
    assert optimal[0] < optimal[60]


def test_more_iterations_shorten_the_day() -> None:
    """300 iterations are better than 30, which are far better than none."""
    problem = random_city(zones=200)
    days = random_days(problem, 16, 30)
    mean = {}
    for iterations in (0, 30, 300):
        oracle, plans = RoutingOracle(problem), Plans(problem, 16, 30)
        book(oracle, plans, days, iterations)
        mean[iterations] = plans.total_s.mean()
    assert mean[300] < mean[30] < 0.95 * mean[0]
    assert mean[30] < 1.02 * mean[300]


def test_same_keys_same_bits_for_any_threads_and_batch() -> None:
    """Neither the number of threads nor the days beside one change a bit of its plan."""
    problem = random_city()
    days = random_days(problem, 7, 12, hours=(7, 10))
    results = []
    for threads in (1, 3):
        oracle, plans = RoutingOracle(problem, threads=threads), Plans(problem, 7, 12)
        book(oracle, plans, days)
        oracle.polish(plans, keys_of(77, 7), 50)
        results.append(plans)
        oracle.close()
    for name, array in results[0].arrays().items():
        assert array.tobytes() == getattr(results[1], name).tobytes(), name
    oracle, alone = RoutingOracle(problem), Plans(problem, 1, 12)
    for k in range(12):
        oracle.add(alone, days[4:5, k], keys_of(k, 7)[4:5])
    oracle.polish(alone, keys_of(77, 7)[4:5], 50)
    assert alone.stops.tobytes() == results[0].stops[4:5].tobytes()


def test_inactive_days_are_left_alone() -> None:
    """A day outside `active` keeps every byte."""
    problem = random_city()
    days = random_days(problem, 4, 5)
    oracle, plans = RoutingOracle(problem), Plans(problem, 4, 5)
    book(oracle, plans, days[:, :4])
    before, active = plans.copy(), np.array([True, False, True, False])
    oracle.add(plans, days[:, 4], keys_of(4, 4), active=active)
    oracle.polish(plans, keys_of(5, 4), 20, active=active)
    for name, array in plans.arrays().items():
        assert array[~active].tobytes() == getattr(before, name)[~active].tobytes(), name
    np.testing.assert_array_equal(plans.count, [5, 4, 5, 4])


def test_polish_never_lengthens_a_day() -> None:
    """Polishing keeps who is served and shortens most days that were planned by insertion alone."""
    problem = random_city()
    days = random_days(problem, 8, 20)
    oracle, plans = RoutingOracle(problem), Plans(problem, 8, 20)
    book(oracle, plans, days, iterations=0)
    before = plans.copy()
    oracle.polish(plans, keys_of(1, 8), 200)
    assert_sound(plans)
    np.testing.assert_array_equal(plans.served, before.served)
    assert (plans.cost_s <= before.cost_s).all()
    assert (plans.cost_s < before.cost_s).sum() >= 6


def test_escalation_finds_room_that_insertion_does_not() -> None:
    """In a two-hour peak the bank finds places for requests that fit nowhere, without turning others away."""
    problem = random_city(zones=200)
    days = random_days(problem, 24, 24, hours=(8, 10))
    turned_away = []
    for escalate in ((), (1000, 3000)):
        oracle, plans = RoutingOracle(problem), Plans(problem, 24, 24)
        book(oracle, plans, days, iterations=0, escalate=escalate)
        assert_sound(plans)
        turned_away.append((~plans.served).any(1).sum())
    assert turned_away[0] >= 5
    assert turned_away[1] <= turned_away[0] // 3


def test_a_request_nobody_could_serve_is_turned_away_at_its_price() -> None:
    """A dropoff that closes before its pickup can be reached is data, and costs the round trip plus 30 minutes."""
    travel = np.array([[0, 600, 900], [500, 0, 300], [800, 400, 0]], np.int32)
    problem = Problem(travel, depot=0)
    oracle, plans = RoutingOracle(problem), Plans(problem, 1, 2)
    request = np.zeros(1, plans.requests.dtype)
    request[0] = (1, 2, 1, 3600, 5400, 3000, 3800)
    assert oracle.add(plans, request, keys_of(0, 1))[0] == Status.UNSERVED
    assert plans.penalty_s[0] == 600 + 300 + 800 + 1800
    assert plans.cost_s[0] == 0
    assert plans.count[0] == 1
    assert not plans.served[0, 0]
    request[0] = (1, 2, 1, 3600, 5400, 3900, 5700)
    assert oracle.add(plans, request, keys_of(1, 1))[0] == Status.OK
    assert plans.total_s[0] == 2 * (600 + 300 + 800) + 1800
    assert plans.routes(0) == [[2, 3], [], [], [], []]


@pytest.mark.parametrize("effect", ["widen", "shift"])
def test_pooled_prices_have_routes(effect: str) -> None:
    """Whatever offer is chosen, the adopted routes are feasible under its windows and cost what the menu said."""
    problem = random_city(vehicles=4)
    days = random_days(problem, 8, 14, hours=(7, 14))
    oracle, plans = RoutingOracle(problem), Plans(problem, 8, 14)
    book(oracle, plans, days[:, :13])
    before = plans.copy()
    menu = oracle.pooled_menu(plans, days[:, 13], keys_of(50, 8), effect)
    insertion_s, inserted = oracle.insertion_menu(plans, days[:, 13], effect)
    for name, array in plans.arrays().items():
        assert array.tobytes() == getattr(before, name).tobytes(), name
    searched = [NO_CHANGE, 3]
    ok = inserted[:, searched] == Status.OK
    assert (menu.cost_s[:, searched] <= plans.cost_s[:, None] + insertion_s[:, searched])[ok].all()
    for offer in range(NUM_OFFERS):
        chosen = plans.copy()
        status = oracle.adopt_pooled(chosen, menu, np.full(8, offer), keys_of(51, 8), escalate=(100,))
        assert_sound(chosen)
        found = menu.status[:, offer] == Status.OK
        np.testing.assert_array_equal(chosen.cost_s[found], menu.cost_s[found, offer])
        np.testing.assert_array_equal(status == Status.OK, chosen.served[:, 13])
        windows = EFFECTS[effect](days[:, 13], OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
        np.testing.assert_array_equal(chosen.requests[:, 13], windows)
    if effect == "widen":  # a wider offer admits every route of a narrower one
        assert (menu.status == Status.OK).all()
        table = menu.cost_s.reshape(8, 4, 4)
        assert (np.diff(table, axis=2) <= 0).all()
        assert (np.diff(table, axis=1) >= 0).all()


def test_pooled_menu_does_not_depend_on_threads() -> None:
    """Three threads price as one does."""
    problem = random_city()
    days = random_days(problem, 7, 10)
    menus = []
    for threads in (1, 3):
        oracle, plans = RoutingOracle(problem, threads=threads), Plans(problem, 7, 10)
        book(oracle, plans, days[:, :9])
        menus.append(oracle.pooled_menu(plans, days[:, 9], keys_of(3, 7)))
        oracle.close()
    np.testing.assert_array_equal(menus[0].cost_s, menus[1].cost_s)
    assert menus[0].stops.tobytes() == menus[1].stops.tobytes()


def test_pooled_prices_find_the_best_offer() -> None:
    """Net of 3 s of patience a minute, the pooled choice is nearly always the one a search ten times longer makes."""
    problem = random_city(zones=200)
    days = random_days(problem, 24, 20)
    oracle, plans = RoutingOracle(problem), Plans(problem, 24, 20)
    book(oracle, plans, days[:, :19])
    patience_s = 3 * (OFFER_EARLIER_MIN + OFFER_LATER_MIN)
    quick = oracle.pooled_menu(plans, days[:, 19], keys_of(1, 24)).cost_s + patience_s
    best = np.minimum(oracle.pooled_menu(plans, days[:, 19], keys_of(2, 24), bases=8, iterations=150).cost_s, quick)
    best = np.minimum(best, best[:, [NO_CHANGE]] + patience_s)
    chosen = quick.argmin(1)
    assert np.mean(best[np.arange(24), chosen] <= best.min(1)) >= 0.85


def test_errors_name_what_is_wrong() -> None:
    """A full day, a zone that does not exist and a stale menu are refused before a kernel reads past its arrays."""
    problem = random_city()
    days = random_days(problem, 2, 3)
    oracle, plans = RoutingOracle(problem), Plans(problem, 2, 2)
    book(oracle, plans, days[:, :1])
    menu = oracle.pooled_menu(plans, days[:, 1], keys_of(0, 2))
    oracle.add(plans, days[:, 1], keys_of(1, 2))
    with pytest.raises(ValueError, match="changed since the menu"):
        oracle.adopt_pooled(plans, menu, np.full(2, NO_CHANGE), keys_of(1, 2))
    with pytest.raises(ValueError, match="day 0 is full"):
        oracle.add(plans, days[:, 2], keys_of(2, 2))
    wrong = days[:, 2].copy()
    wrong["dropoff"][1] = 60
    with pytest.raises(ValueError, match=r"every dropoff as a zone of 0 to 59, got .* to 60"):
        oracle.insertion_menu(plans, wrong)
    with pytest.raises(ValueError, match="widen, shift, got 'stretch'"):
        oracle.insertion_menu(plans, days[:, 2], effect="stretch")
    with pytest.raises(ValueError, match=r"keys as uint64\[2\]"):
        oracle.polish(plans, keys_of(0, 3), 1)
    with pytest.raises(ValueError, match="use a larger unit"):
        RoutingOracle(Problem(problem.travel_s, depot=0, close_s=2**40))


def test_brute_force_knows_a_day_by_hand() -> None:
    """The tests' own judge: depot 0 -> 1 -> 2 -> 0 is 600 + 300 + 800, and a late dropoff is refused."""
    travel = np.array([[0, 600, 900], [500, 0, 300], [800, 400, 0]], np.int32)
    problem = Problem(travel, depot=0)
    request = np.zeros(1, Plans(problem, 1, 1).requests.dtype)
    request[0] = (1, 2, 1, 3600, 5400, 3900, 5700)
    assert drive(problem, request, [0, 1]) == 1700
    assert drive(problem, request, [1, 0]) is None
    request["dropoff_close"] = 3899
    assert drive(problem, request, [0, 1]) is None
