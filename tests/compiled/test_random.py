"""The generator of compiled environments: exact by definition, and random by every measure taken here."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.compiled.random import RNG, begin, below, bits, chance, mix, uniform

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
WORDS = st.integers(0, 2**64 - 1)


def stream(key: int = 1, episode: int = 0) -> np.record:
    """A generator as environments get it, in plain Python."""
    rng = np.zeros(1, RNG).view(np.recarray)[0]
    begin(rng, np.uint64(key), np.uint64(episode))
    return rng


def many(n: int, key: int = 1, episode: int = 0) -> SimpleNamespace:
    """The next n states of one generator as arrays, which plain arithmetic takes as well."""
    return SimpleNamespace(key=stream(key, episode).key, counter=np.arange(n, dtype=np.uint64))


def mix_of_integers(word: int) -> int:
    """SplitMix64's finaliser in unbounded integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


@given(WORDS)
def test_mix_is_splitmix64(word):
    """The finaliser equals its definition."""
    assert int(mix(np.uint64(word))) == mix_of_integers(word)


@given(WORDS, st.integers(0, 2**32), st.integers(0, 50))
def test_bits_are_what_the_module_says(key, episode, draws):
    """A draw is mix(mix(key + counter * increment) + key)."""
    increment = 0x9E3779B97F4A7C15
    rng = stream(key, episode)
    episode_key = mix_of_integers((mix_of_integers(key) + episode * increment) % 2**64)
    for counter in range(draws):
        inner = mix_of_integers((episode_key + counter * increment) % 2**64)
        assert int(bits(rng)) == mix_of_integers((inner + episode_key) % 2**64)
    assert rng.counter == draws


def test_known_numbers():
    """The first draws of one stream, so that no edit changes everybody's episodes unnoticed."""
    rng = stream(7, 3)
    assert [int(bits(rng)) for _ in range(2)] == [8095618997766296175, 13431971535942340160]


def test_uniform_is_uniform():
    """Mean, variance and 256 bins of a million numbers."""
    numbers = uniform(many(1_000_000))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    assert abs(numbers.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 1e6)
    assert abs(numbers.var() - 1 / 12) < 0.0005
    counts = np.bincount((numbers * 256).astype(int), minlength=256)
    chi_squared = ((counts - 1e6 / 256) ** 2 / (1e6 / 256)).sum()
    assert chi_squared < 255 + 5 * np.sqrt(2 * 255)


def test_every_bit_is_fair():
    """Each of the 64 bits is one half of the time, alone and with its neighbour draw."""
    words = bits(many(200_000))
    ones = np.array([((words >> np.uint64(k)) & np.uint64(1)).mean() for k in range(64)])
    assert np.abs(ones - 0.5).max() < 5 * 0.5 / np.sqrt(200_000)
    changed = words[1:] ^ words[:-1]
    flips = np.array([((changed >> np.uint64(k)) & np.uint64(1)).mean() for k in range(64)])
    assert np.abs(flips - 0.5).max() < 5 * 0.5 / np.sqrt(200_000)


@pytest.mark.parametrize(("key", "episode"), [(2, 0), (1, 1), (1 + 0x9E3779B97F4A7C15, 0), (1 + 2**63, 0)])
def test_streams_are_unrelated(key, episode):
    """Neighbouring keys and episodes, keys an increment apart, the evaluation twin: nothing in common."""
    one, other = bits(many(100_000)), bits(many(100_000, key % 2**64, episode))
    assert not np.intersect1d(one, other).size
    correlation = np.corrcoef(one.astype(float), other.astype(float))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(100_000)


@given(st.integers(1, 2**32 - 1), WORDS)
def test_below_stays_below(n, key):
    """An integer in [0, n), for any n."""
    assert 0 <= below(stream(key), n) < n


def test_below_is_even():
    """Seven faces of a die come up equally often."""
    counts = np.bincount(np.asarray(below(many(700_000), 7)), minlength=7)
    assert counts.size == 7
    assert np.abs(counts - 100_000).max() < 5 * np.sqrt(100_000)


def test_chance_at_its_ends():
    """Never at 0, always at 1, three in ten at 0.3, one draw each."""
    assert not chance(many(1000), 0.0).any()
    assert chance(many(1000), 1.0).all()
    assert abs(chance(many(100_000), 0.3).mean() - 0.3) < 0.01
    rng = stream()
    chance(rng, 0.0)
    assert rng.counter == 1
