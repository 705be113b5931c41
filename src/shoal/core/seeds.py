"""Seeds: one stream per environment, one seed per episode, nothing shared between runs.

Everything descends from `numpy.random.SeedSequence(run_seed)` by spawn keys, never by `seed + i`:
with `seed + i`, five runs of 64 environments would share four fifths of their seeds. An episode's seed
depends on (run seed, stream, environment, episode) alone, so a trajectory is the same whatever the
backend, the number of workers or the number of environments beside it, and an interrupted episode can
be reached again by resetting with its seed and replaying its actions.

Training and evaluation streams are disjoint by construction: bit 30 of a seed says which it is. (Bit 31 is clear in
both, so that a simulator may take its seed as a C int.)
"""

from __future__ import annotations

import functools
from array import array
from enum import IntEnum

import numpy as np

SCHEME = 2  # written into checkpoints; 1: training had 31 bits, evaluation set bit 31
_EVALUATION_BIT, _OLD_EVALUATION_BIT = 1 << 30, 1 << 31
_BLOCK = 64  # episode seeds are drawn 64 at a time: one SeedSequence costs 16 us, a word of it 0.2 us


class Stream(IntEnum):
    """Which purpose a seed serves. The first spawn key below the run seed."""

    TRAIN = 0
    EVALUATE = 1
    INIT = 2  # network weights
    ACT = 3  # exploration noise
    SHUFFLE = 4  # minibatch order


def sequence(run_seed: int, stream: Stream, *key: int) -> np.random.SeedSequence:
    """The seed sequence of one purpose of one run."""
    if run_seed < 0:
        raise ValueError(f"a seed is a non-negative integer, got {run_seed}")
    return np.random.SeedSequence(run_seed, spawn_key=(int(stream), *key))


def word(run_seed: int, stream: Stream, *key: int) -> int:
    """A 63-bit seed for a generator of another library: torch's, say."""
    return int(sequence(run_seed, stream, *key).generate_state(1, np.uint64)[0] >> 1)


def generator(seed: int, *key: int) -> np.random.Generator:
    """Random numbers for one purpose that is no stream of a run: a city's riders, a day, a bootstrap."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


def derived_seed(seed: int, *key: int) -> int:
    """A 31-bit seed for something that takes a seed of its own, such as one training of a search."""
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1, np.uint32)[0] >> 1)


@functools.lru_cache(maxsize=16384)
def _block(run_seed: int, stream: int, env: int, block: int) -> array[int]:
    words = sequence(run_seed, Stream(stream), env, block).generate_state(_BLOCK, np.uint32)  # uint32[64]
    return array("I", words.tobytes())  # 256 bytes; as a tuple of ints the full cache would hold 40 MB


def episode_seed(run_seed: int, env: int, episode: int, stream: Stream = Stream.TRAIN, scheme: int = SCHEME) -> int:
    """The 31-bit seed of one episode of one environment: never negative as a C int, which many simulators take.

    Bit 30 is set for evaluation and clear for training. Under scheme 1 evaluation sets bit 31 in its place: it is
    disjoint from all that older versions trained on, too, whose seeds had 31 bits.

    >>> episode_seed(0, 0, 0) != episode_seed(0, 1, 0) != episode_seed(1, 0, 0)
    True
    >>> episode_seed(0, 0, 0, Stream.EVALUATE) >> 30, episode_seed(0, 0, 0, Stream.TRAIN) >> 30
    (1, 0)
    """
    word = _block(run_seed, int(stream), env, episode // _BLOCK)[episode % _BLOCK]
    if scheme == 1:
        return (word & (_OLD_EVALUATION_BIT - 1)) | (_OLD_EVALUATION_BIT if stream == Stream.EVALUATE else 0)
    return (word & (_EVALUATION_BIT - 1)) | (_EVALUATION_BIT if stream == Stream.EVALUATE else 0)


def env_keys(run_seed: int, num_envs: int, stream: Stream = Stream.TRAIN, first: int = 0) -> np.ndarray:
    """One 64-bit key per environment `first ..`, for generators inside compiled kernels: uint64[num_envs].

    Key i does not depend on num_envs. The top bit says training or evaluation.
    """
    top = np.uint64(1 << 63 if stream == Stream.EVALUATE else 0)
    keys = np.empty(num_envs, np.uint64)
    for i in range(num_envs):
        word = sequence(run_seed, stream, first + i).generate_state(1, np.uint64)[0]
        keys[i] = (word & np.uint64((1 << 63) - 1)) | top
    return keys
