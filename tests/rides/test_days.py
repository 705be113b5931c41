"""Days: a pure function of options and seed, windows as specified, demand with two peaks, histories."""

from __future__ import annotations

import time

import numpy as np
import pytest

from shoal.rides.routing.problem import NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, REQUEST
from shoal.rides.world.answers import ANSWER, Kind, accept_probability, rule_accepts
from shoal.rides.world.city import City, san_francisco
from shoal.rides.world.days import JITTER, Day, Days, histories, open_windows
from shoal.rides.world.riders import Riders, draw_riders

HOUR = 3600


@pytest.fixture(scope="module")
def city() -> City:
    return san_francisco()


@pytest.fixture(scope="module")
def riders(city: City) -> Riders:
    return draw_riders(city)


@pytest.fixture(scope="module")
def many(city: City, riders: Riders) -> list[Day]:
    days = Days(city, riders)
    return [days.draw(seed) for seed in range(400)]


def same(a: Day, b: Day) -> bool:
    return all((getattr(a, name) == getattr(b, name)).all() for name in ("requests", "rider", "purpose", "mood"))


def test_a_day_is_a_function_of_options_and_seed(city: City, riders: Riders) -> None:
    """Another object, other days drawn in between, another population object: the same bits."""
    days = Days(city, riders)
    first = days.draw(11)
    days.draw(12)
    assert same(first, days.draw(11))
    assert same(first, Days(city, draw_riders(city)).draw(11))
    assert not same(first, days.draw(12))
    assert first.seed == 11


def test_more_customers_only_add_calls(city: City, riders: Riders) -> None:
    """A 45-customer day begins with the 30 calls of the same seed, answers included."""
    for options in ({}, {"peak_s": (7 * HOUR, 9 * HOUR)}, {"type_mix": (1, 1, 1, 1)}):
        short = Days(city, riders, 30, "held_out", **options).draw(3)
        longer = Days(city, riders, 45, "held_out", **options).draw(3)
        for name in ("requests", "rider", "purpose", "mood"):
            assert (getattr(longer, name)[:30] == getattr(short, name)).all()


def test_arrays_have_their_types(many: list[Day]) -> None:
    """As the contract with the environment says."""
    day = many[0]
    assert day.requests.dtype == REQUEST
    assert (day.rider.dtype, day.purpose.dtype, day.mood.dtype) == (np.int32, np.int8, np.float64)
    assert day.customers == len(day.rider) == len(day.purpose) == len(day.mood) == 30


def test_one_trip_per_rider_from_the_diary(riders: Riders, many: list[Day]) -> None:
    """30 different training riders; pickup, dropoff and purpose together are a trip of that rider's diary."""
    for day in many[:50]:
        assert len(set(day.rider.tolist())) == 30
        assert not riders.held_out[day.rider].any()
        for request, rider, purpose in zip(day.requests, day.rider, day.purpose, strict=True):
            trips = zip(riders.trip_pickup[rider], riders.trip_dropoff[rider], riders.trip_purpose[rider], strict=True)
            assert (request["pickup"], request["dropoff"], purpose) in list(trips)


def test_splits_are_disjoint(city: City, riders: Riders) -> None:
    """Held-out days have held-out riders alone, training days never."""
    train, held_out = Days(city, riders), Days(city, riders, split="held_out")
    seen = {name: set() for name in ("train", "held_out")}
    for seed in range(60):
        seen["train"] |= set(train.draw(seed).rider.tolist())
        seen["held_out"] |= set(held_out.draw(seed).rider.tolist())
    assert not seen["train"] & seen["held_out"]
    assert len(seen["train"]) > 230
    assert len(seen["held_out"]) == 60


def test_booking_order_is_random(many: list[Day]) -> None:
    """Neither rider numbers nor pickup times are sorted, and who calls first varies."""
    first = [int(day.rider[0]) for day in many]
    assert len(set(first)) > 150
    ordered = [np.corrcoef(np.arange(30), day.requests["pickup_open"])[0, 1] for day in many]
    assert np.mean(ordered) == pytest.approx(0, abs=0.03)


