"""Who rides: a seeded population with profiles, homes, diaries of trips, and a hidden flexibility type.

Types come in exact shares, among the training riders and among the held-out ones alike, and profiles given the type in
nearly exact ones, so that 60 held-out riders are no lottery. Drawing the profile given the type is the same joint
distribution as the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.core.seeds import generator
from shoal.rides.world.answers import PRIOR
from shoal.rides.world.city import ATTRACTIONS, PURPOSES, City
from shoal.rides.world.population import (
    AGES,
    INCOMES,
    OCCUPATIONS,
    profile_shares,
    purpose_given_occupation,
    type_given_profile,
)

Array = np.ndarray[Any, Any]

SLOTS = 48  # half hours of a day
TRIPS = 8  # of a diary: four outings, there and back
FIRST_SLOT, LAST_SLOT = 12, 44  # pickup windows open between 6:00 and 22:00
EFFECT_SD = 0.4

# By purpose: mean and standard deviation of the hour one leaves home, and of the hours until one goes back.
LEAVE_HOUR = np.array([[8.0, 0.7], [9.4, 1.6], [8.0, 0.4], [15.2, 2.2], [16.2, 2.6]])
STAY_HOURS = np.array([[8.9, 0.7], [2.2, 0.8], [7.4, 0.8], [1.5, 0.5], [2.4, 0.8]])
SECOND_SHIFT_HOUR, SECOND_SHIFT_SHARE = 12.5, 0.35  # shift workers who leave for the late shift
GRAVITY_S = 900.0  # outings other than to a regular place fall by e for every 15 minutes of travel


@dataclass(frozen=True, eq=False)
class Riders:
    """The population, as arrays over riders; rider r is row r everywhere."""

    age: Array  # int8[R], position in AGES
    occupation: Array  # int8[R], position in OCCUPATIONS
    income: Array  # int8[R], position in INCOMES
    home: Array  # int32[R], zone
    kind: Array  # int8[R], the hidden type (answers.Kind)
    effect: Array  # float64[R], how much more willing than the type
    held_out: Array  # bool[R]
    trip_pickup: Array  # int32[R, T], zone
    trip_dropoff: Array  # int32[R, T], zone
    trip_purpose: Array  # int8[R, T], position in PURPOSES
    trip_slot: Array  # int32[R, T], the half hour in which the pickup window opens
    trip_direct_s: Array  # int32[R, T], travel time from door to door
    trip_count: Array  # int32[R], how many of the T are the rider's; the rest fills up
    name: Array = field(default_factory=lambda: np.zeros(0, np.str_))  # str[R], in files; default: the rider's number

    def __post_init__(self) -> None:
        if not self.name.size:
            object.__setattr__(self, "name", np.array([str(rider) for rider in range(len(self.age))]))
        count, trips = self.trip_pickup.shape
        for name, array in vars(self).items():
            expected = (count, trips) if name.startswith("trip_") and name != "trip_count" else (count,)
            if array.shape != expected:
                raise ValueError(f"expected {name} of shape {expected}, got {array.shape}")
            array.setflags(write=False)

    @property
    def count(self) -> int:
        """How many riders there are."""
        return len(self.age)

    def called(self, rider: int) -> int | str:
        """The rider as files and screens say it: a number, or the name that a riders' file gave."""
        name = str(self.name[rider])
        return rider if name == str(rider) else name

    @property
    def slots(self) -> tuple[int, int]:
        """The first and the last half hour of all diaries."""
        return int(self.trip_slot.min()), int(self.trip_slot.max())

    def members(self, split: str) -> Array:
        """The riders of "train", "held_out" or "all", int32[n]."""
        chosen = {"train": ~self.held_out, "held_out": self.held_out, "all": np.ones(self.count, bool)}
        if split not in chosen:
            raise ValueError(f"expected split to be one of {', '.join(chosen)}, got {split!r}")
        return np.flatnonzero(chosen[split]).astype(np.int32)

    def profile_features(self) -> Array:
        """What an operator knows of a rider, float32[R, 13]: one-hot age group, occupation and income band."""
        parts = ((self.age, AGES), (self.occupation, OCCUPATIONS), (self.income, INCOMES))
        return np.concatenate([np.eye(len(names), dtype=np.float32)[codes] for codes, names in parts], axis=1)


def draw_riders(
    city: City, seed: int = 0, count: int = 300, held_out: int = 60, held_out_mix: Sequence[float] | None = None
) -> Riders:
    """A population of the city; riders 0 to count - held_out - 1 are for training, the rest held out.

    `held_out_mix` gives the held-out riders another mix of types (four weights, as Kind) and leaves the training
    riders as they are, to the bit: the shift test.

    >>> from shoal.rides.world.city import san_francisco
    >>> riders = draw_riders(san_francisco())
    >>> riders.count, np.bincount(riders.kind).tolist(), np.bincount(riders.kind[riders.held_out]).tolist()
    (300, [130, 80, 60, 30], [26, 16, 12, 6])
    """
    if not 0 <= held_out <= count or count < 1:
        raise ValueError(f"expected 0 <= held out <= riders and at least 1 rider, got {held_out} of {count}")
    mix = PRIOR if held_out_mix is None else np.asarray(held_out_mix, np.float64)
    if mix.shape != (4,) or not np.isfinite(mix).all() or (mix < 0).any() or mix.sum() <= 0:
        raise ValueError(f"expected a mix of 4 weights (early, late, inflexible, both), got {held_out_mix!r}")
    parts = []
    for split, (size, shares) in enumerate(((count - held_out, PRIOR), (held_out, mix / mix.sum()))):
        rng = generator(seed, split)
        parts.append(_draw_part(city, rng, size, shares))
    fields = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Riders(**fields, held_out=np.arange(count) >= count - held_out)


