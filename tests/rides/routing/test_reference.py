"""The reference oracle: PyVRP behind a cache, judged by the checker."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shoal.rides.routing.checker import check_routes, cost_s
from shoal.rides.routing.problem import REQUEST, Problem, Status, turned_away_s
from shoal.rides.routing.pyvrp_day import Budget, solve_day, total_cost_s
from shoal.rides.routing.reference import Priced, Reference, RouteCache


def town(zones: int = 12, seed: int = 3, **changes: int) -> Problem:
    """Random places, asymmetric travel of up to a quarter of an hour, closed under the triangle inequality."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 500, zones), rng.uniform(0, 500, zones)
    travel = np.hypot(x[:, None] - x, y[:, None] - y) * rng.uniform(1.0, 1.3, (zones, zones))
    np.fill_diagonal(travel, 0)
    for via in range(zones):
        travel = np.minimum(travel, travel[:, via, None] + travel[None, via, :])
    return Problem(np.ceil(travel).astype(np.int32), 0, **{"vehicles": 2, "capacity": 3, **changes})


def day(problem: Problem, count: int, seed: int, window_s: int = 1800) -> np.ndarray:
    """Requests over three hours."""
    rng = np.random.default_rng(seed)
    requests = np.zeros(count, REQUEST)
    for row in requests:
        row["pickup"], row["dropoff"] = rng.choice(len(problem.travel_s), 2, replace=False)
        row["size"] = rng.integers(1, 3)
        row["pickup_open"] = rng.integers(3600, 3 * 3600)
        row["pickup_close"] = row["pickup_open"] + window_s
        row["dropoff_open"] = row["pickup_open"] + problem.travel_s[row["pickup"], row["dropoff"]]
        row["dropoff_close"] = row["dropoff_open"] + window_s
    return requests


def by_enumeration(problem: Problem, requests: np.ndarray) -> int:
    """The least cost over all subsets turned away and all routes, for one vehicle and very few requests."""
    best = int(turned_away_s(problem, requests).sum())
    for served in itertools.product((False, True), repeat=len(requests)):
        stops = [stop for request, flag in enumerate(served) if flag for stop in (2 * request, 2 * request + 1)]
        for route in itertools.permutations(stops):
            if stops and not check_routes(problem, requests, [list(route)], served):
                best = min(best, total_cost_s(problem, requests, [list(route)]))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_small_days_are_solved_to_the_optimum(seed: int) -> None:
    """Three requests and one vehicle: the same cost as trying everything, turning away included."""
    problem = town(vehicles=1)
    requests = day(problem, 3, seed, window_s=300)
    priced = Reference(problem, iterations=200, seeds=1).price([requests], workers=1)[0]
    assert priced.status == Status.OK
    assert priced.cost_s == by_enumeration(problem, requests)


def test_every_price_is_of_routes_that_the_checker_passes() -> None:
    """Routes, unserved and cost belong together."""
    problem = town()
    days = [day(problem, 8, seed) for seed in range(4)]
    for requests, priced in zip(days, Reference(problem, iterations=100).price(days, workers=1), strict=True):
        served = np.ones(len(requests), bool)
        served[list(priced.unserved)] = False
        assert check_routes(problem, requests, priced.routes, served) == []
        assert (
            priced.cost_s == cost_s(problem, priced.routes, requests) + turned_away_s(problem, requests[~served]).sum()
        )


def test_who_cannot_be_served_is_data_and_costs_the_penalty() -> None:
    """A party larger than the vehicle, a window already over, one too early to reach, one empty: all turned away."""
    problem = town(vehicles=1, open_s=3600)
    requests = day(problem, 5, 1)
    requests["size"] = 1
    requests[0]["size"] = 4
    requests[1]["pickup_open"], requests[1]["pickup_close"] = -600, -1
    requests[2]["pickup_open"], requests[2]["pickup_close"] = 0, 3000
    requests[3]["dropoff_close"] = requests[3]["dropoff_open"] - 1
    priced = Reference(problem, iterations=50).price([requests], workers=1)[0]
    assert priced.status == Status.OK
    assert (priced.unserved, priced.routes) == ((0, 1, 2, 3), [[8, 9]])
    assert priced.cost_s == cost_s(problem, priced.routes, requests) + turned_away_s(problem, requests[:4]).sum()


