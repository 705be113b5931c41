"""The world that days share: who is held out, and what happens where riders are few."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from shoal.core.seeds import Stream
from shoal.rides.contest.play import contest
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import max_change
from shoal.rides.world.tables import Notice
from shoal.rides.world.world import make_world

FEW: dict[str, Any] = {"population": 40, "customers": 25, "start": "none", "iterations": 2, "futures": 0}


def test_too_few_riders_to_hold_out_are_all_trained_with_and_that_is_said() -> None:
    """40 riders and 25 requests a day: 8 held-out ones make no day, so that days are held out and a note says it."""
    with pytest.warns(Notice, match="of 40 riders 8 would be held out .* take 125 riders or more"):
        training = RidesVectorEnv(2, RidesOptions(**FEW))
    with pytest.warns(Notice, match="nobody is held out"):
        evaluation = RidesVectorEnv(2, RidesOptions(**FEW), stream=Stream.EVALUATE)
    assert len(training.days.members) == len(evaluation.days.members) == 40
    training.reset(seed=1)
    evaluation.reset(seed=1)
    assert (training.bookings.requests != evaluation.bookings.requests).any()  # other days all the same
    training.close()
    evaluation.close()


def test_the_riders_are_the_same_whoever_is_held_out() -> None:
    """More customers a day change who is held out and nothing else of the riders: a run of fewer meets them again."""
    few, many = (make_world(RidesOptions(**{**FEW, "customers": customers})).riders for customers in (8, 25))
    assert (few.held_out.sum(), many.held_out.sum()) == (8, 0)
    for name, value in vars(few).items():
        assert name == "held_out" or (value == getattr(many, name)).all(), name


def test_enough_riders_are_held_out_without_a_word() -> None:
    """The default world, and one with just as many as a day takes."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for options in (RidesOptions(start="none"), RidesOptions(**{**FEW, "customers": 8})):
            env = RidesVectorEnv(1, options, stream=Stream.EVALUATE)
            assert env.world.riders.held_out[env.days.members].all()
            env.close()


@pytest.mark.filterwarnings("ignore::shoal.rides.world.tables.Notice")
def test_a_contest_says_whose_days_it_played() -> None:
    """`held_out` of the results: riders, or days alone."""
    from shoal.rides.contest.scores import summary

    for customers, held_out in ((8, "riders"), (25, "days")):
        options = RidesOptions(**{**FEW, "customers": customers})
        played = contest({"max-change": max_change()}, options, days=2, iterations=2)
        assert summary(played)["held_out"] == held_out


def test_calls_of_more_than_all_riders() -> None:
    """Everybody calls once before anybody calls twice, and the first calls do not depend on how many follow."""
    world = make_world(RidesOptions(**{**FEW, "customers": 100}))
    with pytest.raises(ValueError, match="expected 1 to 40 customers a day, since a rider calls once"):
        world.days("train")
    day = world.days("train", again=True).draw(5)
    assert sorted(day.rider[:40]) == list(range(40))
    assert (day.rider[40:80] == day.rider[:40]).all()
    first = make_world(RidesOptions(**FEW)).days("train").draw(5)
    assert (first.requests == day.requests[:25]).all()
    assert np.array_equal(first.mood, day.mood[:25])
