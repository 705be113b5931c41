"""Memory that the actors of a local Ray instance and their owner see alike, as the workers of `process` do.

There a step sends each actor a call without arguments and gets one without rows back. An actor opens the owner's
descriptor by way of /proc, which the kernel allows to processes of the same user; nothing has a name in /dev/shm.
Actors of a cluster, and those that may not look there, are sent their rows (ray_rows.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from shoal.vector.memory import Block, SharedMemory
from shoal.vector.workers.ray_actor import Place
from shoal.vector.workers.ray_remote import RemoteActor


class Shared:
    """The block of a batch and the rollout that its observations go into. The owner's descriptors stay open, for actors
    that come later."""

    def __init__(self) -> None:
        self._block: SharedMemory | None = None
        self._rollout: SharedMemory | None = None
        self._rows = 0

    def block(
        self, num_envs: int, observation: spaces.Space[Any], action: spaces.Space[Any], actors: Sequence[RemoteActor]
    ) -> Block:
        """A new one, known to nobody yet."""
        if not any(one.shares for one in actors):
            return Block(num_envs, observation, action)
        self._block = SharedMemory(Block.size(num_envs, observation, action, len(actors)))
        return Block(num_envs, observation, action, len(actors), self._block)

    def place(self, one: RemoteActor) -> Place | None:
        """Where an actor finds the block; None if it is sent its rows."""
        return None if self._block is None or not one.shares else _place(self._block)

    def allocate(self, block: Block, rows: int, actors: Sequence[RemoteActor], timeout_s: float) -> None:
        """So many rows of a rollout in the place of those before, known to all actors that share."""
        self._drop(block)
        if self._block is None:
            block.set_rollout(rows)
            return
        self._rollout, self._rows = SharedMemory(block.rollout_size(rows)), rows
        block.set_rollout(rows, self._rollout)
        try:
            for one in actors:
                self.tell_rollout(one, timeout_s)
        except BaseException:  # some may have it and some not: nobody is to write there
            self._drop(block)
            raise

    def tell_rollout(self, one: RemoteActor, timeout_s: float) -> None:
        """An actor gets to know the rollout, if there is one."""
        if self._rollout is not None and one.shares:
            one.ask(timeout_s, "while memory was shared", "rollout", self._rows, _place(self._rollout))

    def close(self) -> None:
        """Give back the descriptors; the arrays stay."""
        for memory in (self._block, self._rollout):
            if memory is not None:
                memory.close()

    def _drop(self, block: Block) -> None:
        block.set_rollout(0)
        if self._rollout is not None:
            self._rollout.close()
        self._rollout, self._rows = None, 0


def _place(memory: SharedMemory) -> Place:
    return os.getpid(), memory.fd, memory.size
