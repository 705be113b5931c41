"""Generalised advantage estimation against hand-computed numbers and a slow reference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.learn.gae import gae, next_values

F, T = False, True


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def estimate(rewards, values, terminated, truncated, finals, gamma, lam):
    """What the learner does: bootstrap values, then advantages."""
    after = next_values(values, terminated, truncated, finals)
    return gae(rewards, values[:-1], after, terminated | truncated, gamma, lam)


def reference(rewards, values, terminated, truncated, finals, gamma, lam):
    """One environment: A_t as the explicit sum of discounted deltas up to its episode's end."""
    steps = len(rewards)
    advantages = np.zeros(steps)
    for t in range(steps):
        weight = 1.0
        for k in range(t, steps):
            after = 0.0 if terminated[k] else finals[k] if truncated[k] else values[k + 1]
            advantages[t] += weight * (rewards[k] + gamma * after - values[k])
            weight *= gamma * lam
            if terminated[k] or truncated[k]:
                break
    return advantages


@pytest.mark.parametrize(
    ("terminated", "truncated", "final", "expected"),
    [
        ((F, F, F), (F, F, F), 9.0, (1.59375, 2.375, 2.5)),
        ((F, T, F), (F, F, F), 9.0, (1.25, 1.0, 2.5)),
        ((F, F, F), (F, T, F), 4.0, (1.75, 3.0, 2.5)),
        ((F, T, F), (F, T, F), 4.0, (1.25, 1.0, 2.5)),
        ((F, F, T), (F, F, F), 9.0, (1.53125, 2.125, 1.5)),
        ((F, F, F), (F, F, T), 0.0, (1.53125, 2.125, 1.5)),
    ],
    ids=["goes on", "terminated", "truncated", "both", "terminated last", "truncated last"],
)
def test_hand_computed(terminated, truncated, final, expected) -> None:
    """Rewards 1, 2, 3 and values 0.5, 1, 1.5, 2 at gamma = lambda = 0.5, worked out on paper."""
    flags = [np.array(flag)[:, None] for flag in (terminated, truncated)]
    finals = np.full((3, 1), final, np.float32)
    rewards, values = column(1, 2, 3)[:, None], column(0.5, 1, 1.5, 2)[:, None]
    advantages, targets = estimate(rewards, values, *flags, finals, 0.5, 0.5)
    assert advantages.ravel().tolist() == list(expected)
    assert targets.ravel().tolist() == [a + v for a, v in zip(expected, (0.5, 1, 1.5), strict=True)]


def test_interleaved_environments_do_not_mix() -> None:
    """Three environments side by side give what each gives alone."""
    rewards = np.stack([column(1, 2, 3)] * 3, 1)
    values = np.stack([column(0.5, 1, 1.5, 2)] * 3, 1)
    terminated, truncated = np.zeros((3, 3), bool), np.zeros((3, 3), bool)
    terminated[1, 1] = truncated[1, 2] = True
    finals = np.zeros((3, 3), np.float32)
    finals[1, 2] = 4.0
    advantages, _ = estimate(rewards, values, terminated, truncated, finals, 0.5, 0.5)
    assert advantages.T.tolist() == [[1.59375, 2.375, 2.5], [1.25, 1.0, 2.5], [1.75, 3.0, 2.5]]


def test_what_follows_an_end_cannot_reach_back() -> None:
    """NaN in everything after an episode's end leaves the episode's own advantages as they were."""
    rewards, values = np.ones((4, 1), np.float32), np.ones((5, 1), np.float32)
    terminated, truncated, finals = np.zeros((4, 1), bool), np.zeros((4, 1), bool), np.zeros((4, 1), np.float32)
    terminated[1] = True
    clean, _ = estimate(rewards, values, terminated, truncated, finals, 0.9, 0.9)
    rewards[2:], values[2:] = np.nan, np.nan
    dirty, _ = estimate(rewards, values, terminated, truncated, finals, 0.9, 0.9)
    assert np.array_equal(clean[:2], dirty[:2])
    assert np.isfinite(dirty[:2]).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 12),
    envs=st.integers(1, 5),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    ends=st.floats(0, 0.6),
)
def test_equals_the_slow_reference(seed, steps, envs, gamma, lam, ends) -> None:
    """Random rollouts with random ends agree with the explicit sum, environment by environment."""
    rng = np.random.default_rng(seed)
    rewards, finals = rng.normal(size=(2, steps, envs)).astype(np.float32)
    values = rng.normal(size=(steps + 1, envs)).astype(np.float32)
    terminated, truncated = rng.random((2, steps, envs)) < ends
    advantages, targets = estimate(rewards, values, terminated, truncated, finals, gamma, lam)
    assert advantages.dtype == targets.dtype == np.float32
    for env in range(envs):
        one = [array[:, env] for array in (rewards, values, terminated, truncated, finals)]
        np.testing.assert_allclose(advantages[:, env], reference(*one, gamma, lam), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(targets, advantages + values[:-1], rtol=1e-6)
