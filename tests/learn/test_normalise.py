"""Running statistics against NumPy on everything at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config import PPOConfig
from shoal.learn.normalise import RewardScale, RunningMoments
from shoal.learn.policy import CLIP, Agent


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.lists(st.integers(0, 20), min_size=1, max_size=6).filter(any),
    offset=st.sampled_from([0.0, 1e3, -1e5]),
)
def test_moments_equal_numpy_on_the_concatenated_data(seed, sizes, offset) -> None:
    """However the data is cut into batches, empty ones included."""
    data = np.random.default_rng(seed).normal(offset, 2.0, (sum(sizes), 3)).astype(np.float32)
    moments = RunningMoments((3,))
    for batch in np.split(data, np.cumsum(sizes)[:-1]):
        moments.update(batch)
    np.testing.assert_allclose(moments.mean, data.mean(0, np.float64), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(moments.var, data.var(0, np.float64), rtol=1e-6, atol=1e-9)
    assert moments.count == len(data)


def test_fixed_columns_are_left_alone() -> None:
    """What is given keeps mean 0 and its variance; the others are NumPy's."""
    data = np.random.default_rng(0).normal(3, 2, (50, 3))
    moments = RunningMoments((3,), fixed=np.array([np.nan, 0.25, np.nan]))
    moments.update(data[:20])
    moments.update(data[20:])
    np.testing.assert_allclose(moments.mean, [data[:, 0].mean(), 0, data[:, 2].mean()])
    np.testing.assert_allclose(moments.var, [data[:, 0].var(), 0.25, data[:, 2].var()])


def test_one_hot_features_have_a_scale_of_their_own() -> None:
    """It is the same however rarely a state is seen: as if all were as common, and no more than any other feature."""
    space = spaces.Dict(
        {"a": spaces.Discrete(25), "b": spaces.Box(-np.inf, np.inf, (2,)), "c": spaces.MultiDiscrete([4, 1000])}
    )
    agent = Agent(space, spaces.Discrete(2), PPOConfig(normalise_observations=True), init_seed=0)
    rows = [torch.arange(100) % 5, torch.randn(100, 2) * 5 + 1, torch.zeros((100, 2), dtype=torch.int64)]
    for _ in range(2):
        agent.learn_scale(rows, np.ones(100, np.bool_))
        features = agent.encode(rows)
        torch.testing.assert_close(features[:, :25], 5.0 * torch.eye(25)[rows[0]])
        torch.testing.assert_close(features[:, 25:27].std(0, correction=0), torch.ones(2))
        assert features[0, 27:].tolist() == [2.0, 0, 0, 0, CLIP, *[0.0] * 999]


def test_moments_come_back_from_their_state() -> None:
    """A copy goes on to the same bits, and does not share memory."""
    rng = np.random.default_rng(0)
    one, other = RunningMoments((2,)), RunningMoments((2,))
    one.update(rng.normal(size=(5, 2)))
    other.set_state(one.state())
    more = rng.normal(size=(7, 2))
    one.update(more)
    assert other.count == 5
    other.update(more)
    assert np.array_equal(one.mean, other.mean)
    assert np.array_equal(one.var, other.var)


def reference_returns(rewards: np.ndarray, ended: np.ndarray, gamma: float) -> np.ndarray:
    """Running discounted returns, one environment at a time."""
    seen = np.zeros(rewards.shape)
    for env in range(rewards.shape[1]):
        total = 0.0
        for t in range(len(rewards)):
            total = total * gamma + rewards[t, env]
            seen[t, env] = total
            total = 0.0 if ended[t, env] else total
    return seen


def test_rewards_are_scaled_by_the_spread_of_the_running_return() -> None:
    """Over two rollouts, with episode ends and with rows that do not count."""
    rng = np.random.default_rng(1)
    rewards = rng.normal(1, 3, (20, 3)).astype(np.float32)
    ended, valid = rng.random((20, 3)) < 0.2, rng.random((20, 3)) < 0.8
    scale = RewardScale(3, 0.9)
    first = scale.scale(rewards[:8], ended[:8], valid[:8])
    second = scale.scale(rewards[8:], ended[8:], valid[8:])
    seen = reference_returns(rewards, ended, 0.9)
    np.testing.assert_allclose(first, rewards[:8] / np.sqrt(seen[:8][valid[:8]].var() + 1e-8), rtol=1e-5)
    np.testing.assert_allclose(second, rewards[8:] / np.sqrt(seen[valid].var() + 1e-8), rtol=1e-5)
    assert first.dtype == np.float32


def test_an_episodes_end_cuts_the_running_return() -> None:
    """What came before an end is forgotten at once."""
    scale = RewardScale(1, 1.0)
    scale.scale(np.array([[5.0], [5.0]], np.float32), np.array([[False], [True]]), np.ones((2, 1), bool))
    assert scale.returns.tolist() == [0.0]
    scale.scale(np.array([[2.0]], np.float32), np.array([[False]]), np.ones((1, 1), bool))
    assert scale.returns.tolist() == [2.0]


@pytest.mark.parametrize("rewards", [[[3.0]], [[3.0, 3.0], [3.0, 3.0]], [[0.0, 0.0]]])
def test_rewards_without_spread_stay_as_they_are(rewards) -> None:
    """One sample or equal returns must not be blown up by the guard against a division by zero."""
    given_ = np.array(rewards, np.float32)
    ended = np.ones(given_.shape, bool)
    assert RewardScale(given_.shape[1], 0.9).scale(given_, ended, ended).tolist() == rewards


def test_reward_scale_comes_back_from_its_state() -> None:
    """The unfinished returns go with it, unless the environments are others."""
    rng = np.random.default_rng(2)
    rewards, ended, valid = rng.normal(size=(4, 2)), np.zeros((4, 2), bool), np.ones((4, 2), bool)
    one, same, other = (RewardScale(2, 0.9) for _ in range(3))
    one.scale(rewards, ended, valid)
    same.set_state(one.state())
    other.set_state(one.state(), same_envs=False)
    assert np.array_equal(same.returns, one.returns)
    assert other.returns.tolist() == [0.0, 0.0]
    assert np.array_equal(same.scale(rewards, ended, valid), one.scale(rewards, ended, valid))


@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1.0, 1e6])
def test_the_unit_of_a_reward_does_not_matter(unit) -> None:
    """Also of one that is tiny; the advantages are the same."""
    rewards = np.random.default_rng(0).normal(0, 1, (50, 4))
    none, every = np.zeros((50, 4), bool), np.ones((50, 4), bool)
    plain = RewardScale(4, 0.9).scale(rewards.astype(np.float32), none, every)
    scaled = RewardScale(4, 0.9).scale((rewards * unit).astype(np.float32), none, every)
    np.testing.assert_allclose(scaled, plain, rtol=1e-5)


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.1, 1e9])
def test_equal_returns_have_no_spread(value) -> None:
    """What rounding leaves of it is not divided by."""
    rewards = np.full((300, 4), value, np.float32)
    every = np.ones((300, 4), bool)
    assert np.array_equal(RewardScale(4, 0.9).scale(rewards, every, every), rewards)
