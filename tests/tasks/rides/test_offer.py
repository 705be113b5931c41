"""The booking desk: the same offers as on a day that is played, in milliseconds, with routes that hold."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from shoal.tasks.rides.env import RidesVectorEnv
from shoal.tasks.rides.offer import Booked, Desk, Offer
from shoal.tasks.rides.offer_view import offer_data, offer_lines
from shoal.tasks.rides.options import RidesOptions
from shoal.tasks.rides.policies import constant, max_change
from shoal.tasks.rides.routing.checker import check_routes
from shoal.tasks.rides.routing.problem import EFFECTS, NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, REQUEST

OPTIONS = RidesOptions(start="none", iterations=10)


def a_day(desk: Desk, seed: int = 3) -> Any:
    return desk.world.days("held_out").draw(seed)


def call(day: Any, row: int) -> tuple[Any, int, int]:
    return day.requests[row], int(day.rider[row]), int(day.purpose[row])


def stops_of(offer: Offer, answer: str) -> list[list[int]]:
    routes = getattr(offer, answer).routes
    return [[2 * stop["request"] + (stop["side"] == "dropoff") for stop in route] for route in routes]


def agreed_requests(booked: Booked, request: Any, offer: int) -> Any:
    whole = np.concatenate([booked.requests, np.array([request])])
    agreed = np.append(booked.agreed, offer)
    return EFFECTS["widen"](whole, OFFER_EARLIER_MIN[agreed], OFFER_LATER_MIN[agreed])


def test_routes_under_either_answer_hold() -> None:
    """The checker passes both plans, each with the windows that its answer leaves, and prices them as the desk does."""
    desk = Desk(max_change(), OPTIONS)
    day = a_day(desk)
    booked = replace(Booked.of(day).until(15), agreed=np.array([0, NO_CHANGE, 3] * 5, np.int8))
    offer = desk.offer(booked, *call(day, 15))
    problem = desk.world.problem
    assert (
        check_routes(problem, agreed_requests(booked, day.requests[15], offer.offer), stops_of(offer, "accepted")) == []
    )
    assert check_routes(problem, agreed_requests(booked, day.requests[15], NO_CHANGE), stops_of(offer, "refused")) == []
    assert offer.accepted.served
    assert offer.refused.served
    assert offer.saving_min == pytest.approx(offer.refused.extra_min - offer.accepted.extra_min)
    desk.close()


def test_the_desk_sees_what_a_played_day_shows() -> None:
    """Call by call, with the answers fed back as agreed changes, the desk's offers are those of the environment."""
    desk = Desk(max_change(), OPTIONS)
    env = RidesVectorEnv(1, OPTIONS)
    env.exploring = False
    env.reset(seed=0)
    day = a_day(desk)
    env.bookings.begin(np.zeros(1, np.int64), [replace(day, seed=0)])  # the desk knows no seed of a day
    choose = max_change()
    agreed: list[int] = []
    for row in range(12):
        expected = int(choose(env, env.look())[0])
        booked = replace(Booked.of(day).until(row), agreed=np.array(agreed, np.int8))
        offer = desk.offer(booked, *call(day, row))
        assert offer.offer == expected
        assert offer.p_accept == pytest.approx(env.menu.p_accept[0, expected])
        accepted = env.bookings.book(np.array([expected]), OPTIONS.iterations)
        agreed.append(expected if accepted[0] else NO_CHANGE)
    assert any(offer != NO_CHANGE for offer in agreed)
    env.close()
    desk.close()


def test_going_on_and_starting_over_give_the_same_offer() -> None:
    """A desk that followed the day and one that is handed all of it answer alike; so after another day between."""
    followed, fresh = Desk(max_change(), OPTIONS), Desk(max_change(), OPTIONS)
    day, other = a_day(followed), a_day(followed, 4)
    booked = Booked.of(day)
    for row in (2, 3, 9):
        last = followed.offer(booked.until(row), *call(day, row))
    assert last == fresh.offer(booked.until(9), *call(day, 9))
    fresh.offer(Booked.of(other).until(5), *call(other, 5))
    assert last == fresh.offer(booked.until(9), *call(day, 9))
    followed.close()
    fresh.close()


def test_an_offer_takes_less_than_50_ms() -> None:
    """The last call of a full day, by a desk that has to plan all of it anew each time; CPU time, median of 7."""
    desk = Desk(max_change(), RidesOptions(start="none"))
    days = [Booked.of(a_day(desk, seed)) for seed in range(8)]
    spent = []
    for seed, booked in enumerate(days):
        day = a_day(desk, seed)
        begin = time.process_time()
        desk.offer(booked.until(29), *call(day, 29))
        spent.append(time.process_time() - begin)
    desk.close()
    assert median(spent[1:]) < 0.05  # the first may compile


def test_riders_nobody_knows_and_days_of_any_length() -> None:
    """Rider -1 gets the mix of all types; more calls than a day of the options has are answered too."""
    desk = Desk(constant(0), replace(OPTIONS, customers=3))
    day = Desk(constant(0), OPTIONS).world.days("held_out").draw(1)
    booked = Booked.of(day)
    stranger = desk.offer(booked.until(2), day.requests[2], -1, int(day.purpose[2]))
    known = desk.offer(booked.until(2), *call(day, 2))
    assert stranger.p_accept != known.p_accept
    assert desk.offer(booked.until(8), *call(day, 8)).accepted.served
    assert desk.offer(Booked.nothing(), *call(day, 0)).refused.served
    desk.close()


def test_who_cannot_be_placed_is_turned_away_in_the_offer() -> None:
    """One vehicle, two riders at the same time at opposite ends of the city: the second call cannot be served."""
    desk = Desk(constant(NO_CHANGE), replace(OPTIONS, vehicles=1))
    travel_s = desk.world.problem.travel_s
    far = np.unravel_index(travel_s.argmax(), travel_s.shape)
    requests = np.zeros(2, REQUEST)
    for row, (pickup, dropoff) in enumerate((far, far[::-1])):
        requests[row] = (pickup, dropoff, 1, 36000, 37800, 36000 + 2700, 37800 + 2700)
    booked = Booked(requests[:1], np.array([0], np.int32), np.zeros(1, np.int8), np.full(1, NO_CHANGE, np.int8))
    offer = desk.offer(booked, requests[1], 1, 0)
    assert not offer.refused.served
    assert offer.menu[NO_CHANGE]["extra_min"] is None
    data = offer_data(desk.world, booked, (requests[1], 1, 0), offer)
    assert any("turned away" in line for line in offer_lines(data | {"answer_ms": 1.0}))
    desk.close()


def test_an_offer_in_words_and_as_data() -> None:
    """The lines name offer, chance, price and the new request's stops; the data is plain."""
    import json

    desk = Desk(constant(0), OPTIONS)
    day = a_day(desk)
    booked = Booked.of(day).until(6)
    data = offer_data(desk.world, booked, call(day, 6), desk.offer(booked, *call(day, 6))) | {"answer_ms": 3.0}
    text = "\n".join(offer_lines(data))
    assert "windows 30 minutes earlier" in text
    assert "P(accept)" in text
    assert text.count("->") == 2
    assert len(data["menu"]) == 16
    assert data["menu"][NO_CHANGE]["p_accept"] == 1
    json.dumps(data, allow_nan=False)
    desk.close()
