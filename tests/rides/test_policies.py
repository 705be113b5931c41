"""Baselines: hand-worked choices, common random numbers, and that no choice depends on what is beside a day."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.core.seeds import Stream
from shoal.rides.env import RidesVectorEnv
from shoal.rides.observe import OFFER_COLUMN, Menu
from shoal.rides.options import RidesOptions
from shoal.rides.policies.simple import POLICIES, best_fixed_offer, best_or_none, most_minutes, would_accept
from shoal.rides.routing.problem import NO_CHANGE, OFFER_LATER_MIN

SMALL: dict[str, Any] = {
    "customers": 6,
    "iterations": 3,
    "knowledge": "true",
    "prices": "insertion",
    "start": "lookahead",
}
QUICK: dict[str, tuple[Any, ...]] = {"rollout": (2,), "hindsight": (50,), "fixed": (0,)}


def make(num_envs: int = 4, *, threads: int = 1, **options: Any) -> RidesVectorEnv:
    return RidesVectorEnv(num_envs, RidesOptions(**{**SMALL, **options}), threads=threads, stream=Stream.EVALUATE)


def play(env: RidesVectorEnv, name: str, *arguments: Any, seed: int = 3) -> tuple[Any, Any, Any]:
    """(offers int64[C, N], rewards float[C, N], figures of the days)."""
    policy = POLICIES[name](*arguments)
    obs, _ = env.reset(seed=seed)
    offers, rewards, infos = [], [], {}
    for _ in range(env.options.customers):
        offers.append(policy(env, obs))
        obs, reward, _, _, infos = env.step(offers[-1])
        rewards.append(reward)
    return np.array(offers), np.array(rewards), infos["final_info"]


def menu_env(price_min: Any, p_accept: Any, **options: Any) -> Any:
    """An environment of which a policy sees one request: its menu."""
    menu = Menu(np.array([price_min], float), np.ones((1, 16), bool), np.array([p_accept], float))
    return SimpleNamespace(menu=menu, options=RidesOptions(**options), num_envs=1)


def test_none_saves_and_costs_exactly_nothing():
    """A/A: the day without offers against itself is 0 at every step."""
    env = make(8, iterations=10)
    offers, rewards, day = play(env, "none")
    assert (offers == NO_CHANGE).all()
    assert (rewards == 0).all()
    assert (day["cost_s"] == day["base_cost_s"]).all()
    assert (day["agreed_min"] == 0).all()
    assert (day["refused"] == 0).all()


def test_everything_asks_for_30_minutes_both_ways():
    """Ask everyone for everything is offer 3; who accepts has agreed to 60 minutes."""
    env = make(16)
    offers, _, day = play(env, "everything")
    assert (offers == 3).all()
    assert (day["agreed_min"] == 60 * (6 - day["refused"])).all()
    assert day["agreed_min"].sum() > 0


def test_random_is_uniform_over_offers():
    """All 16 offers come, none far from a sixteenth of the time, and another seed gives others."""
    env = make(64, customers=20, iterations=0, start="none")
    offers, _, _ = play(env, "random")
    share = np.bincount(offers.ravel(), minlength=16) / offers.size
    assert abs(share - 1 / 16).max() < 0.03  # 1,280 draws: the standard deviation is 0.007
    assert 0.03 < (offers == play(env, "random", 1)[0]).mean() < 0.1


def test_most_minutes_prefers_minutes_then_probability():
    """20 minutes at 0.7 beat 10 at 0.99; of two offers of 20 minutes the likelier wins; without any, no change."""
    p = np.zeros((3, 16))
    p[:, NO_CHANGE] = 1.0
    p[0, [4, 13]] = 0.7, 0.99  # 20 earlier; 10 later
    p[1, [4, 14]] = 0.8, 0.9  # 20 earlier; 20 later
    p[2, 0] = 0.69
    assert most_minutes(p, 0.7).tolist() == [4, 14, NO_CHANGE]


def test_max_expected_multiplies():
    """60 minutes at 0.3 are less than 30 at 0.7."""
    p = np.zeros(16)
    p[[NO_CHANGE, 3, 15]] = 1.0, 0.3, 0.7
    assert POLICIES["max-expected"]()(menu_env(np.zeros(16), p), {}).tolist() == [15]


def test_myopic_weighs_saving_probability_and_burden():
    """20 earlier: 0.5 x (8 - 0.05 x 20) - 0.5 = 3; 10 later: 0.9 x (4 - 0.5) - 0.1 = 3.05: the second by a hair."""
    price, p = np.full(16, 30.0), np.full(16, 0.01)
    p[NO_CHANGE] = 1.0
    price[[4, 13]], p[[4, 13]] = (22.0, 26.0), (0.5, 0.9)
    assert POLICIES["myopic"]()(menu_env(price, p), {}).tolist() == [13]
    assert POLICIES["myopic"]()(menu_env(price, p, burden="own", patience=0.05, refusal=0.8), {}).tolist() == [4]
    assert POLICIES["myopic"]()(menu_env(np.full(16, 30.0), p), {}).tolist() == [NO_CHANGE]


def test_myopic_takes_other_prices():
    """Asked for pooled prices, it does in an environment that shows insertion prices as in one that shows pooled."""
    shown, asked = make(8, prices="pooled"), make(8)
    for name in ("pooled", "insertion"):
        seen, seen_asked = shown.reset(seed=3)[0], asked.reset(seed=3)[0]
        for _ in range(4):
            offers = POLICIES["myopic"](name)(shown, seen)
            assert np.array_equal(POLICIES["myopic"](name)(asked, seen_asked), offers)
            assert np.array_equal(POLICIES["myopic"]()(shown if name == "pooled" else asked, {}), offers)
            seen, seen_asked = shown.step(offers)[0], asked.step(offers)[0]


def test_lookahead_reads_its_column():
    """The largest entry of the column above no change is offered; without the network the error says what to do."""
    env = make(2)
    obs, _ = env.reset(seed=1)
    column = obs["offers"][:, :, OFFER_COLUMN["lookahead"]]
    column[:] = 0.0
    column[0, 7], column[1] = 1.0, -1.0
    column[1, NO_CHANGE] = 0.0
    assert POLICIES["lookahead"]()(env, obs).tolist() == [7, NO_CHANGE]
    with pytest.raises(ValueError, match="start='lookahead'"):
        play(make(1, start="none"), "lookahead")


def test_informed_is_never_refused_and_answers_belong_to_the_day():
    """It offers only what the day's mood accepts, which is what the bookings then hear, whoever asks."""
    env = make(16)
    env.reset(seed=2)
    accepts = would_accept(env)
    for offer in range(16):
        assert np.array_equal(env.bookings.answers(np.full(16, offer)), accepts[:, offer])
    _, _, day = play(env, "informed")
    assert (day["refused"] == 0).all()
    assert day["agreed_min"].sum() > 0