def test_windows(city: City, many: list[Day]) -> None:
    """Half hours on the grid; the dropoff opens the direct time, rounded up to 5 minutes, or 5 more, later."""
    requests = np.concatenate([day.requests for day in many])
    direct = city.travel_s[requests["pickup"], requests["dropoff"]]
    assert (requests["pickup_open"] % 1800 == 0).all()
    assert (requests["pickup_close"] - requests["pickup_open"] == 1800).all()
    assert (requests["dropoff_close"] - requests["dropoff_open"] == 1800).all()
    slack = requests["dropoff_open"] - requests["pickup_open"] - direct
    assert slack.min() >= 0
    assert slack.max() < 600
    more = requests["dropoff_open"] - requests["pickup_open"] - -(-direct // 300) * 300
    assert set(more.tolist()) == {0, 300}
    assert (more == 300).mean() == pytest.approx(0.3, abs=0.02)


def test_worked_windows() -> None:
    """Direct 601 s rounds up to 15 minutes, 600 s stays 10; five more where asked."""
    requests = np.zeros(3, REQUEST)
    open_windows(requests, np.array([601, 600, 600]), 8 * HOUR, np.array([False, False, True]))
    assert (requests["pickup_close"] == 8 * HOUR + 1800).all()
    assert (requests["dropoff_open"] - 8 * HOUR).tolist() == [900, 600, 900]
    assert (requests["dropoff_close"] - requests["dropoff_open"]).tolist() == [1800] * 3


def test_every_request_can_be_driven_alone(city: City, many: list[Day]) -> None:
    """A vehicle from the depot reaches the pickup in time and the dropoff within its window."""
    requests = np.concatenate([day.requests for day in many])
    at_pickup = np.maximum(requests["pickup_open"], city.travel_s[city.depot, requests["pickup"]])
    assert (at_pickup <= requests["pickup_close"]).all()
    at_dropoff = at_pickup + city.travel_s[requests["pickup"], requests["dropoff"]]
    assert (at_dropoff <= requests["dropoff_close"]).all()


def test_party_sizes_and_moods(many: list[Day]) -> None:
    """1 in 85 %, otherwise 2; moods are uniform on [0, 1)."""
    size = np.concatenate([day.requests["size"] for day in many])
    mood = np.concatenate([day.mood for day in many])
    assert set(size.tolist()) == {1, 2}
    assert (size == 1).mean() == pytest.approx(0.85, abs=0.01)
    assert np.histogram(mood, 10, (0, 1))[0] / len(mood) == pytest.approx(np.full(10, 0.1), abs=0.015)


def test_demand_has_two_peaks(city: City, riders: Riders, many: list[Day]) -> None:
    """Morning and afternoon stand out over midday, and days are drawn as `demand` says."""
    demand = Days(city, riders).demand
    hours = np.arange(48) / 2
    assert demand.sum() == pytest.approx(1)
    morning, midday, afternoon = (demand[(hours >= a) & (hours < b)].mean() for a, b in ((7, 9), (10, 13), (15, 18)))
    assert min(morning, afternoon) > 1.5 * midday
    counted = np.bincount(np.concatenate([d.requests["pickup_open"] for d in many]) // 1800, minlength=48) / 12_000
    assert counted == pytest.approx(demand, abs=0.008)
    assert JITTER.sum() == 1


def test_demand_mass(city: City, riders: Riders) -> None:
    """Before, at and after a time add up to 1; near is the three slots around it; works on arrays of any shape."""
    days = Days(city, riders)
    times = np.arange(48).reshape(6, 8) * 1800
    before, after, near = days.demand_mass(times)
    assert before.shape == after.shape == near.shape == (6, 8)
    assert before + after + days.demand.reshape(6, 8) == pytest.approx(np.ones((6, 8)))
    at = 17
    assert before.ravel()[at] == pytest.approx(days.demand[:at].sum())
    assert near.ravel()[at] == pytest.approx(days.demand[at - 1 : at + 2].sum())
    # Between two slots nothing opens exactly then, and a slot on each side is near.
    early, late, around = days.demand_mass(at * 1800 + 900)
    assert float(early + late) == pytest.approx(1)
    assert float(around) == pytest.approx(days.demand[at : at + 2].sum())
    assert [float(part) for part in days.demand_mass(-1800)] == [0.0, 1.0, 0.0]


def test_demand_does_not_know_the_held_out_diaries(city: City, riders: Riders) -> None:
    """What the agent is told about demand is the same for both splits: it is the training riders'."""
    train, held_out = Days(city, riders), Days(city, riders, split="held_out")
    assert (train.demand == held_out.demand).all()
    assert (train.centrality == held_out.centrality).all()


def test_demand_near_is_higher_downtown_and_at_peak(city: City, riders: Riders) -> None:
    """More is to be expected around the depot than at the ocean, at 8:00 than at noon, nothing at 3:00."""
    days = Days(city, riders)
    ocean = int(np.argmin(city.x_km))
    zones, times = np.array([city.depot, ocean, city.depot, city.depot]), np.array([8, 8, 12, 3]) * HOUR
    downtown, far, noon, night = days.demand_near(zones, times)
    assert downtown > 2 * far > 0
    assert downtown > noon > night == 0
    assert days.centrality.max() == 1
    assert days.centrality[city.depot] > 0.7


def test_peak_concentrates_pickups(city: City, riders: Riders) -> None:
    """All windows open between 7:00 and 9:00; the rest of the day is as it was."""
    peak, plain = Days(city, riders, peak_s=(7 * HOUR, 9 * HOUR)), Days(city, riders)
    opened = np.concatenate([peak.draw(seed).requests["pickup_open"] for seed in range(100)])
    assert set(opened.tolist()) == {25200, 27000, 28800, 30600}
    assert (peak.draw(4).rider == plain.draw(4).rider).all()
    assert (peak.draw(4).requests["pickup"] == plain.draw(4).requests["pickup"]).all()
    assert peak.demand.sum() == pytest.approx(1)
    shares = np.bincount((opened - 25200) // 1800) / len(opened)
    assert shares == pytest.approx(peak.demand[14:18], abs=0.03)


def test_type_mix(city: City, riders: Riders) -> None:
    """Riders come in the asked proportions; a type of weight 0 only when the others have run out."""
    days = Days(city, riders, 10, "train", type_mix=(0, 0, 1, 1))
    kinds = np.concatenate([riders.kind[days.draw(seed).rider] for seed in range(200)])
    assert set(kinds.tolist()) == {Kind.INFLEXIBLE, Kind.BOTH}
    assert (kinds == Kind.BOTH).mean() == pytest.approx(0.5, abs=0.06)
    scarce = Days(city, riders, 30, "held_out", type_mix=(0, 0, 1, 1)).draw(0)  # there are only 12 and 6 of them
    assert np.bincount(riders.kind[scarce.rider], minlength=4)[2:].tolist() == [12, 6]


def test_histories(riders: Riders) -> None:
    """10 answers of each held-out rider under uniform offers, as the truth would answer; a shorter one is a prefix."""
    rows = histories(riders, seed=0)
    assert rows.dtype == ANSWER
    assert (rows["rider"] == np.repeat(np.arange(240, 300), 10)).all()
    assert (rows.reshape(60, 10)[:, :4].ravel() == histories(riders, seed=0, answers=4)).all()
    assert len(histories(riders, seed=0, answers=0)) == 0
    assert (histories(riders, seed=1) != rows).any()

    long = histories(riders, seed=2, answers=2000)
    assert np.bincount(long["offer"], minlength=16) / len(long) == pytest.approx(np.full(16, 1 / 16), abs=0.003)
    assert long["accepted"][long["offer"] == NO_CHANGE].all()
    who, offer = long["rider"], long["offer"]
    asked = (OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
    chance = accept_probability(riders.kind[who], riders.effect[who], long["purpose"], *asked)
    for kind in Kind:
        chosen = riders.kind[who] == kind
        assert long["accepted"][chosen].mean() == pytest.approx(chance[chosen].mean(), abs=0.01)
    strict = histories(riders, seed=2, acceptance="rule")
    asked = (OFFER_EARLIER_MIN[strict["offer"]], OFFER_LATER_MIN[strict["offer"]])
    assert (strict["accepted"] == rule_accepts(riders.kind[strict["rider"]], *asked)).all()


def test_histories_describe_diary_trips(riders: Riders) -> None:
    """Purpose and direct time belong to one trip of the rider; the pickup opens within a slot of it."""
    for row in histories(riders, seed=3, answers=5, split="all"):
        rider = row["rider"]
        fits = (riders.trip_purpose[rider] == row["purpose"]) & (riders.trip_direct_s[rider] == row["direct_s"])
        assert (np.abs(riders.trip_slot[rider][fits] * 1800 - row["pickup_open_s"]) <= 1800).any()


def test_refuses_impossible_days(city: City, riders: Riders) -> None:
    """More customers than riders, none, an empty peak, a mix that is none, riders of another city."""
    with pytest.raises(ValueError, match=r"expected 1 to 60 customers .* 60 held-out riders, got 61"):
        Days(city, riders, 61, "held_out")
    with pytest.raises(ValueError, match="got 0"):
        Days(city, riders, 0)
    with pytest.raises(ValueError, match="peak_s"):
        Days(city, riders, peak_s=(9 * HOUR, 9 * HOUR))
    with pytest.raises(ValueError, match="mix of 4 weights"):
        Days(city, riders, type_mix=(1, 2))
    small = City("small", np.array([[0, 60], [60, 0]], np.int32), np.zeros(2), np.zeros(2), 0, ("a", "b"))
    with pytest.raises(ValueError, match="beyond the 2 of small"):
        Days(small, riders)
    with pytest.raises(ValueError, match="0 or more answers"):
        histories(riders, 0, answers=-1)


def test_drawing_is_fast(city: City, riders: Riders) -> None:
    """Well under 0.3 ms of CPU a day (0.05 ms on a quiet core), and making a `Days` is free."""
    days = Days(city, riders)
    times = []
    for seed in range(200):
        start = time.thread_time()
        days.draw(seed)
        times.append(time.thread_time() - start)
    assert np.median(times) < 0.3e-3
    start = time.thread_time()
    Days(city, riders)
    assert time.thread_time() - start < 5e-3
