"""The batched environment: contract, telescoping, pairing, masks and exploration, state."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import shoal  # noqa: F401  (registers the ids)
from shoal.core.seeds import Stream
from shoal.rides.env import RidesVectorEnv
from shoal.rides.options import RidesOptions, RidesTask
from shoal.rides.routing.problem import NO_CHANGE, OFFER_MIN
from shoal.testing.contract import check_vector_env

SMALL = {"customers": 6, "iterations": 3, "start": "myopic", "vehicles": 2}


def make(num_envs: int = 4, *, threads: int = 1, stream: Stream = Stream.TRAIN, **options) -> RidesVectorEnv:
    return RidesVectorEnv(num_envs, RidesOptions(**{**SMALL, **options}), threads=threads, stream=stream)


def random_days(env: RidesVectorEnv, days: int = 2, seed: int = 3):
    """(obs, actions, rewards, terminated, infos) of each step under random offers; the last days' sums of rewards."""
    rng = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    for _ in range(days * env.options.customers):
        actions = rng.integers(0, 16, env.num_envs)
        after, rewards, terminated, _, infos = env.step(actions)
        yield obs, actions, rewards, terminated, infos
        obs = after


@pytest.mark.parametrize("prices", ["insertion", "pooled"])
def test_keeps_the_vector_contract(prices):
    """Spaces, seeding, autoreset and the single environment agree as Gymnasium asks."""
    reference = lambda: RidesTask(RidesOptions(**SMALL, prices=prices)).make_single()  # noqa: E731
    report = check_vector_env(lambda: make(3, prices=prices), reference=reference, steps=14)
    assert report.seen == {"terminated"}


def test_gymnasium_knows_the_id():
    """`gym.make` and `gym.make_vec` give the same first day."""
    one = gym.make("shoal/Rides-v0", **SMALL)
    many = gym.make_vec("shoal/Rides-v0", 2, vectorization_mode="vector_entry_point", **SMALL)
    first, _ = one.reset(seed=5)
    rows, _ = many.reset(seed=5)
    assert all(np.array_equal(first[name], rows[name][0]) for name in first)
    one.close()
    many.close()


@pytest.mark.parametrize("effect", ["widen", "shift"])
def test_rewards_telescope_to_the_last_second(effect):
    """A day's rewards add up to seconds saved less the burden, computed from the day's own books."""
    env = make(offer_effect=effect, burden="own", patience=0.0, refusal=0.0)
    total, changed = np.zeros(env.num_envs), False
    for _, _, rewards, terminated, infos in random_days(env):
        total += rewards.astype(np.float64)
        if terminated.all():
            day = infos["final_info"]
            saved_s = day["base_cost_s"] - day["cost_s"]
            assert np.array_equal(np.rint(total * 60), saved_s)
            changed |= bool(saved_s.any())
            total[:] = 0
    assert changed  # offers did change something


def test_burden_is_charged_for_minutes_and_refusals():
    """Net gain is minutes saved less patience per minute agreed to less one per refusal; rewards add up to it."""
    env = make(8)
    total = np.zeros(env.num_envs)
    for _, _, rewards, terminated, infos in random_days(env, days=1):
        total += rewards
        if terminated.all():
            day = infos["final_info"]
            saved = (day["base_cost_s"] - day["cost_s"]) / 60
            assert np.allclose(day["net_min"], saved - 0.05 * day["agreed_min"] - day["refused"])
            assert np.allclose(total, day["net_min"], atol=1e-3)
            assert day["refused"].sum() > 0
            assert day["agreed_min"].sum() > 0


def test_no_offers_is_the_paired_day_itself():
    """A/A: without offers both days are equal to the second, every reward exactly 0."""
    env = make(5)
    env.reset(seed=1)
    for _ in range(2 * env.options.customers):
        _, rewards, *_ = env.step(np.full(5, NO_CHANGE))
        assert not rewards.any()


def test_days_do_not_depend_on_batch_or_threads():
    """Environment i sees the same days and numbers among 4 environments on one thread and among 7 on two."""
    few, many = make(4), make(7, threads=2)
    first, second = few.reset(seed=9)[0], many.reset(seed=9)[0]
    for step in range(8):
        for name in first:
            assert np.array_equal(first[name], second[name][:4]), (step, name)
        offers = np.arange(7) * 2 % 16
        first, rewards, *_ = few.step(offers[:4])
        second, others, *_ = many.step(offers)
        assert np.array_equal(rewards, others[:4])
    few.close()
    many.close()


def test_evaluation_days_have_held_out_riders_only():
    """Training and evaluation share neither riders nor days."""
    train, held_out = make(6), make(6, stream=Stream.EVALUATE)
    for env, expected in ((train, False), (held_out, True)):
        env.reset(seed=0)
        assert (env.world.riders.held_out[env.bookings.rider] == expected).all()
    assert not np.isin(train.bookings.key, held_out.bookings.key).any()


