"""The booking desk: the same offers as on a day that is played, in milliseconds, with routes that hold."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import pytest

from shoal.rides.desk.offer import Booked, Desk, Offer
from shoal.rides.desk.view import offer_data, offer_lines
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import constant, max_change
from shoal.rides.routing.checker import check_routes
from shoal.rides.routing.problem import EFFECTS, NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, REQUEST

OPTIONS = RidesOptions(start="none", iterations=10)


def a_day(desk: Desk, seed: int = 3) -> Any:
    return desk.world.days("held_out").draw(seed)


def call(day: Any, row: int) -> tuple[Any, int, int]:
    return day.requests[row], int(day.rider[row]), int(day.purpose[row])


def minutes(clock: str) -> int:
    return 60 * int(clock[:2]) + int(clock[3:])


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
    lines = offer_lines(data)
    text = "\n".join(lines)
    assert lines[1].startswith("offer      30 minutes earlier: windows widened to pickup ")  # the answer comes first
    assert lines[2] == f'say        "{data["say"]}"'
    asked, given = (re.findall(r"\d\d:\d\d", text) for text in (lines[0], lines[2]))
    assert given[2:] == asked[:2]  # the window asked for
    assert [given[1], minutes(given[2]) - minutes(given[0])] == [asked[1], 30]  # it only begins earlier
    assert lines[4].startswith("why        a yes saves ")
    assert text.count("->") == 3  # among the best offers, and where the rider gets on and off
    assert "booking n is row n + 1" in text
    assert len(data["menu"]) == 16
    assert data["menu"][NO_CHANGE]["p_accept"] == 1
    json.dumps(data, allow_nan=False)
    desk.close()


def test_every_booking_is_driven_or_named() -> None:
    """One vehicle and a day full of bookings: text and data name each booking that is on no route, by one numbering."""
    desk = Desk(constant(NO_CHANGE), replace(OPTIONS, vehicles=1, capacity=1))
    day = a_day(desk)
    booked = Booked.of(day).until(24)
    offer = desk.offer(booked, *call(day, 24))
    data = offer_data(desk.world, booked, call(day, 24), offer) | {"answer_ms": 1.0}
    driven = {stop["booking"] for vehicle in data["answers"]["refused"]["vehicles"] for stop in vehicle["stops"]}
    left = {row["booking"] for row in data["not_served"]}
    assert len(left) > 3
    assert driven & left == set()
    assert (driven | left) - {25} == set(range(1, 25))
    lines = offer_lines(data)
    assert f"on no route: {len(left)} of the 24 bookings, since no vehicle has room for them" in lines
    for row in data["not_served"]:
        rider = int(day.rider[row["booking"] - 1])
        assert (row["row"], row["rider"]) == (row["booking"] + 1, rider)
        assert any(f"booking {row['booking']} " in line and f"rider {rider} " in line for line in lines)
    desk.close()


def test_a_vehicles_day_begins_and_ends_at_the_depot() -> None:
    """Departure, return and load of every vehicle, worked from the travel times and the bookings."""
    desk = Desk(max_change(), OPTIONS)
    day = a_day(desk)
    booked = Booked.of(day).until(12)
    data = offer_data(desk.world, booked, call(day, 12), desk.offer(booked, *call(day, 12)))
    travel_s, depot = desk.world.problem.travel_s, desk.world.problem.depot
    driving = [vehicle for vehicle in data["answers"]["accepted"]["vehicles"] if vehicle["stops"]]
    assert len(driving) > 1
    for vehicle in driving:
        first, last = vehicle["stops"][0], vehicle["stops"][-1]
        assert vehicle["leaves_s"] == first["time_s"] - travel_s[depot, first["zone"]]
        assert vehicle["back_s"] == last["time_s"] + travel_s[last["zone"], depot]
        load = 0
        for stop in vehicle["stops"]:
            size = int(day.requests["size"][stop["booking"] - 1])
            load += size if stop["side"] == "pickup" else -size
            assert stop["on_board"] == load <= OPTIONS.capacity
            assert stop["time"] == f"{stop['time_s'] // 3600:02}:{stop['time_s'] // 60 % 60:02}"
        assert load == 0
    desk.close()


def test_the_reason_is_the_mean_over_futures() -> None:
    """What an offer saves by the day's end is the mean of the futures that the environment sampled; worth follows."""
    desk = Desk(constant(3), replace(OPTIONS, futures=6))
    day = a_day(desk)
    booked = Booked.of(day).until(10)
    offer = desk.offer(booked, *call(day, 10))
    from shoal.rides.policies.futures import future_values

    mean_min = future_values(desk.env, 6).mean(1)[0]
    assert [row["saves_min"] for row in offer.menu] == pytest.approx(mean_min.tolist(), abs=1e-5)
    row = offer.menu[3]
    patience, refusal = desk.options.burden_rates
    minutes, p = row["earlier_min"] + row["later_min"], row["p_accept"]
    assert row["worth_min"] == pytest.approx(p * (mean_min[3] - patience * minutes) - refusal * (1 - p), abs=1e-4)
    data = offer_data(desk.world, booked, call(day, 10), offer)
    assert f"{mean_min[3]:.1f} minutes of driving by the end of the day, the mean over 6 sampled futures" in data["why"]
    desk.close()