def test_days_without_anybody_cost_nothing() -> None:
    """No request, no route, no cost; and no days have no prices."""
    problem = town()
    assert Reference(problem).price([np.zeros(0, REQUEST)], workers=1) == [Priced(0, Status.OK, [], ())]
    assert Reference(problem).price([]) == []


def test_prices_do_not_depend_on_the_number_of_workers() -> None:
    """One process or two: the same routes; a day that comes twice is solved once and priced twice."""
    problem = town()
    days = [day(problem, 6, seed) for seed in (1, 2, 3, 2)]
    alone = Reference(problem, iterations=50).price(days, workers=1)
    seen: list[tuple[int, int]] = []
    assert Reference(problem, iterations=50).price(days, workers=2, on_priced=lambda a, b: seen.append((a, b))) == alone
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert alone[1] == alone[3]


def test_the_cache_saves_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is solved, and the answer is the same."""
    problem, cache = town(), tmp_path / "new" / "prices.jsonl"
    days = [day(problem, 5, seed) for seed in range(3)]
    first = Reference(problem, iterations=50, cache=cache).price(days, workers=1)
    monkeypatch.setattr("shoal.rides.routing.reference.solve_day", _never)
    assert Reference(problem, iterations=50, cache=cache).price(days, workers=1) == first


def _never(*_: object) -> None:
    raise RuntimeError("solved although it was remembered")


@pytest.mark.parametrize("change", ["iterations", "seeds", "fleet", "matrix", "requests", "serve_all"])
def test_what_a_price_depends_on_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """A changed setting, problem or request is another day to the cache."""
    problem, cache = town(), tmp_path / "prices.jsonl"
    requests = day(problem, 4, 1)
    Reference(problem, iterations=20, seeds=1, cache=cache).price([requests], workers=1)
    monkeypatch.setattr("shoal.rides.routing.reference.solve_day", _never)
    other, options, wanted = problem, {"iterations": 20, "seeds": 1}, requests.copy()
    if change in ("iterations", "seeds"):
        options[change] += 1
    if change == "serve_all":
        options["serve_all"] = True
    if change == "fleet":
        other = town(vehicles=3)
    if change == "matrix":
        travel_s = problem.travel_s.copy()
        travel_s[5, 6] += 1
        other = Problem(travel_s, 0, vehicles=2, capacity=3)
    if change == "requests":
        wanted[2]["dropoff_close"] += 1
    reference = Reference(other, cache=cache, **options)  # type: ignore[arg-type]
    assert reference.price([wanted], workers=1)[0].problems == (
        "PyVRP failed: RuntimeError: solved although it was remembered",
    )
    assert reference.errors == 1


def test_a_damaged_cache_costs_time_but_not_truth(tmp_path: Path) -> None:
    """Torn lines, foreign lines, binary rubbish and routes that somebody changed are priced again."""
    problem, cache = town(), tmp_path / "prices.jsonl"
    requests = day(problem, 4, 1)
    fresh = Reference(problem, iterations=20, cache=cache).price([requests], workers=1)
    entry = json.loads(cache.read_text())
    fewer = {**entry, "routes": entry["routes"][1:]}  # can be driven, but is not what was found
    for rubbish in (
        cache.read_bytes()[:-40],
        b"\x00\xff\xfe",
        b'["a list"]\n42\nnull\n{"key": 3}',
        json.dumps(fewer).encode(),
        json.dumps({**entry, "routes": [["x"]]}).encode(),
    ):
        cache.write_bytes(rubbish)
        again = Reference(problem, iterations=20, cache=cache)
        assert again.price([requests], workers=1) == fresh
        assert again.errors == 0
        assert RouteCache(cache).routes() == {entry["key"]: entry["routes"]}  # mended behind the rubbish


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Two processes append two hundred lines each to one file: all four hundred can be read."""
    script = (
        "import sys; from pathlib import Path; from shoal.rides.routing.reference import RouteCache\n"
        "cache = RouteCache(Path(sys.argv[1]))\n"
        "for i in range(200): cache.append(f'{sys.argv[2]}-{i}', [[i] * 300])\n"
    )
    cache = tmp_path / "prices.jsonl"
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(cache), name], env=dict(os.environ)) for name in "ab"
    ]
    assert [process.wait(200) for process in running] == [0, 0]
    assert set(RouteCache(cache).routes()) == {f"{name}-{i}" for name in "ab" for i in range(200)}


