"""`split`: some of the environments here, the others in worker processes, at the same time.

In `process` the caller sleeps while its workers step. Where a batch takes a few hundred microseconds, going to sleep
and being woken is a large part of it: here the caller steps too, and neither side sleeps at once (lookout.py). The
price is that of `serial`: an environment of the caller's that kills its process or never returns takes it with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shoal.vector.batch import News
from shoal.vector.chunk import Chunk, EnvFactory, Infos
from shoal.vector.errors import EnvFault
from shoal.vector.launch import usable_cores
from shoal.vector.process import ProcessVectorEnv
from shoal.vector.seeding import Stream

_AHEAD_S = 200e-6  # what the caller does more: workers wake late, and `step_s` has a share of a batch's fixed cost
_LOOK_S = 1e-3  # a policy acts in between


class SplitVectorEnv(ProcessVectorEnv):
    """The first `here` environments in this process, the others in `workers` processes (default: one for each other
    core). `here` is chosen from `step_s`, the seconds that `serial` takes for a step of one environment."""

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        workers: int | None = None,
        here: int | None = None,
        step_s: float | None = None,
        stream: Stream = Stream.TRAIN,
        on_fault: str = "fail",
        max_restarts: int = 10,
        check_finite: bool = True,
        **options: Any,
    ) -> None:
        num_envs = len(factories)
        if num_envs < 2:
            raise ValueError(f"expected at least 2 environments to split, got {num_envs}; use --backend serial")
        if workers is None:
            workers = max(usable_cores() - 1, 1)
        here = share_here(num_envs, workers, step_s) if here is None else here
        if not 0 < here < num_envs:
            raise ValueError(f"expected here from 1 to {num_envs - 1} of {num_envs} environments, got {here}")
        common: dict[str, Any] = {"stream": stream, "max_restarts": max_restarts, "check_finite": check_finite}
        super().__init__(factories, workers=workers, here=here, look_s=_LOOK_S, on_fault=on_fault, **common, **options)
        self._news: Infos = []
        restart, slot = on_fault == "restart", len(self._workers)
        try:
            self._chunk = Chunk(self.factories[:here], 0, self.block, restart=restart, worker=slot, **common)
        except EnvFault:
            super().close_extras()
            raise

    def _do_send(self, part: int) -> None:
        super()._do_send(part)
        self._news = self._chunk.step()

    def _do_recv(self, part: int) -> News:
        infos, faults = super()._do_recv(part)
        return self._news + infos, self._take_faults() + faults

    def _do_reset(self, options: dict[str, Any] | None) -> News:
        infos, faults = super()._do_reset(options)
        return self._chunk.reset(options) + infos, self._take_faults() + faults

    def _do_replay(self, plan: Sequence[tuple[int, Sequence[Any]]]) -> tuple[list[bool], list[EnvFault]]:
        followed, faults = super()._do_replay(plan)
        for index in self._chunk.indices:
            followed[index] = self._chunk.replay(index, *plan[index])
        return followed, self._take_faults() + faults

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        there = super().call(name, *args, **kwargs)
        return (*self._chunk.call(name, args, kwargs), *there)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments here, then the workers as `process` does; the first fault is raised at the end."""
        if self.closed:
            return
        fault = self._chunk.close()
        super().close_extras(**kwargs)
        if fault is not None:
            raise fault

    def _take_faults(self) -> list[EnvFault]:
        faults, self._chunk.faults = self._chunk.faults, []
        return faults


def share_here(num_envs: int, workers: int, step_s: float | None) -> int:
    """How many environments the caller steps so that it is done when its workers are: its equal share, and what it
    can do while they wake.

    >>> share_here(64, 1, 25e-6), share_here(64, 3, None), share_here(2, 1, 1e-9)
    (36, 16, 1)
    """
    ahead = _AHEAD_S / step_s if step_s else 0.0
    return min(max(round((num_envs + workers * ahead) / (workers + 1)), 1), num_envs - 1)
