"""The population: exact shares of types, a profile that says something but not all, diaries that make sense."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.rides.world.answers import PRIOR, PURPOSE_MIX, PURPOSES, Kind
from shoal.rides.world.city import City, san_francisco
from shoal.rides.world.population import (
    AGE_SHARE,
    OCCUPATION_GIVEN_AGE,
    OCCUPATIONS,
    profile_ceiling,
    profile_shares,
    purpose_given_occupation,
    type_given_profile,
)
from shoal.rides.world.riders import FIRST_SLOT, LAST_SLOT, Riders, apportioned, draw_riders, picked


@pytest.fixture(scope="module")
def city() -> City:
    return san_francisco()


@pytest.fixture(scope="module")
def riders(city: City) -> Riders:
    return draw_riders(city)


@pytest.fixture(scope="module")
def crowd(city: City) -> Riders:
    return draw_riders(city, seed=5, count=20_000, held_out=0)


def test_default_population(riders: Riders) -> None:
    """300 riders, 240 to train on and 60 held out, disjoint, types in exact shares in both."""
    train, held_out = riders.members("train"), riders.members("held_out")
    assert (len(train), len(held_out), riders.count) == (240, 60, 300)
    assert not set(train.tolist()) & set(held_out.tolist())
    assert np.bincount(riders.kind[train]).tolist() == [104, 64, 48, 24]
    assert np.bincount(riders.kind[held_out]).tolist() == [26, 16, 12, 6]
    assert len(riders.members("all")) == 300


def test_ceiling_of_the_profile_is_55_percent() -> None:
    """The best possible guess from the profile is right in 55 %, and the types keep the prior's shares."""
    assert profile_ceiling() == pytest.approx(0.55, abs=0.001)
    shares = (profile_shares()[..., None] * type_given_profile()).sum(axis=(0, 1, 2))
    assert shares == pytest.approx(PRIOR, abs=1e-9)
    assert profile_shares().sum() == pytest.approx(1)


def test_ceiling_is_met_in_a_large_population(crowd: Riders) -> None:
    """Counted, not computed: the most likely type of each of 20,000 profiles is right in 55 +- 1 %."""
    guess = type_given_profile()[crowd.age, crowd.occupation, crowd.income].argmax(axis=-1)
    assert (guess == crowd.kind).mean() == pytest.approx(0.55, abs=0.01)


def test_small_populations_keep_the_ceiling(city: City) -> None:
    """Among 60 held-out riders the profile is worth what it is worth in the model, for any seed."""
    for seed in range(5):
        riders = draw_riders(city, seed=seed)
        guess = type_given_profile()[riders.age, riders.occupation, riders.income].argmax(axis=-1)
        for split in ("train", "held_out"):
            members = riders.members(split)
            assert (guess == riders.kind)[members].mean() == pytest.approx(0.55, abs=0.045)


def test_profiles_have_their_shares_whatever_the_order_of_drawing(crowd: Riders) -> None:
    """Types first, profiles given the type: the profiles' own shares come out all the same."""
    counts = np.zeros(profile_shares().shape)
    np.add.at(counts, (crowd.age, crowd.occupation, crowd.income), 1.0 / crowd.count)
    assert counts == pytest.approx(profile_shares(), abs=0.01)


def test_profile_features_are_three_one_hots(riders: Riders) -> None:
    """13 columns, float32, three ones in every row, and they tell the profile."""
    features = riders.profile_features()
    assert features.shape == (300, 13)
    assert features.dtype == np.float32
    assert (features.sum(axis=1) == 3).all()
    assert (features[:, :4].argmax(axis=1) == riders.age).all()
    assert (features[:, 4:10].argmax(axis=1) == riders.occupation).all()
    assert (features[:, 10:].argmax(axis=1) == riders.income).all()


def test_diaries_go_there_and_back(riders: Riders) -> None:
    """Outings start at home and return to it, later, for the same purpose; nobody rides to where he is."""
    out, back = slice(0, None, 2), slice(1, None, 2)
    home = riders.home[:, None]
    assert (riders.trip_pickup[:, out] == home).all()
    assert (riders.trip_dropoff[:, back] == home).all()
    assert (riders.trip_dropoff[:, out] == riders.trip_pickup[:, back]).all()
    assert (riders.trip_pickup != riders.trip_dropoff).all()
    assert (riders.trip_purpose[:, out] == riders.trip_purpose[:, back]).all()
    assert riders.trip_slot.min() >= FIRST_SLOT
    assert riders.trip_slot.max() <= LAST_SLOT