def test_routes_that_break_a_rule_are_an_error_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that hands out bad routes gets status ERROR, a true plan's cost, and nothing in the cache."""
    problem, cache = town(), tmp_path / "prices.jsonl"
    requests = day(problem, 3, 1)
    monkeypatch.setattr("shoal.rides.routing.reference.solve_day", lambda *_: ([[1, 0]], []))
    reference = Reference(problem, cache=cache)
    priced = reference.price([requests], workers=1)[0]
    assert priced.status == Status.ERROR
    assert any("before picking it up" in sentence for sentence in priced.problems)
    assert (priced.routes, priced.unserved) == ([], (0, 1, 2))
    assert priced.cost_s == turned_away_s(problem, requests).sum()
    assert reference.errors == 1
    assert not cache.exists()


def test_serve_all_serves_all_or_says_so() -> None:
    """A detour dearer than the penalty is driven when nobody may be turned away; an impossible one is named."""
    problem = town(vehicles=1)
    requests = day(problem, 2, 4)
    priced = Reference(problem, iterations=50, serve_all=True).price([requests], workers=1)[0]
    assert (priced.status, priced.unserved) == (Status.OK, ())
    requests["size"] = 4
    assert Reference(problem, iterations=20, serve_all=True).price([requests], workers=1)[0].problems == (
        "no routes that serve all 2 requests were found",
    )
    assert solve_day(problem, requests, Budget(iterations=20), 1, True)[0] == []


def test_best_known_takes_the_better_of_search_and_candidates() -> None:
    """A candidate is checked, and counts only if it is better; a bad one raises."""
    problem = town()
    days = [day(problem, 4, 1)]
    reference = Reference(problem)
    found = reference.best_known(days, seconds=0.1, seeds=1, workers=1)[0]
    assert found.cost_s == reference.price(days, workers=1)[0].cost_s  # both optimal on so small a day
    assert reference.best_known(days, 0.1, 1, 1, candidates=[[[], found.routes]])[0].cost_s == found.cost_s
    with pytest.raises(ValueError, match=r"candidate of day 0: .*before picking it up"):
        reference.best_known(days, 0.1, 1, 1, candidates=[[[[1, 0]]]])


def test_bad_input_is_named() -> None:
    """Wrong dtype, unknown zone, empty party, no workers, no budget."""
    problem = town()
    with pytest.raises(ValueError, match=r"day 0: expected REQUEST\[C\], got float64\[3\]"):
        Reference(problem).price([np.zeros(3)])
    bad = day(problem, 2, 1)
    bad[1]["dropoff"] = 12
    with pytest.raises(ValueError, match="day 1, request 1: expected a dropoff zone of 0 to 11, got 12"):
        Reference(problem).price([day(problem, 2, 1), bad])
    empty = day(problem, 2, 1)
    empty[0]["size"] = 0
    with pytest.raises(ValueError, match="day 0, request 0: expected a party of at least 1, got 0"):
        Reference(problem).price([empty])
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        Reference(problem).price([day(problem, 2, 1)], workers=0)
    with pytest.raises(ValueError, match="either iterations or seconds"):
        Reference(problem, iterations=0)
    with pytest.raises(ValueError, match="at least 1 seed"):
        Reference(problem, seeds=0)