def apportioned(shares: Array, count: int) -> Array:
    """Whole numbers that add up to `count` in the given shares, int64[n] (largest remainders).

    >>> apportioned(np.array([0.5, 0.3, 0.2]), 7).tolist()
    [4, 2, 1]
    """
    exact = shares * count
    out = np.floor(exact + 1e-9).astype(np.int64)
    out[np.argsort(out - exact, kind="stable")[: count - out.sum()]] += 1
    return out


def _draw_part(city: City, rng: np.random.Generator, count: int, shares: Array) -> dict[str, Array]:
    assert city.attraction is not None
    kind = rng.permutation(np.repeat(np.arange(4), apportioned(shares, count)))
    age, occupation, income = _profiles_given(kind, rng)
    home = picked(rng.random(count), np.broadcast_to(city.attraction[0], (count, city.zones)))
    fields = {"age": age, "occupation": occupation, "income": income, "kind": kind}
    out: dict[str, Array] = {name: codes.astype(np.int8) for name, codes in fields.items()}
    out |= {"home": home.astype(np.int32), "effect": rng.normal(0.0, EFFECT_SD, count)}
    return out | draw_diaries(city, rng, home, occupation)


def _profiles_given(kind: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Age, occupation and income of riders of these types, int64[n] each.

    Stratified: the riders of a type take evenly spaced quantiles of the profiles, in the order of the type that a
    profile suggests. So a small population's profiles say as much about its types as the model does: no lottery again.
    """
    joint = (profile_shares()[..., None] * type_given_profile()).reshape(-1, 4)  # [profiles, 4]
    order = np.argsort(joint.argmax(axis=1), kind="stable")
    profile = np.empty(len(kind), np.int64)
    for code in range(4):
        mine = np.flatnonzero(kind == code)
        quantile = (rng.permutation(len(mine)) + rng.random(len(mine))) / max(len(mine), 1)
        profile[mine] = order[picked(quantile, np.broadcast_to(joint[order, code], (len(mine), len(order))))]
    age, occupation, income = np.unravel_index(profile, profile_shares().shape)
    return age, occupation, income


def picked(uniform: Array, weights: Array) -> Array:
    """One index per row of `weights` [n, k], with probability proportional to it, int64[n]."""
    total = np.cumsum(weights, axis=1)
    return np.asarray((uniform[:, None] * total[:, -1:] >= total).sum(axis=1).clip(max=weights.shape[1] - 1))


def draw_diaries(city: City, rng: np.random.Generator, home: Array, occupation: Array) -> dict[str, Array]:
    """Four outings for every rider, there and back; work and school are always at the same place."""
    assert city.attraction is not None
    count = len(home)
    shape = (count, TRIPS // 2)
    habits = np.broadcast_to(purpose_given_occupation()[occupation][:, None], (*shape, len(PURPOSES)))
    purpose = picked(rng.random(count * shape[1]), habits.reshape(-1, len(PURPOSES))).reshape(shape)

    elsewhere = np.arange(city.zones) != home[:, None]
    near_home = np.exp(-city.travel_s[home] / GRAVITY_S)
    regular, fresh = rng.random((len(PURPOSES), count)), rng.random((*shape,))
    place = np.empty(shape, np.int64)
    for code, name in enumerate(PURPOSES):
        pull = city.attraction[ATTRACTIONS.index(name)] * elsewhere
        regular_place = picked(regular[code], pull)
        for outing in range(shape[1]):
            chosen = regular_place if name in ("work", "school") else picked(fresh[:, outing], pull * near_home)
            place[:, outing] = np.where(purpose[:, outing] == code, chosen, place[:, outing])

    noise = rng.normal(size=(2, *shape))
    second_shift = rng.random(count) < SECOND_SHIFT_SHARE
    late = ((occupation == OCCUPATIONS.index("shift")) & second_shift)[:, None] & (purpose == PURPOSES.index("work"))
    hour = np.where(late, SECOND_SHIFT_HOUR, LEAVE_HOUR[purpose, 0]) + LEAVE_HOUR[purpose, 1] * noise[0]
    back = hour + np.maximum(STAY_HOURS[purpose, 0] + STAY_HOURS[purpose, 1] * noise[1], 1.0)
    slot = np.floor(np.stack([hour, back], axis=2).reshape(count, TRIPS) * 2.0)
    slot = LAST_SLOT - np.abs(LAST_SLOT - slot)  # night travellers go earlier; a plain limit would pile them up
    away = np.broadcast_to(home[:, None], shape)
    pickup = np.stack([away, place], axis=2).reshape(count, TRIPS)
    dropoff = np.stack([place, away], axis=2).reshape(count, TRIPS)
    return {
        "trip_pickup": pickup.astype(np.int32),
        "trip_dropoff": dropoff.astype(np.int32),
        "trip_purpose": np.repeat(purpose, 2, axis=1).astype(np.int8),
        "trip_slot": slot.clip(FIRST_SLOT, LAST_SLOT).astype(np.int32),
        "trip_direct_s": city.travel_s[pickup, dropoff],
        "trip_count": np.full(count, TRIPS, np.int32),
    }