def test_fixed_finds_what_all_riders_accept():
    """Where all riders are early-only and answer by the rule, the best fixed offer asks for nothing later."""
    options = RidesOptions(customers=10, type_mix=(1.0, 0.0, 0.0, 0.0), acceptance="rule", burden="easy")
    best = best_fixed_offer(options, days=12, iterations=3)
    assert best != NO_CHANGE
    assert OFFER_LATER_MIN[best] == 0
    env = make(2, customers=10, type_mix=(1.0, 0.0, 0.0, 0.0), acceptance="rule")
    assert (play(env, "fixed", best)[0] == best).all()


def test_ties_go_to_no_change():
    """An offer has to be strictly better than none."""
    score = np.zeros((2, 16))
    score[1, 5] = 1e-9
    assert best_or_none(score).tolist() == [NO_CHANGE, 5]


@pytest.mark.parametrize("name", POLICIES)
def test_a_day_is_played_alike_whatever_is_beside_it(name):
    """The same days in a batch of 3 on 2 threads and of 2 on one get the same offers, all legal."""
    arguments = QUICK.get(name, ())
    many, _, _ = play(make(3, threads=2), name, *arguments)
    few, _, _ = play(make(2), name, *arguments)
    assert many.dtype == np.int64
    assert many.min() >= 0
    assert many.max() < 16
    assert np.array_equal(many[:, :2], few)


@pytest.mark.parametrize(
    ("name", "argument"),
    [("max-change", 0.0), ("fixed", 16), ("random", -1), ("myopic", "market"), ("rollout", 0), ("hindsight", -1)],
)
def test_refuses_bad_arguments(name, argument):
    """Every policy says what it expected."""
    with pytest.raises(ValueError, match="expected"):
        POLICIES[name](argument)
