"""What looks ahead in an observation, and how networks are taught it: branches, lessons, fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from shoal.core.seeds import Stream, sequence
from shoal.learn.encoders import Features
from shoal.rides.contest.play import Entrant, contest
from shoal.rides.env import RidesVectorEnv
from shoal.rides.fit.lookahead import collect_branches, fit_lookahead
from shoal.rides.fit.lookahead import joined as joined_branches
from shoal.rides.fit.teaching import SHOWN, collect_lessons, joined, teach
from shoal.rides.observe import CONTEXT, MINUTES, OFFER_COLUMN
from shoal.rides.options import RidesOptions
from shoal.rides.policies.futures import TRUST, future_values
from shoal.rides.policies.network import RidesNetwork
from shoal.rides.policies.simple import POLICIES
from shoal.rides.routing.problem import NO_CHANGE
from shoal.rides.task import Rides
from shoal.tasks.presets import config_for

SMALL: dict[str, Any] = {"customers": 6, "iterations": 3, "knowledge": "true", "mask": "off", "start": "lookahead"}


def make(num_envs: int, **options: Any) -> RidesVectorEnv:
    return RidesVectorEnv(num_envs, RidesOptions(**{**SMALL, **options}))


def test_an_observation_shows_its_futures():
    """Their mean in minutes, by how many; without futures both are 0, and nothing else differs."""
    shown, plain = make(4, futures=3), make(4, futures=0)
    for step in range(3):
        seen, bare = (env.reset(seed=1)[0] if step == 0 else env.step(np.full(4, 3))[0] for env in (shown, plain))
    future = OFFER_COLUMN["future"]
    assert np.allclose(seen["offers"][..., future], future_values(shown, 3).mean(1) / MINUTES, rtol=1e-6)
    assert np.allclose(seen["context"][:, CONTEXT.index("futures")], 3 / 11)
    assert seen["offers"][..., future].any()
    seen["offers"][..., future], seen["context"][:, CONTEXT.index("futures")] = 0, 0
    assert all(np.array_equal(seen[name], bare[name]) for name in seen)


def test_futures_are_numbered():
    """The first of many are those of a few; others are others; a day that is over has none."""
    env = make(3)
    env.reset(seed=2)
    many = future_values(env, 5)
    assert np.array_equal(many[:, :2], future_values(env, 2))
    assert np.array_equal(many[:, 3:], future_values(env, 2, first=3))
    env.bookings.t[1] = env.options.customers
    over = future_values(env, 2)
    assert not over[1].any()
    assert np.array_equal(over[[0, 2]], many[[0, 2], :2])


def test_lessons_hold_what_will_be_seen_and_what_is_true():
    """Every request of every day; means of the first so many futures; targets from futures of their own."""
    env = make(2, futures=0)
    lessons = collect_lessons(env, seed=1, batch=0)
    assert lessons.target_min.shape == (12, 16)
    assert lessons.quick_min.shape == (12, len(SHOWN), 16)
    assert not lessons.quick_min[:, 0].any()
    assert not lessons.target_min[:, NO_CHANGE].any()
    assert lessons.day.tolist() == [0, 1] * 6
    again, other = (collect_lessons(env, seed=1, batch=batch) for batch in (0, 1))
    assert np.array_equal(lessons.target_min, again.target_min)
    assert not np.array_equal(lessons.target_min, other.target_min)
    # The first request of the days, worked out anew.
    rng = np.random.default_rng(sequence(1, Stream.TRAIN, 0xF17, 0))
    rng.choice(4, 2)
    env.reset(seed=int(rng.integers(2**31)))
    ahead = TRUST * future_values(env, 6, 2, 30, first=1000).mean(1)
    assert ahead.max() > 0
    assert np.allclose(lessons.target_min[:2], ahead, atol=0.02)
    assert np.allclose(lessons.quick_min[:2, 2], future_values(env, 8).mean(1), atol=0.02)
    with pytest.raises(ValueError, match="futures=0, got start='lookahead' and futures=3"):
        collect_lessons(make(2, futures=3), seed=1, batch=0)


def test_teaching_lowers_the_error_and_more_futures_lower_it_further():
    """On states of days that it was not taught on."""
    env = make(48, futures=0)
    lessons = joined([collect_lessons(env, seed=5, batch=batch) for batch in range(4)])

    def scores(steps: int) -> dict[str, float]:
        torch.manual_seed(0)
        network = RidesNetwork(env.single_observation_space, width=32, start="lookahead", temperature=0.15)
        return teach(network, lessons, steps=steps, size=128)

    before, after = scores(1), scores(150)
    assert after["held_out_r2_32_futures"] > before["held_out_r2_32_futures"] + 0.02
    assert after["held_out_r2_32_futures"] > after["held_out_r2_0_futures"]


def test_taught_is_what_training_starts_from():
    """The policy by that name makes the offers of a fresh network of `shoal train rides`, soft mask included."""
    env = make(16, start="taught", mask="soft", futures=2, customers=4)
    env.exploring = False
    spaces = env.single_observation_space, env.single_action_space
    fresh = Rides().network(env.options, spaces, config_for("rides").ppo)
    obs, _ = env.reset(seed=1)
    for _ in range(4):
        leaves = [torch.from_numpy(obs[path[0]]) for path, _, _ in fresh.layout.leaves]
        with torch.inference_mode():  # as rows of features, which is how training hands them over
            wanted = fresh.policy(Features(spaces[0]).encode(leaves)).argmax(1).numpy()
        assert np.array_equal(POLICIES["taught"]()(env, obs), wanted)
        obs, *_ = env.step(wanted)


def test_a_shift_changes_the_world_and_not_what_is_believed_of_it():
    """Futures come from the world before the shift, with as many customers as there are now."""
    options, seen = RidesOptions(**{**SMALL, "futures": 2}), []

    def spy(env: RidesVectorEnv, obs: dict[str, Any]) -> Any:
        seen.append((env.options.acceptance, env.believed.acceptance, env.believed.customers))
        return np.full(env.num_envs, NO_CHANGE)

    shifted = replace(options, acceptance="rule", customers=5)
    contest({"spy": Entrant(spy)}, shifted, days=2, iterations=1, believed=options)
    assert set(seen) == {("rule", "logit", 5)}


def test_branches_teach_a_lookahead():
    """Gains are of the tried offers against none; a fit on a few days beats knowing nothing."""
    env = make(48, start="none", prices="insertion", futures=0)
    branches = joined_branches([collect_branches(env, seed=1, batch=batch, polish=10) for batch in range(8)])
    assert branches.tried.shape == branches.gain_min.shape == (384, 3)
    assert (branches.tried != NO_CHANGE).all()
    lookahead, scores = fit_lookahead(branches, epochs=4)
    assert scores["days"] == 384
    assert scores["held_out_r2"] > scores["held_out_r2_before"]
    values = lookahead.values(branches.obs)
    assert values.shape == (384, 16)
    assert not values[:, NO_CHANGE].any()
