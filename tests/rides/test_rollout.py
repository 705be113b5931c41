"""Rollout: futures that leak nothing, values that make sense, and a policy that beats the myopic one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.core.seeds import Stream
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions
from shoal.rides.policies import futures as module
from shoal.rides.policies.futures import future_days, future_values, rollout, rollout_scores
from shoal.rides.policies.simple import POLICIES
from shoal.rides.routing.problem import NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN

SMALL: dict[str, Any] = {"customers": 8, "iterations": 3, "knowledge": "true", "prices": "insertion", "start": "none"}


def make(num_envs: int, steps: int = 0, **options: Any) -> RidesVectorEnv:
    """An environment some steps into its days, with no offers made so far."""
    env = RidesVectorEnv(num_envs, RidesOptions(**{**SMALL, **options}), stream=Stream.EVALUATE)
    env.reset(seed=4)
    for _ in range(steps):
        env.step(np.full(num_envs, NO_CHANGE))
    return env


def net_min(env: RidesVectorEnv, policy: Any, seed: int = 0) -> Any:
    """Net gain of each day, float64[N]."""
    obs, _ = env.reset(seed=seed)
    infos: dict[str, Any] = {}
    for _ in range(env.options.customers):
        obs, _, _, _, infos = env.step(policy(env, obs))
    return infos["final_info"]["net_min"]


def test_a_wider_offer_is_never_worth_less():
    """No change is worth nothing, and more room never costs, since all offers compete on the same routes."""
    values = future_values(make(8, 3), 4, 1, 5)
    assert values.shape == (8, 4, 16)
    assert (values[..., NO_CHANGE] == 0).all()
    assert values.max() > 0
    for narrow in range(16):
        for wide in range(16):
            if (
                OFFER_EARLIER_MIN[wide] >= OFFER_EARLIER_MIN[narrow]
                and OFFER_LATER_MIN[wide] >= OFFER_LATER_MIN[narrow]
            ):
                assert (values[..., wide] >= values[..., narrow]).all()


def test_knows_nothing_of_the_rest_of_the_day():
    """With other requests, riders and moods to come, and another mood now, its scores stay the same to the bit."""
    env = make(4, 3)
    before = rollout_scores(env, 3)
    bookings = env.bookings
    rest = np.arange(4, 8)
    bookings.requests[:, rest] = bookings.requests[:, rest[::-1]]
    bookings.rider[:, rest], bookings.purpose[:, rest] = bookings.rider[:, :1], 0
    bookings.mood[:, 3:] = 1 - bookings.mood[:, 3:]
    assert np.array_equal(rollout_scores(env, 3), before)


def test_changes_nothing():
    """The days being booked are left as they were."""
    env = make(3, 2)
    before = env.bookings.state()
    rollout()(env, {})
    after = env.bookings.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_last_request_has_no_future():
    """Then every future is the day itself: a day of one request in an empty city gains nothing from any offer."""
    assert (future_values(make(6, customers=1), 3, 1, 5) == 0).all()


def test_scores_weigh_both_answers():
    """Score = P (trust x value - patience x minutes) - refusal (1 - P), worked out for 30 minutes earlier."""
    env = make(4, 3)
    value, p = future_values(env, 3, 1, 5).mean(1)[:, 0], env.menu.p_accept[:, 0]
    expected = p * (0.5 * value - 0.05 * 30) - (1 - p)
    assert np.allclose(rollout_scores(env, 3, 1, 5, trust=0.5)[:, 0], expected)


def test_chunks_do_not_matter(monkeypatch):
    """Planned in one batch or in many, the values are the same, also for days at different requests."""
    env = make(5, 2)
    env.reset(options={"reset_mask": np.array([True, False, False, True, False])})
    assert env.bookings.t.tolist() == [0, 2, 2, 0, 2]
    whole = future_values(env, 3, 1, 5)
    monkeypatch.setattr(module, "_MOST_ROWS", 7)
    assert np.array_equal(future_values(env, 3, 1, 5), whole)


def test_futures_are_days_of_training_riders_with_wider_windows():
    """Windows are those of the demand model, opened where a generous offer is accepted; most riders accept some."""
    options = RidesOptions(**SMALL)
    pool = future_days(options)
    assert pool.shape == (module.POOL_DAYS, 8)
    assert future_days(options) is pool
    wide = pool["pickup_close"] - pool["pickup_open"] > 1800
    assert 0.3 < wide.mean() < 0.9
    assert (pool["pickup_close"] - pool["pickup_open"]).max() <= 1800 + 3600


def test_beats_myopic_on_paired_days():
    """Short form of the bar: on 24 days, with fewer futures, its mean net gain is above that of the myopic policy."""
    env = RidesVectorEnv(24, RidesOptions(knowledge="true", prices="insertion", start="none"), stream=Stream.EVALUATE)
    assert net_min(env, rollout(6)).mean() > net_min(env, POLICIES["myopic"]()).mean() + 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_at_least_lookahead_on_200_paired_days():
    """The bar: on 200 paired days, P learned from histories, rollout's mean net gain is at least lookahead's."""
    env = RidesVectorEnv(200, RidesOptions(), stream=Stream.EVALUATE)
    rolled = net_min(env, rollout())
    for name in ("lookahead", "myopic", "max-change"):
        assert rolled.mean() >= net_min(env, POLICIES[name]()).mean()
