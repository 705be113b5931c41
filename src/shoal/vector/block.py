"""The arrays that a batch of environments shares with whoever steps it.

In `serial` they are ordinary memory; in `process` and `split` they lie in one anonymous shared mapping that parent and
workers see alike. There is no name in /dev/shm to leak: the mapping dies with the last process that holds it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.vector.layout import Array, Layout

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

    def clear(self) -> None:
        """Nothing has been seeded yet, nobody is inside an environment. Called once, by the owner."""
        for array in (self.seeds, self.first_seeds, self.episodes, self.current):
            array[:] = -1

    @staticmethod
    def size(num_envs: int, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], workers: int) -> int:
        """Bytes that a block needs, rounding included."""
        observation, action = Layout(observation_space), Layout(action_space)
        arrays = 2 * len(observation.leaves) + len(action.leaves) + 13
        data = num_envs * (2 * observation.row_bytes + action.row_bytes + 8 + 4 + 6 * 8) + workers * 64 + 1
        return max(data + arrays * _ALIGN, mmap.PAGESIZE)


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
