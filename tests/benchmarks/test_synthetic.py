"""The synthetic environment costs what it says."""

from __future__ import annotations

import statistics
import time

import numpy as np
import pytest

from benchmarks.harness.synthetic import Synthetic


def _step_us(env: Synthetic, steps: int) -> list[float]:
    found = []
    for _ in range(steps):
        began = time.thread_time()
        env.step(0)
        found.append(1e6 * (time.thread_time() - began))
    return found


@pytest.mark.parametrize("cost_us", [50, 500])
def test_a_step_burns_its_cpu_time(cost_us: int) -> None:
    """At least the cost, and no more than a few microseconds above it, whoever else is running."""
    env = Synthetic(cost_us)
    env.reset(seed=0)
    found = _step_us(env, 200)
    assert min(found) >= cost_us
    assert statistics.median(found) <= 1.05 * cost_us + 10


def test_observations_are_1212_floats_of_their_own() -> None:
    """A later step does not write into an earlier observation."""
    env = Synthetic(0)
    first, _ = env.reset(seed=0)
    second = env.step(0)[0]
    assert second.shape == (1212,)
    assert second.dtype == np.float32
    assert not np.shares_memory(first, second)
    assert second in env.observation_space


def test_exponential_durations_have_the_mean_asked_for_and_follow_the_seed() -> None:
    """Mean within 15 % of 200 us, spread as wide as the mean, the same for the same seed."""

    def durations(seed: int) -> list[float]:
        env = Synthetic(200, exponential=True)
        env.reset(seed=seed)
        return [next(env._durations) * 1e6 for _ in range(2000)]

    found = durations(1)
    assert statistics.fmean(found) == pytest.approx(200, rel=0.15)
    assert statistics.stdev(found) == pytest.approx(200, rel=0.2)
    assert found == durations(1)
    assert found != durations(2)


def test_a_negative_cost_is_refused() -> None:
    """With the value that came."""
    with pytest.raises(ValueError, match="-1"):
        Synthetic(-1)
