"""The rides rows: targets, stored truths that are about today's city, and the sweep's arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as bench
from benchmarks.rides import days as rides_days
from benchmarks.rides import oracle as rides_oracle
from benchmarks.rides import rides_gap, rides_sweep
from benchmarks.rides.solving import Solution, solve
from shoal.rides.routing.checker import check_routes
from shoal.rides.routing.oracle import RoutingOracle


def quiet(text: str) -> None:
    """Says nothing."""


def test_days_are_those_of_a_contest_and_peaks_lie_in_their_hours() -> None:
    """A day follows from its number alone; all pickups of a peak open between seven and nine."""
    both = rides_days.asked([3, 5])
    assert both.shape == (2, 30)
    assert np.array_equal(both[1], rides_days.asked([5])[0])
    peak = rides_days.peak([0])
    assert peak.shape == (1, rides_days.PEAK_CUSTOMERS)
    assert (peak["pickup_open"] >= rides_days.PEAK_S[0]).all()
    assert (peak["pickup_open"] < rides_days.PEAK_S[1]).all()


def test_the_gap_is_in_percent_of_the_best_known_plan() -> None:
    """With a best known of half of what the oracle drives the gap is 100 %, and an own long search is no worse."""
    problem, requests = rides_days.world().problem, rides_days.asked([0])
    ours = [int(rides_days.booked(RoutingOracle(problem), [0], requests, turn).total_s[0]) for turn in range(2)]
    entry = {"day": 0, "key": rides_days.fingerprint(problem, requests[0]), "pyvrp_s": None, "pyvrp_search_s": 1.0,
             "pyvrp_searches": 1, "best_s": sum(ours) / 4}  # fmt: skip
    row = rides_oracle.gap({"days": [entry], "menus": [], "peaks": []}, quiet, turns=2)[0]
    assert row.value == pytest.approx(100.0)
    assert not row.met
    assert solve(problem, requests[0], iterations=5000).cost_s <= min(ours)


def test_truths_about_another_city_are_not_used() -> None:
    """A wrong fingerprint leaves nothing: the rows say how to make the truths."""
    known: Any = {
        "days": [{"day": 0, "key": "?"}],
        "menus": [{"day": 0, "key": "?"}],
        "peaks": [{"day": 0, "key": "?"}],
    }
    rows = [*rides_oracle.gap(known, quiet), *rides_oracle.menu_choice(known, quiet), *rides_oracle.peak(known, quiet)]
    assert len(rows) == 4
    assert all(row.value is None and "python -m benchmarks.rides.rides_gap --store" in row.note for row in rows)


def test_a_menus_truth_is_consistent_and_judges_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wider offer never costs more; the menu loses what its choice costs more than the best, and nothing in a tie."""
    monkeypatch.setattr(rides_gap, "MENU_SEARCHES", 1)
    monkeypatch.setattr(rides_gap, "MENU_ITERATIONS", 300)
    problem, requests = rides_days.world().problem, rides_gap.state(1)
    cost_s = np.array(rides_gap.menu_truth(problem, requests, "widen", 1, workers=1), float).reshape(4, 4)
    assert (np.diff(cost_s, axis=1) <= 0).all()
    assert (np.diff(cost_s, axis=0) >= 0).all()
    oracle, no_patience = RoutingOracle(problem), np.zeros(16)
    entry = {"day": 1, "effect": "widen", "cost_s": cost_s.ravel().tolist()}
    tie = rides_oracle.regrets(oracle, entry, no_patience)
    assert set(tie) == {"pooled", "insertion"}
    chosen_first = no_patience.copy()
    chosen_first[0] = -1e6  # every menu then prefers offer 0, and so does the truth
    assert rides_oracle.regrets(oracle, entry, chosen_first) == {"pooled": 0.0, "insertion": 0.0}
    better = {**entry, "cost_s": [0.0 if offer == 5 else 1e9 for offer in range(16)]}
    assert rides_oracle.regrets(oracle, better, chosen_first)["pooled"] == 0.0
    assert rides_oracle.regrets(oracle, better, no_patience)["pooled"] > 0