def test_two_policies_meet_the_same_moods():
    """A rider's answer to an offer is the same whatever was offered to others before."""
    env = make(6)
    seen = []
    for first_offer in (NO_CHANGE, 3):
        env.reset(seed=4)
        env.step(np.full(6, first_offer))
        seen.append(env.bookings.answers(np.full(6, 0)))
    assert np.array_equal(*seen)


def test_soft_mask_is_log_p_unless_the_step_explores():
    """The bias is kappa log P where the mask holds and 0 where epsilon ignores it; no change is never held back."""
    env = make(200, kappa=2.0, epsilon=0.5)
    obs, _ = env.reset(seed=0)
    ignored = (obs["bias"] == 0).all(1)
    assert 0.35 < ignored.mean() < 0.65
    p = np.maximum(env.menu.p_accept, 1e-3)
    assert np.allclose(obs["bias"][~ignored], 2 * np.log(p[~ignored]), atol=1e-4)
    assert (obs["bias"][:, NO_CHANGE] == 0).all()
    env.after_rollout(1.0)  # epsilon has come down to 0
    obs, _ = env.reset(seed=0)
    assert not (obs["bias"] == 0).all(1).any()


def test_hard_mask_forbids_unlikely_offers():
    """Offers under the threshold are masked, no change is always allowed, and evaluation never explores."""
    env = make(50, mask="hard", threshold=0.6, epsilon=1.0, stream=Stream.EVALUATE)
    obs, _ = env.reset(seed=0)
    assert np.array_equal(obs["action_mask"] == 1, (env.menu.p_accept >= 0.6) | (np.arange(16) == NO_CHANGE))
    assert not obs["action_mask"].all()
    assert not obs["bias"].any()


def test_state_brings_back_the_same_steps():
    """An environment restored from `get_state` goes on to the same bits, the flexibility model included."""
    env, other = make(3, background=True), make(3, background=True)
    steps = random_days(env, days=40)
    for _ in range(30 * 6 + 2):
        next(steps)
    env.after_rollout(0.3)  # 30 days of 3 environments: the model has begun to train in the background
    saved = env.get_state()
    other.set_state(saved)
    for _ in range(3):
        assert env.after_rollout(0.4).get("flexibility/types") == other.after_rollout(0.4).get("flexibility/types")
        actions = np.array([0, 5, 15])
        one, two = env.step(actions), other.step(actions)
        assert np.array_equal(one[1], two[1])
        assert all(np.array_equal(one[0][name], two[0][name]) for name in one[0])


def test_a_turned_away_request_is_data():
    """One seat for everybody: requests that cannot be placed cost their penalty in both days and are counted."""
    env = make(20, vehicles=1, capacity=2, customers=10)
    env.reset(seed=0)
    for _ in range(10):
        _, rewards, _, _, infos = env.step(np.full(20, NO_CHANGE))
        assert np.isfinite(rewards).all()
    day = infos["final_info"]
    assert day["turned_away"].sum() > 0
    assert (day["cost_s"] == day["base_cost_s"]).all()
    assert env.after_rollout(0.0)["rides/failure_rate"] == pytest.approx(10.0 * day["turned_away"].mean())


def test_minutes_agreed_come_from_accepted_offers():
    """Each accepted offer's minutes are booked for its rider, refused ones count nothing."""
    env = make(4)
    env.reset(seed=2)
    accepted = env.bookings.answers(np.full(4, 3))
    env.step(np.full(4, 3))
    assert np.array_equal(env.bookings.agreed_min()[:, 0], np.where(accepted, OFFER_MIN[3], 0))
    assert np.array_equal(env.bookings.refused()[:, 0], ~accepted)


@pytest.mark.parametrize(
    ("actions", "words"),
    [(np.zeros(3, int), "int\\[4\\]"), (np.full(4, 16), "0 to 15"), (np.zeros(4), "int\\[4\\]")],
)
def test_wrong_actions_are_refused(actions, words):
    """A wrong shape, type or range names what was expected."""
    env = make(4)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=words):
        env.step(actions)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"vehicles": 0}, "vehicles"),
        ({"customers": 0}, "customers"),
        ({"customers": 301}, "customers"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"type_mix": (1, 2)}, "type-mix"),
        ({"start_temperature": 0.0}, "start-temperature"),
    ],
)
def test_impossible_options_are_refused_by_name(options, words):
    """Zero vehicles, more customers than riders and the like are errors before anything runs."""
    with pytest.raises(ValueError, match=words):
        make(2, **options)


def test_a_reset_of_nobody_is_refused_and_look_shows_the_same_again():
    """A mask without True means nothing on any backend; who only wants to see the requests again asks `look`."""
    env = make(2)
    observations, _ = env.reset(seed=1)
    with pytest.raises(ValueError, match=r"reset_mask: expected at least one True, got none; look\(\)"):
        env.reset(options={"reset_mask": np.zeros(2, bool)})
    again = env.look()
    assert all(np.array_equal(observations[name], again[name]) for name in observations)
    env.close()
