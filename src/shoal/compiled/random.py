"""Randomness inside compiled environments: a counter-based generator in 64-bit integer arithmetic.

A draw is a hash of (key, counter), so it has the same bits on a CPU thread, on a GPU and in plain Python,
and neither the number of environments nor of threads can change it. The hash is two rounds of SplitMix64's
finaliser (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators") with the key added
before each: with one round, two keys that differ by a multiple of the increment would give the same
numbers, shifted.

The functions below are plain scalar Python, called by name from an environment's `reset` and `step`:

>>> stream = np.zeros(1, RNG).view(np.recarray)[0]
>>> with np.errstate(over="ignore"):  # in plain Python NumPy warns of the overflow that is meant
...     begin(stream, np.uint64(7), np.uint64(0))
...     numbers = uniform(stream), below(stream, 6)
>>> bool(0.0 <= numbers[0] < 1.0), bool(0 <= numbers[1] < 6), int(stream.counter)
(True, True, 2)

Every constant is an np.uint64: Numba turns uint64 mixed with a plain int (int64) into float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

RNG = np.dtype([("key", "u8"), ("counter", "u8")], align=True)  # one environment's generator

_ONE = np.uint64(1)
_11, _27, _30, _31, _32 = np.uint64(11), np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio, odd
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_UNIT = 2.0**-53


def mix(word: Any) -> Any:
    """SplitMix64's finaliser: a bijection of uint64 in which every input bit moves every output bit."""
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


def begin(rng: Any, env_key: Any, episode: Any) -> None:
    """Start the stream of one episode of one environment; both arguments are uint64."""
    rng.key = mix(mix(env_key) + episode * _INCREMENT)
    rng.counter = np.uint64(0)


def bits(rng: Any) -> Any:
    """The next 64 random bits, as uint64."""
    word = mix(mix(rng.key + rng.counter * _INCREMENT) + rng.key)
    rng.counter = rng.counter + _ONE
    return word


def uniform(rng: Any) -> Any:
    """A float64 in [0, 1), a multiple of 2**-53."""
    return np.int64(bits(rng) >> _11) * _UNIT


def below(rng: Any, n: Any) -> Any:
    """An integer in [0, n), for 0 < n < 2**32. No number is favoured by more than n / 2**32."""
    return np.int64(((bits(rng) >> _32) * np.uint64(n)) >> _32)


def chance(rng: Any, probability: Any) -> Any:
    """True with the given probability: never at 0.0, always at 1.0. Always draws once."""
    return uniform(rng) < probability
