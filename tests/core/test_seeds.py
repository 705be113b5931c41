"""Seeds: reproducible, independent of the company, disjoint between runs and purposes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.seeds import Stream, env_keys, episode_seed, sequence


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(0, 5000), st.integers(0, 10**6), st.sampled_from(Stream))
def test_episode_seed_is_a_function_of_its_arguments(run: int, env: int, episode: int, stream: Stream) -> None:
    """The same arguments give the same seed, which fits a C int and whose bit 30 says evaluation."""
    seed = episode_seed(run, env, episode, stream)
    assert seed == episode_seed(run, env, episode, stream)
    assert seed == int(np.int32(seed))
    assert (seed >> 30) == (stream == Stream.EVALUATE)
    old = episode_seed(run, env, episode, stream, scheme=1)
    assert (old >> 31) == (stream == Stream.EVALUATE)


def test_episode_seed_by_hand() -> None:
    """Episode 70 is word 6 of the second block of 64 words, whatever caches it."""
    words = np.random.SeedSequence(5, spawn_key=(0, 3, 1)).generate_state(64, np.uint32)
    assert episode_seed(5, 3, 70) == int(words[6]) & 0x3FFFFFFF


def test_neighbouring_runs_share_no_seeds() -> None:
    """Five runs of 64 environments have 320 different first seeds; with seed + i they would share four fifths."""
    seeds = {episode_seed(run, env, 0) for run in range(5) for env in range(64)}
    assert len(seeds) == 320


def test_training_and_evaluation_are_disjoint() -> None:
    """No evaluation episode is a training episode."""
    train = {episode_seed(0, env, k) for env in range(8) for k in range(100)}
    held_out = {episode_seed(0, env, k, Stream.EVALUATE) for env in range(8) for k in range(100)}
    assert not train & held_out


def test_keys_do_not_depend_on_the_number_of_environments() -> None:
    """Key i is the same in a batch of 3 and of 10."""
    assert np.array_equal(env_keys(1, 3), env_keys(1, 10)[:3])
    assert not np.array_equal(env_keys(1, 3), env_keys(1, 3, Stream.EVALUATE))


def test_negative_seed_is_refused() -> None:
    """A negative seed says what a seed is."""
    with pytest.raises(ValueError, match="non-negative"):
        sequence(-1, Stream.TRAIN)
