"""Days of bookings: who calls, in which order, for which trip.

A day is a function of the options of `Days` and one seed, and of nothing else. Its first n requests do not depend on
how many follow, so that a day with 45 customers begins with the 30 of the same seed.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.seeds import generator
from shoal.rides.routing.problem import NUM_OFFERS, OFFER_EARLIER_MIN, OFFER_LATER_MIN, REQUEST
from shoal.rides.world.answers import ANSWER, answer_probability
from shoal.rides.world.city import City
from shoal.rides.world.riders import SLOTS, Riders

Array = np.ndarray[Any, Any]

SLOT_S = 1800  # a window's length, and the grid on which pickup windows lie
ROUND_S = 300
PAIR_SHARE = 0.15  # parties of two
LATER_START_SHARE = 0.3  # dropoff windows that begin 5 minutes after the rounded direct time
JITTER = np.array([0.25, 0.5, 0.25])  # a trip is made a slot before its diary's, in it, or after it

_DAY, _HISTORY = 0, 1  # spawn keys: what a seed is used for


@dataclass(frozen=True, eq=False)
class Day:
    """One day's requests in booking order. Row c of every array is the c-th call."""

    seed: int
    requests: Array  # REQUEST[C], as asked
    rider: Array  # int32[C]
    purpose: Array  # int8[C], position in PURPOSES
    mood: Array  # float64[C] in [0, 1): the rider accepts an offer iff mood < P(accept)

    @property
    def customers(self) -> int:
        """How many requests there are."""
        return len(self.requests)


