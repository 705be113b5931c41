"""`serial`: all environments in this process, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from shoal.vector.batch import BatchVectorEnv, cut
from shoal.vector.block import Block
from shoal.vector.chunk import Chunk, EnvFactory, Infos
from shoal.vector.errors import EnvFault
from shoal.vector.seeding import Stream


class SerialVectorEnv(BatchVectorEnv):
    """Environments stepped one after another here. The reference that every other backend must equal.

    >>> envs = SerialVectorEnv([lambda: gym.make("CartPole-v1")] * 3)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape
    (3, 4)
    >>> envs.close()
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        slices: int = 1,
        stream: Stream = Stream.TRAIN,
        on_fault: str = "fail",
        max_restarts: int = 10,
        restart_window: int = 10_000,
        check_finite: bool = True,
    ) -> None:
        probe = factories[0]()
        block = Block(len(factories), probe.observation_space, probe.action_space)
        block.clear()
        super().__init__(
            block,
            cut(len(factories), slices),
            stream=stream,
            max_restarts=max_restarts,
            restart_window=restart_window,
            metadata=probe.metadata,
            spec=probe.spec,
        )
        probe.close()
        self._ready: list[Infos] = [[] for _ in self.slices]
        self.chunks = [
            Chunk(
                factories[rows],
                rows.start,
                block,
                stream=stream,
                restart=on_fault == "restart",
                check_finite=check_finite,
            )
            for rows in self.slices
        ]

    def _do_reset(self, options: dict[str, Any] | None) -> Infos:
        return [entry for chunk in self.chunks for entry in chunk.reset(options)]

    def _do_send(self, part: int) -> None:
        self._ready[part] = self.chunks[part].step()

    def _do_recv(self, part: int) -> tuple[Infos, list[EnvFault]]:
        chunk = self.chunks[part]
        faults, chunk.faults = chunk.faults, []
        return self._ready[part], faults

    def _do_replay(self, index: int, episode: int, actions: Sequence[Any]) -> None:
        for chunk, rows in zip(self.chunks, self.slices, strict=True):
            if rows.start <= index < rows.stop:
                chunk.replay(index - rows.start, episode, actions)

    @property
    def envs(self) -> list[gym.Env[Any, Any]]:
        """The environments themselves."""
        return [env for chunk in self.chunks for env in chunk.envs]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        values = [env.get_wrapper_attr(name) for env in self.envs]
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; the first fault is raised when all have been closed."""
        fault: EnvFault | None = None
        for chunk in self.chunks:
            try:
                chunk.close()
            except EnvFault as error:
                fault = fault or error
        if fault is not None:
            raise fault
