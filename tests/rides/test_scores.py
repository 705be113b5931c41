"""Figures of a contest, worked out by hand on a tiny one; bootstrap intervals against known distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.rides.contest.record import Contest, Played
from shoal.rides.contest.scores import Bootstrap, summary
from shoal.rides.options import RidesOptions
from shoal.rides.routing.problem import NO_CHANGE, REQUEST


def played(cost_min: list[int], offer: Any = None, accepted: Any = None, **more: Any) -> Played:
    """Two requests a day, everyone served in 20 minutes."""
    days = len(cost_min)
    shape = (days, 2)
    return Played(
        requests=np.zeros(shape, REQUEST),
        offer=np.full(shape, NO_CHANGE, np.int8) if offer is None else np.array(offer, np.int8),
        accepted=np.ones(shape, bool) if accepted is None else np.array(accepted),
        served=np.ones(shape, bool),
        stops=np.zeros((days, 1, 4), np.int16),
        lengths=np.zeros((days, 1), np.int16),
        ride_s=np.full(shape, 1200),
        cost_s=60 * np.array(cost_min),
        **more,
    )


def tiny(**others: Played) -> Contest:
    """Two days of two riders: early-only and inflexible, late-only and both."""
    return Contest(
        options=RidesOptions(customers=2),
        seed=0,
        asked=np.zeros((2, 2), REQUEST),
        rider=np.zeros((2, 2), np.int32),
        direct_s=np.full((2, 2), 600),
        kind=np.array([[0, 2], [1, 3]], np.int8),
        played={"none": played([100, 200]), **others},
        prices=("own",),
    )


# Offer 0 is 30 minutes earlier, offer 3 asks for 30 both ways.
AGENT = played([90, 150], offer=[[0, 3], [NO_CHANGE, 3]], accepted=[[True, False], [True, True]])


def test_figures_of_a_tiny_contest() -> None:
    """Day 1: saves 10, 30 minutes agreed, 1 refusal. Day 2: saves 50, 60 minutes agreed."""
    result = summary(tiny(agent=AGENT), resamples=100)["policies"]["agent"]
    assert result["net_min"]["own"]["mean"] == pytest.approx(((10 - 1.5 - 1) + (50 - 3)) / 2)
    assert result["saved_min"]["own"] == 30
    assert result["improvement_percent"]["own"]["mean"] == pytest.approx(20)  # 60 of 300
    assert result["mean_of_ratios_percent"]["own"] == pytest.approx((10 + 25) / 2)
    assert result["agreed_min_per_rider"] == pytest.approx(90 / 4)
    assert result["agreed_min_by_type"] == {"early": 30.0, "late": 0.0, "inflexible": 0.0, "both": 60.0}
    assert (result["offers"], result["refusals"]) == (1.5, 0.5)
    assert result["acceptance_percent"] == pytest.approx(100 * 2 / 3)
    assert result["ride_to_direct"]["mean"] == 2
    assert result["failure_percent"] == {"own": 0.0}


def test_the_share_of_the_gap_between_none_and_hindsight() -> None:
    """Half of hindsight's net gain is half of the gap; hindsight itself closes all of it."""
    best = played([80, 100])  # nets 20 + 100
    half = played([90, 150])  # nets 10 + 50
    result = summary(tiny(half=half, hindsight=best), resamples=100)["policies"]
    assert result["half"]["gap_closed_percent"]["own"]["mean"] == pytest.approx(50)
    assert result["half"]["gap_closed_percent"]["own"]["low"] == pytest.approx(50)  # on each day alike
    assert result["hindsight"]["gap_closed_percent"]["own"]["mean"] == pytest.approx(100)
    assert result["none"]["gap_closed_percent"] == {}


def test_differences_are_paired_by_day() -> None:
    """A policy that is 5 minutes better on every day is so for sure, however different the days are."""
    result = summary(tiny(good=played([85, 145]), plain=played([90, 150])), against=["plain"], resamples=100)
    assert result["differences"]["good"]["plain"]["own"] == {"mean": 5.0, "low": 5.0, "high": 5.0}
    assert "plain" not in result["differences"]["plain"]


def test_runs_of_one_kind_are_pooled_with_every_value() -> None:
    """A group's difference is the mean over runs; each run's own value is kept; one run alone is no group."""
    runs = {"a": played([85, 145]), "b": played([87, 147])}
    contest = tiny(**runs, plain=played([90, 150]))
    group = summary(contest, against=["plain"], groups={"trained": ["a", "b"]}, resamples=400)["groups"]["trained"]
    cell = group["differences"]["plain"]["own"]
    assert cell["mean"] == pytest.approx(4)
    assert cell["runs"] == pytest.approx([5, 3])
    assert (cell["low"], cell["high"]) == pytest.approx((3, 5))  # both runs drawn from the worse, or from the better
    assert summary(contest, groups={"trained": ["a"]}, resamples=10)["groups"] == {}


def test_resamples_are_the_same_for_everything_asked() -> None:
    """Twice the same question, twice the same answer; another seed, another one."""
    values = np.random.default_rng(0).normal(size=(1, 40))
    boot = Bootstrap(40, resamples=300)
    assert boot.mean(values) == boot.mean(values) == Bootstrap(40, resamples=300).mean(values)
    assert boot.mean(values) != Bootstrap(40, seed=1, resamples=300).mean(values)


def test_intervals_cover_a_known_mean() -> None:
    """Of 300 samples of 60 skewed values, at least 90 % of the intervals hold the true mean."""
    rng = np.random.default_rng(1)
    boot = Bootstrap(60, resamples=400)
    covered = 0
    for _ in range(300):
        cell = boot.mean(rng.exponential(size=(1, 60)))
        covered += cell["low"] <= 1 <= cell["high"]
    assert covered >= 270


def test_two_levels_see_the_spread_between_runs() -> None:
    """Runs that differ by more than days do must widen the interval; runs that agree must not."""
    days = np.random.default_rng(2).normal(size=100)
    boot = Bootstrap(100, resamples=2000)

    def width(cell: dict[str, Any]) -> float:
        return float(cell["high"] - cell["low"])

    alone = width(boot.mean(days[None]))
    assert width(boot.mean(np.stack([days] * 5))) == pytest.approx(alone, rel=0.02)
    apart = np.stack([days + shift for shift in (-1.0, -0.5, 0.0, 0.5, 1.0)])
    assert width(boot.mean(apart)) > 2 * alone


def test_a_ratio_of_nothing_has_no_value() -> None:
    """Shares of a gap that is not there are left empty, so that a table of them is still valid JSON."""
    cell = Bootstrap(3, resamples=50).ratio(np.ones(3), np.zeros(3))
    assert cell == {"mean": None, "low": None, "high": None}