def test_a_proof_needs_everybody_served_by_routes_that_hold() -> None:
    """Routes that the checker refuses, or somebody left out, prove nothing."""
    problem, requests = rides_days.world().problem, rides_days.asked([0])[0][:6]
    plan = solve(problem, requests, iterations=500)
    assert check_routes(problem, requests, plan.routes) == []
    assert rides_gap.drives_everybody(problem, requests, plan)
    backwards = Solution([list(reversed(route)) for route in plan.routes], plan.cost_s, [], 0)
    assert not rides_gap.drives_everybody(problem, requests, backwards)
    assert not rides_gap.drives_everybody(problem, requests, Solution(plan.routes, plan.cost_s, [3], 0))


def test_without_the_instance_files_the_rows_say_so(tmp_path: Path) -> None:
    """Null with a note, by the option or by the file's name; a folder that does not exist is refused."""
    assert all("--instances" in row.note for row in rides_oracle.li_lim(None, quiet))
    rows = rides_oracle.li_lim(tmp_path, quiet)
    assert [row.value for row in rows] == [None] * 4
    assert rows[0].note == "no file lc101.txt"
    with pytest.raises(ValueError, match="--instances as a folder"):
        bench.run("rides", instances=str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="for the group rides"):
        bench.run("ppo", instances=str(tmp_path))


def a_play(policy: str, saved_min: float, agreed_min: int, refused: int, burden: list[float] | None = None) -> Any:
    """The same on ten days."""
    return {
        "policy": policy, "knowledge": "true", "burden": burden, "saved_s": [int(60 * saved_min)] * 10,
        "base_s": [48_000] * 10, "agreed_min": [agreed_min] * 10, "refused": [refused] * 10, "offers": [3] * 10,
    }  # fmt: skip


def test_a_cell_is_a_decision_when_weighing_beats_all_that_needs_no_thought() -> None:
    """Net gain by hand: 20 saved - 0.05 x 100 - 1 x 2 = 13 against 30 - 0.05 x 500 - 1 x 3 = 2."""
    plays = [
        a_play("everything", 10, 100, 27),
        a_play("fixed 0", 15, 400, 16),
        a_play("max-change", 30, 500, 3),
        a_play("myopic insertion", 16, 100, 2, [0.05, 1.0]),
        a_play("myopic pooled", 20, 100, 2, [0.05, 1.0]),
        a_play("lookahead insertion", 18, 100, 2, [0.05, 1.0]),
        a_play("lookahead pooled", 17, 100, 2, [0.05, 1.0]),
        a_play("lookahead pooled", 99, 0, 0, [0.1, 1.0]),  # of another burden
    ]
    fixed = {"cost_min": np.arange(16.0), "agreed_min": np.zeros(16), "refused": np.zeros(16)}
    assert rides_sweep.best_fixed(fixed, (0.05, 1.0)) == 0
    (cell,) = rides_sweep.cells(plays, fixed)
    assert (cell["best_weighing"], cell["best_thoughtless"]) == ("myopic pooled", "max-change")
    assert cell["margin_min"] == {"mean": 11.0, "low": 11.0, "high": 11.0}
    assert cell["decision"] is True
    assert cell["policies"]["lookahead insertion"]["net_min"]["mean"] == pytest.approx(11.0)
    assert rides_sweep.summarise([cell], 10)[0].value == 11.0


def test_no_change_is_no_fixed_offer() -> None:
    """However cheap it is to ask nobody."""
    fixed = {"cost_min": np.where(np.arange(16) == 12, 0.0, 100.0), "agreed_min": np.ones(16), "refused": np.ones(16)}
    assert rides_sweep.best_fixed(fixed, (0.2, 2.0)) != 12
