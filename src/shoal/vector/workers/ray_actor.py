"""The other side of `ray`: an actor that owns a chunk of environments and steps them when told to.

It has a block of its own, of its own rows alone, or sees that of its owner (ray_shared.py). Nothing it answers is an
exception or a pickled object: rows are bytes, infos and faults are `marshal`'s plain data. What the user hands over on
purpose (factories, options of a reset, arguments of `call`) is cloudpickled, as `process` does it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np

from shoal.core.arrays import Array
from shoal.core.errors import as_fault
from shoal.extras import version
from shoal.vector.chunk import Chunk, Infos
from shoal.vector.environments import first_environment
from shoal.vector.memory import Block, SharedMemory
from shoal.vector.workers import ray_rows
from shoal.vector.workers.protocol import fault_to_data
from shoal.vector.workers.worker import call_all, news, set_all, spaces_of

Answer = tuple[Array | None, Array | None, bytes | None]  # rows, final observations of the rows that have them, news


Place = tuple[int, int, int]  # where its owner's memory is: process id, descriptor there, bytes


def may_open(owner: int) -> bool:
    """Whether this process can reach what `owner`, on the same machine, has open. Not without /proc."""
    try:
        return bool(os.listdir(f"/proc/{owner}/fd"))
    except OSError:
        return False


def opened(place: Place) -> SharedMemory:
    """The owner's memory."""
    owner, fd, size = place
    memory = SharedMemory(size, os.open(f"/proc/{owner}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC))
    memory.close()  # the mapping stays
    return memory


def versions() -> str:
    """What has to be equal on both sides."""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]}, shoal {version('shoal')}"


class EnvActor:
    """Environments of one actor. Every method answers within itself: what goes wrong is data."""

    chunk: Chunk
    shares = False  # it works in its owner's block: no rows travel
    first = 0  # environment, as its owner counts them where it shares, else as it does itself

    def hello(self, folders: list[str], owner: int) -> bytes:
        """Who it is. `folders` are where its owner finds modules; last, so that what is installed here wins."""
        import ray

        sys.path += [folder for folder in folders if folder not in sys.path]
        node = ray.get_runtime_context().get_node_id()
        about = {"pid": os.getpid(), "node": node, "versions": versions(), "shares": may_open(owner)}
        return marshal.dumps(about)

    def scout(self, factory: bytes, index: int) -> bytes:
        """Build the first environment and tell its spaces."""

        def build() -> dict[str, Any]:
            self.first_env = first_environment(cloudpickle.loads(factory), index)
            return {"spaces": spaces_of(self.first_env)}

        return self._guarded(build)

    def build(self, job: bytes) -> bytes:
        """Build all environments."""

        def build() -> dict[str, Any]:
            options = cloudpickle.loads(job)
            factories, spaces = options["factories"], (options["observation_space"], options["action_space"])
            self.shares, number = options["shared"] is not None, 0
            if self.shares:
                self.first, number = options["first"], options["number"]
                memory = opened(options["shared"])
                block = Block(options["num_envs"], *spaces, options["actors"], memory)
            else:
                block = Block(len(factories), *spaces)
                block.clear()
            if hasattr(os, "SCHED_BATCH"):  # as a worker of `process`: whoever waits for the others goes first
                with contextlib.suppress(OSError):
                    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            self.chunk = Chunk(
                factories,
                self.first,
                block,
                worker=number,
                first_env=self.__dict__.pop("first_env", None),
                **options["chunks"],
            )
            return {}

        return self._guarded(build)

    def rollout(self, rows: int, place: Place) -> bytes:
        """From now on the owner may aim at rows of a rollout."""

        def share() -> dict[str, Any]:
            self.chunk.block.set_rollout(rows, opened(place))
            return {}

        return self._guarded(share)

    def step(self, actions: Array | None = None) -> Answer:
        """Step all environments with these actions, or those in the block."""
        if actions is not None:
            ray_rows.unpack(actions, self.chunk.block.actions)
        return self._answer(self.chunk.step)

    def reset(self, seeding: Array | None, options: bytes) -> Answer:
        """Reset those that the mask names, with the seeds that come with it."""
        if seeding is not None:
            ray_rows.unpack(seeding, ray_rows.told(self.chunk.block, ray_rows.SEEDING))
        return self._answer(lambda: self.chunk.reset(cloudpickle.loads(options)))

    def replay(self, seeding: Array | None, plan: bytes) -> Answer:
        """Reach unfinished episodes again; the news say who followed."""
        if seeding is not None:
            ray_rows.unpack(seeding, ray_rows.told(self.chunk.block, (*ray_rows.SEEDING, *ray_rows.OVER)))
        followed: list[bool] = []

        def replay() -> Infos:
            for local, (episode, actions) in enumerate(cloudpickle.loads(plan)):
                followed.append(self.chunk.replay(local, episode, actions))
            return []

        return self._answer(replay, followed=followed)

    def call(self, job: bytes) -> bytes:
        """`call` of every environment."""
        return marshal.dumps(call_all([self.chunk], *cloudpickle.loads(job)))

    def set_attr(self, job: bytes) -> bytes:
        """`set_attr` of every environment: (name, values)."""
        name, values = cloudpickle.loads(job)
        return marshal.dumps(set_all([self.chunk], name, [values]))

    def close(self) -> bytes:
        """Close the environments."""
        fault = self.chunk.close() if hasattr(self, "chunk") else None
        return marshal.dumps({"error": fault_to_data(fault)} if fault else {})

    def _answer(self, action: Callable[[], Infos], **more: Any) -> Answer:
        try:
            infos = action()
        except BaseException as error:  # an EnvFault stays as it is
            return None, None, self._told(error)
        told = marshal.dumps({**news(infos, self.chunk), **more}) if infos or self.chunk.faults or more else None
        if self.shares:
            return None, None, told
        block = self.chunk.block
        ended = np.flatnonzero(block.terminated | block.truncated)
        finals = ray_rows.pack(block.final_observations, ended) if len(ended) else None
        return ray_rows.pack(ray_rows.outcome(block)), finals, told

    def _guarded(self, action: Callable[[], dict[str, Any]]) -> bytes:
        try:
            return marshal.dumps(action())
        except BaseException as error:
            with contextlib.suppress(AttributeError):
                self.chunk.close()
            return self._told(error)

    def _told(self, error: BaseException) -> bytes:
        return marshal.dumps({"error": fault_to_data(as_fault(error, "in a worker", self.first, None, None))})