def test_work_is_always_at_the_same_place(riders: Riders) -> None:
    """All of a rider's trips to work end in one zone."""
    work = PURPOSES.index("work")
    several = 0
    for rider in range(riders.count):
        outings = riders.trip_dropoff[rider, ::2][riders.trip_purpose[rider, ::2] == work]
        several += len(outings) > 1
        assert len(set(outings.tolist())) <= 1
    assert several > 50


def test_purposes_come_in_their_mix(crowd: Riders) -> None:
    """Over all outings the purposes have the shares that the answers' table averages to 0 over."""
    occupations = AGE_SHARE @ OCCUPATION_GIVEN_AGE
    assert occupations @ purpose_given_occupation() == pytest.approx(PURPOSE_MIX, abs=1e-9)
    counted = np.bincount(crowd.trip_purpose.ravel(), minlength=5) / crowd.trip_purpose.size
    assert counted == pytest.approx(PURPOSE_MIX, abs=0.01)
    students = crowd.occupation == OCCUPATIONS.index("student")
    school = PURPOSES.index("school")
    assert (crowd.trip_purpose[students] == school).mean() > 3 * (crowd.trip_purpose == school).mean()


def test_effects_are_normal(crowd: Riders) -> None:
    """Mean 0, standard deviation 0.4, independent of the type."""
    assert crowd.effect.mean() == pytest.approx(0, abs=0.01)
    assert crowd.effect.std() == pytest.approx(0.4, abs=0.01)
    assert crowd.effect[crowd.kind == Kind.BOTH].mean() == pytest.approx(0, abs=0.03)


def test_direct_times_are_the_matrix(city: City, riders: Riders) -> None:
    """trip_direct_s is the travel time of each trip."""
    assert (riders.trip_direct_s == city.travel_s[riders.trip_pickup, riders.trip_dropoff]).all()


def test_same_seed_same_riders(city: City, riders: Riders) -> None:
    """All arrays are equal for the same seed and not for another."""
    again, other = draw_riders(city), draw_riders(city, seed=1)
    assert all((getattr(riders, name) == value).all() for name, value in vars(again).items())
    assert (other.home != riders.home).any()
    assert (other.kind != riders.kind).any()


def test_another_held_out_mix_leaves_the_training_riders(city: City, riders: Riders) -> None:
    """The shift test changes the held-out riders' types only."""
    shifted = draw_riders(city, held_out_mix=(0, 0, 1, 1))
    for name, value in vars(riders).items():
        assert (getattr(shifted, name)[:240] == value[:240]).all()
    assert np.bincount(shifted.kind[240:], minlength=4).tolist() == [0, 0, 30, 30]


@pytest.mark.parametrize("count", [0, 1, 7, 30, 299])
def test_apportioned_adds_up(count: int) -> None:
    """Whole numbers, less than 1 from their share, with the right sum."""
    out = apportioned(PRIOR, count)
    assert out.sum() == count
    assert (np.abs(out - PRIOR * count) < 1).all()


def test_picked_follows_the_weights() -> None:
    """Thresholds by hand: weights 1, 0, 3 split the unit interval at 0.25, and weight 0 is never picked."""
    weights = np.tile([1.0, 0.0, 3.0], (4, 1))
    assert picked(np.array([0.0, 0.2499, 0.25, 0.999999]), weights).tolist() == [0, 0, 2, 2]


def test_refuses_impossible_populations(city: City) -> None:
    """More held out than there are, nobody at all, a mix that is none, a split that is none."""
    with pytest.raises(ValueError, match="got 61 of 60"):
        draw_riders(city, count=60, held_out=61)
    with pytest.raises(ValueError, match="at least 1 rider"):
        draw_riders(city, count=0, held_out=0)
    for mix in ((1, 2, 3), (0, 0, 0, 0), (1, -1, 1, 1), (1, float("nan"), 1, 1)):
        with pytest.raises(ValueError, match="mix of 4 weights"):
            draw_riders(city, held_out_mix=mix)
    with pytest.raises(ValueError, match="one of train, held_out, all, got 'test'"):
        draw_riders(city, count=10, held_out=2).members("test")
