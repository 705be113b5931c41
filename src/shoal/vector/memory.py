"""The arrays that a batch of environments shares with whoever steps it.

In `serial` they are ordinary memory; in `process` and `split` they lie in one anonymous shared mapping that parent and
workers see alike. There is no name in /dev/shm to leak: the mapping dies with the last process that holds it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.core.arrays import Array, Layout

_ALIGN = 64  # a cache line, so that two workers never write into the same one by accident of layout


class Block:
    """Observations, actions, rewards, flags and clocks of `num_envs` environments."""

    observations: list[Array]  # per leaf [N, *shape]
    final_observations: list[Array]  # per leaf [N, *shape]; row i is valid in the step that ended i's episode
    actions: list[Array]  # per leaf [N, *shape]
    rewards: Array  # float64[N]
    terminated: Array  # bool[N]
    truncated: Array  # bool[N]
    restarted: Array  # bool[N]: the environment was rebuilt in this step, its episode is broken
    reset_mask: Array  # bool[N]: which environments a reset is for
    bases: Array  # int64[N]: the run seed that environment i's episode seeds descend from
    indices: Array  # int64[N]: its place below that seed
    first_seeds: Array  # int64[N]: the seed of episode 0 where the caller gave one, else -1
    seeds: Array  # int64[N]: seed of the present episode (-1 before the first)
    episodes: Array  # int64[N]: number of the present episode
    elapsed: Array  # int64[N]: steps of the present episode
    current: Array  # int64[workers]: the environment that a worker is inside of, -1 when it is in none
    closing: Array  # bool[1]: the owner wants the workers gone, so SIGTERM is meant for them
    aimed: Array  # int64[1]: where observations go: 0 is the block itself, k + 1 is row k of the rollout

    def __init__(
        self,
        num_envs: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        workers: int = 1,
        memory: SharedMemory | None = None,
    ) -> None:
        self.num_envs, self.workers = num_envs, workers
        self.observation_layout, self.action_layout = Layout(observation_space), Layout(action_space, "action")
        self.memory = memory
        array = _maker(memory)
        self.observations = self.observation_layout.allocate(num_envs, fn=array)
        self.final_observations = self.observation_layout.allocate(num_envs, fn=array)
        self.actions = self.action_layout.allocate(num_envs, fn=array)
        self.rewards = array((num_envs,), np.float64)
        for name in ("terminated", "truncated", "restarted", "reset_mask"):
            setattr(self, name, array((num_envs,), np.bool_))
        for name in ("bases", "indices", "first_seeds", "seeds", "episodes", "elapsed"):
            setattr(self, name, array((num_envs,), np.int64))
        self.current = array((workers * 8,), np.int64)[::8]  # written at every step: a cache line for each
        self.closing = array((1,), np.bool_)
        self.aimed = array((1,), np.int64)
        self.rollout: list[Array] = []  # per leaf [rows, N, *shape]
        self._addresses: list[int] = []  # of its leaves
        self._own = self._before = self.observations
        self._aim = (0, self.rollout)  # what `observations` is: `aimed`, and of which rollout

    # -- rows of a rollout, which observations can be written into instead of being copied ---------

    def set_rollout(self, rows: int, memory: SharedMemory | None = None) -> None:
        """Rows for a caller to keep, in the place of those before; 0: none. Nothing may be aimed at the old ones."""
        self.rollout = self.observation_layout.allocate(rows, self.num_envs, fn=_maker(memory)) if rows else []
        self._addresses = [_address(leaf) for leaf in self.rollout]
        self.follow()
        self._before = self.observations

    def row_of(self, leaves: Sequence[Array]) -> int:
        """Which row of the rollout these arrays are; -1 if they are none of them."""
        row = -1
        for kept, address, given in zip(self.rollout, self._addresses, leaves, strict=False):
            if given.shape != kept.shape[1:] or given.dtype != kept.dtype or not given.flags.c_contiguous:
                return -1
            place, rest = divmod(_address(given) - address, kept.strides[0])
            if rest or not 0 <= place < len(kept) or row not in (-1, place):
                return -1
            row = place
        return row

    def aim(self, row: int) -> None:
        """From now on observations go into this row of the rollout; -1: into the block."""
        self._before = self.observations
        self.aimed[0] = row + 1
        self.follow()

    def follow(self) -> None:
        """Look where the owner has aimed."""
        aimed = int(self.aimed[0])
        if aimed != self._aim[0] or self.rollout is not self._aim[1]:
            self.observations = [leaf[aimed - 1] for leaf in self.rollout] if aimed else self._own
            self._aim = (aimed, self.rollout)

    def carry(self, rows: slice) -> None:
        """Environments that do not step show what they showed where observations went before."""
        for old, new in zip(self._before, self.observations, strict=True):
            if old is not new:
                new[rows] = old[rows]

    def clear(self) -> None:
        """Nothing has been seeded yet, nobody is inside an environment. Called once, by the owner."""
        for array in (self.seeds, self.first_seeds, self.episodes, self.current):
            array[:] = -1

    def seed(self, seed: int | Sequence[int | None] | None, mask: Array, first: int = 0) -> None:
        """A run seed for the streams of the environments in `mask` (bool[N]), which are the run's from `first` on, or a
        seed for the first episode of each; without one, those never seeded get theirs from the operating system."""
        if isinstance(seed, int | np.integer):
            _check_seed(int(seed))
            self.bases[mask], self.indices[mask] = seed, first + np.flatnonzero(mask)
            self.first_seeds[mask], self.episodes[mask] = -1, -1
            return
        seeds = [None] * self.num_envs if seed is None else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"expected one seed for each of {self.num_envs} environments, got {len(seeds)}")
        for value in seeds:
            if value is not None:
                _check_seed(int(value))
        fresh = mask & (self.seeds < 0) & np.array([value is None for value in seeds])
        if fresh.any():  # never seeded: from the operating system
            self.bases[fresh] = np.random.SeedSequence().generate_state(1, np.uint64)[0] >> 1
            self.indices[fresh] = np.flatnonzero(fresh)
            self.first_seeds[fresh], self.episodes[fresh] = -1, -1
        for index, value in enumerate(seeds):
            if mask[index] and value is not None:
                self.bases[index], self.indices[index] = value, 0
                self.first_seeds[index], self.episodes[index] = value, -1

    @staticmethod
    def size(num_envs: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], workers: int) -> int:
        """Bytes that a block needs, rounding included."""
        observation, action = Layout(observation_space), Layout(action_space)
        arrays = 2 * len(observation.leaves) + len(action.leaves) + 14
        data = num_envs * (2 * observation.row_bytes + action.row_bytes + 8 + 4 + 6 * 8) + workers * 64 + 1 + 8
        return max(data + arrays * _ALIGN, mmap.PAGESIZE)

    def rollout_size(self, rows: int) -> int:
        """Bytes that so many rows of a rollout need, rounding included."""
        layout = self.observation_layout
        return max(rows * self.num_envs * layout.row_bytes + len(layout.leaves) * _ALIGN, mmap.PAGESIZE)


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise ValueError(f"a seed is an integer from 0 to 2**63 - 1, got {seed}")


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _maker(memory: SharedMemory | None) -> Callable[[tuple[int, ...], Any], Array]:
    """Makes arrays one after another: of zeros, or in a shared mapping."""
    offset = 0

    def array(shape: tuple[int, ...], dtype: Any) -> Array:
        nonlocal offset
        dtype = np.dtype(dtype)
        if memory is None:
            return np.zeros(shape, dtype)
        count = int(np.prod(shape))
        view = np.frombuffer(memory.map, dtype, count, offset).reshape(shape)
        offset += -(-count * dtype.itemsize // _ALIGN) * _ALIGN
        return view

    return array


class SharedMemory:
    """An anonymous mapping; another process maps the same bytes by its descriptor `fd`."""

    def __init__(self, size: int, fd: int | None = None) -> None:
        self.size = size
        if fd is None:
            if hasattr(os, "memfd_create"):
                fd = os.memfd_create("shoal", os.MFD_CLOEXEC)
            else:  # macOS: a file that has no name any more by the time anyone could look for it
                with tempfile.TemporaryFile() as file:
                    fd = os.dup(file.fileno())
            os.ftruncate(fd, size)
        self.fd = fd
        self.map = mmap.mmap(fd, size)

    def close(self) -> None:
        """Give back the descriptor; the mapping goes when the last array over it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