class Days:
    """All days of a city and its riders under given options; `draw(seed)` is one of them.

    `split` says which riders call. `type_mix` (four weights, as Kind) draws riders by type in these proportions instead
    of evenly, as far as there are riders of each type. `peak_s` (from, to) moves all pickups into these hours, in the
    proportions of the day's demand there: a stress test of the fleet. With `again` there may be more requests than
    riders: everybody calls once before anybody calls twice.

    >>> from shoal.rides.world.city import san_francisco
    >>> from shoal.rides.world.riders import draw_riders
    >>> days = Days(san_francisco(), draw_riders(san_francisco()))
    >>> day = days.draw(7)
    >>> day.customers, len(set(day.rider.tolist())), bool((day.requests == days.draw(7).requests).all())
    (30, 30, True)
    """

    def __init__(
        self,
        city: City,
        riders: Riders,
        customers: int = 30,
        split: str = "train",
        *,
        type_mix: Sequence[float] | None = None,
        peak_s: tuple[int, int] | None = None,
        again: bool = False,
    ) -> None:
        self.city, self.riders, self.customers, self.split = city, riders, customers, split
        self.type_mix, self.peak_s = type_mix, peak_s
        self.members = riders.members(split)  # int32[n]
        if customers < 1 or not len(self.members) or (customers > len(self.members) and not again):
            whose = "" if split == "all" else f"{split.replace('_', '-')} "
            raise ValueError(
                f"expected 1 to {len(self.members)} customers a day, since a rider calls once on a simulated day and "
                f"there are {len(self.members)} {whose}riders, got {customers}: ask for fewer customers or take more "
                "riders"
            )
        if max(riders.trip_pickup.max(), riders.trip_dropoff.max()) >= city.zones:
            raise ValueError(f"the riders' diaries name zones beyond the {city.zones} of {city.name}: another city's?")
        self._rate = None if type_mix is None else _rates(riders.kind[self.members], type_mix)
        self._peak_slots = None if peak_s is None else _slots_between(peak_s)
        self._trips = riders.trip_pickup.shape[1]
        self._first_slot, self._last_slot = riders.slots

    def draw(self, seed: int) -> Day:
        """The day of a seed."""
        rng = generator(seed, _DAY)
        riders, customers = self.riders, self.customers
        keys = rng.random(len(self.members))
        if self._rate is not None:  # the first of exponential clocks with these rates (Efraimidis & Spirakis 2006)
            keys = -np.log1p(-keys) / self._rate
        order = np.argsort(keys)
        if customers > len(order):  # whoever calls twice does so after everybody, in the same order
            order = np.tile(order, -(-customers // len(order)))
        rider = self.members[order[:customers]]  # a random order, and random riders
        draws = rng.random((customers, 5)).T
        trip = (draws[0] * riders.trip_count[rider]).astype(np.intp)
        which = rider * self._trips + trip
        requests = np.empty(customers, REQUEST)
        pickup = requests["pickup"] = riders.trip_pickup.ravel()[which]
        dropoff = requests["dropoff"] = riders.trip_dropoff.ravel()[which]
        requests["size"] = 1 + (draws[1] < PAIR_SHARE)
        if self._peak_slots is None:
            slot = riders.trip_slot.ravel()[which] + _jitter(draws[2])
            np.clip(slot, self._first_slot, self._last_slot, out=slot)
        else:
            slot = np.searchsorted(self._peak_distribution, draws[2], side="right") + self._peak_slots[0]
        open_windows(requests, self.city.travel_s[pickup, dropoff], slot * SLOT_S, draws[3] < LATER_START_SHARE)
        return Day(seed, requests, rider, riders.trip_purpose.ravel()[which], draws[4])

    @functools.cached_property
    def demand(self) -> Array:
        """Share of all requests whose pickup window opens in each half hour, float64[48].

        From the training riders' diaries, whoever calls: what an operator has seen. The held-out riders' diaries stay
        unknown to whatever is built on this.
        """
        spread = np.convolve(self._seen(self.riders.trip_slot, SLOTS), JITTER)
        spread[1], spread[-2] = spread[1] + spread[0], spread[-2] + spread[-1]
        spread = spread[1:-1]
        first, last = self._first_slot, self._last_slot  # as in `draw`: nobody travels before or after all diaries
        spread[first] += spread[:first].sum()
        spread[last] += spread[last + 1 :].sum()
        spread[:first] = spread[last + 1 :] = 0.0
        if self._peak_slots is not None:
            inside = np.isin(np.arange(SLOTS), self._peak_slots)
            spread = np.where(inside, spread if (spread * inside).sum() > 0 else 1.0, 0.0)
        return np.asarray(spread / spread.sum())

    def demand_mass(self, pickup_open_s: Any, near_s: int = SLOT_S) -> tuple[Array, Array, Array]:
        """Share of the day's demand before, after and near a time; float64 of the argument's shape each.

        A request is near when its pickup window opens at most `near_s` away; before and after do not count the time
        itself, so that before + after + (exactly then) = 1.
        """
        time = np.asarray(pickup_open_s, np.float64) / SLOT_S
        upto = self._demand_upto
        reach = near_s / SLOT_S
        before = upto[np.ceil(time).astype(np.int64).clip(0, SLOTS)]
        after = 1.0 - upto[(np.floor(time).astype(np.int64) + 1).clip(0, SLOTS)]
        low, high = np.ceil(time - reach), np.floor(time + reach) + 1
        near = upto[high.astype(np.int64).clip(0, SLOTS)] - upto[low.astype(np.int64).clip(0, SLOTS)]
        return before, after, near

    def demand_near(self, zone: Any, time_s: Any) -> Array:
        """How much demand to expect around a zone and a time, float32 of the arguments' shape; 1 on average by day.

        The share of demand within one slot of the time, times the zone's `centrality`.
        """
        slot = (np.asarray(time_s) // SLOT_S).clip(0, SLOTS - 1)
        return np.asarray(self._demand_by_zone[slot, np.asarray(zone)])

    @functools.cached_property
    def centrality(self) -> Array:
        """How much of the training riders' demand is close to each zone, float64[Z]; the most central zone has 1."""
        pickups, dropoffs = (
            self._seen(zone, self.city.zones) for zone in (self.riders.trip_pickup, self.riders.trip_dropoff)
        )
        around = self.city.closeness().astype(np.float64) @ (pickups + dropoffs)
        return np.asarray(around / around.max())

    def _seen(self, trips: Array, length: int) -> Array:
        """How often training riders' diaries have each value, float64[length]; every rider counts the same."""
        known = self.riders.members("train")
        rows = known if len(known) else self.members
        count = self.riders.trip_count[rows, None]
        weight = (np.arange(trips.shape[1]) < count) / count
        return np.bincount(trips[rows].ravel(), weights=weight.ravel(), minlength=length)

    @functools.cached_property
    def _demand_upto(self) -> Array:
        return np.concatenate([[0.0], np.cumsum(self.demand)]).clip(max=1.0)

    @functools.cached_property
    def _demand_by_zone(self) -> Array:
        when = np.convolve(self.demand, np.ones(3))[1:-1]
        table = when[:, None] * self.centrality
        return np.asarray(table / table.mean(), np.float32)

    @functools.cached_property
    def _peak_distribution(self) -> Array:
        assert self._peak_slots is not None
        total = np.cumsum(self.demand[self._peak_slots])
        total[-1] = 1.0
        return total


def open_windows(requests: Array, direct_s: Array, pickup_open_s: Any, later_start: Any) -> None:
    """Fill in the windows of requests: 30 minutes each, the dropoff's the direct time (to 5 minutes, up) later."""
    requests["pickup_open"] = pickup_open_s
    requests["pickup_close"] = requests["pickup_open"] + SLOT_S
    rounded_s = -(-direct_s // ROUND_S) * ROUND_S
    requests["dropoff_open"] = requests["pickup_open"] + rounded_s + ROUND_S * np.asarray(later_start)
    requests["dropoff_close"] = requests["dropoff_open"] + SLOT_S


def histories(
    riders: Riders, seed: int, answers: int = 10, acceptance: str = "logit", split: str = "held_out"
) -> Array:
    """Earlier answers of every held-out rider under uniform offers, ANSWER[riders x answers], rider by rider.

    The first n answers of a rider do not depend on how many follow.
    """
    if answers < 0:
        raise ValueError(f"expected 0 or more answers a rider, got {answers}")
    members = riders.members(split)
    rows = np.zeros((len(members), answers), ANSWER)
    if rows.size == 0:
        return rows.ravel()
    rng = generator(seed, _HISTORY)
    draws = rng.random((answers, 4, len(members))).transpose(1, 2, 0)  # answer by answer, so that a prefix is one
    trip = (draws[0] * riders.trip_count[members, None]).astype(np.int64)
    offer = (draws[1] * NUM_OFFERS).astype(np.int64)
    who = np.broadcast_to(members[:, None], rows.shape)
    slot = (riders.trip_slot[who, trip] + _jitter(draws[2])).clip(*riders.slots)
    purpose = riders.trip_purpose[who, trip]
    chance = answer_probability(
        acceptance, riders.kind[who], riders.effect[who], purpose, OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer]
    )
    rows["rider"], rows["purpose"], rows["offer"] = who, purpose, offer
    rows["pickup_open_s"], rows["direct_s"] = slot * SLOT_S, riders.trip_direct_s[who, trip]
    rows["accepted"] = draws[3] < chance
    return rows.ravel()


def _jitter(uniform: Array) -> Array:
    return np.asarray((uniform >= JITTER[0]).astype(np.int64) + (uniform >= JITTER[0] + JITTER[1]) - 1)


def _rates(kind: Array, mix: Sequence[float]) -> Array:
    weights = np.asarray(mix, np.float64)
    if weights.shape != (4,) or not np.isfinite(weights).all() or (weights < 0).any() or weights.sum() <= 0:
        raise ValueError(f"expected a mix of 4 weights (early, late, inflexible, both), got {mix!r}")
    count = np.bincount(kind, minlength=4)
    # The small constant: types of weight 0 come last, when all others are in.
    return np.asarray((weights / np.maximum(count, 1))[kind] + 1e-12)


def _slots_between(peak_s: tuple[int, int]) -> Array:
    low, high = peak_s
    slots = np.arange(SLOTS)[(np.arange(SLOTS) * SLOT_S >= low) & (np.arange(SLOTS) * SLOT_S < high)]
    if len(slots) == 0:
        raise ValueError(
            f"expected peak_s (from, to) in seconds with a half hour beginning inside, such as (25200, 32400) for 7:00 "
            f"to 9:00, got {peak_s!r}"
        )
    return slots