def test_no_offer_says_why_none() -> None:
    """The best change and what it would come to; one picture, since nothing can be refused."""
    desk = Desk(constant(NO_CHANGE), replace(OPTIONS, futures=4))
    day = a_day(desk)
    booked = Booked.of(day).until(5)
    data = offer_data(desk.world, booked, call(day, 5), desk.offer(booked, *call(day, 5)))
    assert data["why"].startswith("the best change, ")
    assert [picture["title"] for picture in data["pictures"]] == ["booked as asked"]
    assert data["pictures"][0]["moved"] == [5]
    desk.close()


def test_more_bookings_than_riders() -> None:
    """Out and back: a day with as many bookings as there are, whoever made them and however few the riders."""
    desk = Desk(constant(0), replace(OPTIONS, population=10, customers=2, futures=2))
    assert desk.world.riders.held_out.sum() == 2
    day = Desk(constant(0), OPTIONS).world.days("all").draw(1)
    booked = replace(Booked.of(day).until(29), rider=np.arange(29, dtype=np.int32) % 10)
    assert len(desk.offer(booked, day.requests[29], -1, 0).menu) == 16
    desk.close()


def test_an_offer_keeps_clear_of_the_riders_other_rides() -> None:
    """Back from 10:20 after a ride that ends by 10:00 at the latest: at most 20 minutes earlier can be offered."""
    desk = Desk(constant(0), OPTIONS)
    out = (5, 60, 1, 32400, 34200, 34200, 36000)  # from 9:00 to 10:00
    back = np.array([(60, 5, 1, 37200, 39000, 39000, 40800)], REQUEST)[0]  # from 10:20
    booked = Booked(np.array([out], REQUEST), np.array([7], np.int32), np.zeros(1, np.int8), np.full(1, 12, np.int8))
    offer = desk.offer(booked, back, 7, 0)
    assert offer.offer == NO_CHANGE  # the policy wants 30 minutes earlier
    assert [row["earlier_min"] <= 20 for row in offer.menu] == [row["possible"] for row in offer.menu]
    agreed = replace(booked, agreed=np.full(1, 14, np.int8))  # 20 minutes later: the first may end at 10:20
    assert [row["earlier_min"] == 0 for row in desk.offer(agreed, back, 7, 0).menu] == [
        row["possible"] for row in desk.offer(agreed, back, 7, 0).menu
    ]
    assert all(row["possible"] for row in desk.offer(booked, back, 8, 0).menu)  # another rider
    assert desk.offer(booked, back, 8, 0).offer == 0
    desk.close()
