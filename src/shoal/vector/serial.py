"""`serial`: all environments in this process, one after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from shoal.core.errors import EnvFault
from shoal.vector.batch import BatchVectorEnv, News
from shoal.vector.chunk import Chunk, Infos, close_all, take_faults, whole
from shoal.vector.environments import EnvFactory, first_environment
from shoal.vector.memory import Block
from shoal.vector.parts import Common, cut


class SerialVectorEnv(BatchVectorEnv):
    """Environments stepped one after another here. The reference that every other backend must equal.

    An environment that kills its process or never returns takes this one with it; `process` does not.

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
        **common: Any,
    ) -> None:
        """`common` options are those of `shoal.vector.parts.Common`."""
        self.chunks: list[Chunk] = []
        if not factories:
            raise ValueError("expected at least one environment, got none")
        options = Common(**common)
        first_env = first_environment(factories[0])
        block = Block(len(factories), first_env.observation_space, first_env.action_space)
        block.clear()
        super().__init__(
            block,
            cut(len(factories), slices),
            options,
            metadata=first_env.metadata,
            render_mode=first_env.render_mode,
            spec=first_env.spec,
        )
        self._ready: list[Infos | None] = [None for _ in self.slices]  # None: not stepped, or not to the end
        try:
            for part, rows in enumerate(self.slices):
                known = first_env if part == 0 else None
                chunk = Chunk(factories[rows], rows.start, block, first_env=known, **options.of_chunks)
                self.chunks.append(chunk)
        except EnvFault:
            close_all(self.chunks)
            raise

    def _do_reset(self, options: dict[str, Any] | None) -> News:
        infos = [entry for chunk in self.chunks for entry in chunk.reset(options)]
        return infos, take_faults(*self.chunks)

    def _do_send(self, part: int) -> None:
        self._ready[part] = None
        self._ready[part] = self.chunks[part].step()

    def _do_recv(self, part: int) -> News:
        return whole(self._ready[part]), take_faults(self.chunks[part])

    def _do_replay(self, plan: Sequence[tuple[int, Sequence[Any]]]) -> tuple[list[bool], list[EnvFault]]:
        followed = [
            chunk.replay(index - rows.start, *plan[index])
            for chunk, rows in zip(self.chunks, self.slices, strict=True)
            for index in range(rows.start, rows.stop)
        ]
        return followed, take_faults(*self.chunks)

    @property
    def envs(self) -> list[gym.Env[Any, Any]]:
        """The environments themselves."""
        return [env for chunk in self.chunks for env in chunk.envs]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        self._check_usable()
        return tuple(value for chunk in self.chunks for value in chunk.call(name, args, kwargs))

    def _do_set_attr(self, name: str, values: Sequence[Any]) -> None:
        for chunk in self.chunks:
            chunk.set_attr(name, values[chunk.rows])

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment; the first fault is raised when all have been closed."""
        self.closed = True
        fault = close_all(self.chunks)
        if fault is not None:
            raise fault
