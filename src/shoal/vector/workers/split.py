"""`split`: some of the environments here, the others in worker processes, at the same time.

In `process` the caller sleeps while its workers step. Where a batch takes a few hundred microseconds, going to sleep
and being woken is a large part of it: here the caller steps too, and neither side sleeps at once (lookout.py). The
price is that of `serial`: an environment of the caller's that kills its process or never returns takes it with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from shoal.core.errors import EnvFault
from shoal.core.machine import usable_cores
from shoal.vector.batch import News
from shoal.vector.chunk import Chunk, Infos, whole
from shoal.vector.environments import EnvFactory
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.protocol import faults_of
from shoal.vector.workers.worker import news


class SplitVectorEnv(ProcessVectorEnv):
    """The first `here` environments (default: an equal share) in this process, the others in `workers` processes beside
    it (default: one for each other core)."""

    _look_s = _workers_look_s = 1e-3  # each has a core of its own; a policy acts in between

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        workers: int | None = None,
        here: int | None = None,
        **options: Any,
    ) -> None:
        """The other `options` are those of `ProcessVectorEnv`."""
        num_envs = len(factories)
        if num_envs < 2:
            raise ValueError(f"expected at least 2 environments to split, got {num_envs}; use --backend serial")
        workers = max(usable_cores() - 1, 1) if workers is None else workers
        if workers < 1:
            raise ValueError(f"expected at least one worker beside this process, got {workers}; use --backend serial")
        # Neither side sleeps, so neither begins late; what is left over goes to the workers, the caller has to act too.
        self._here = max(num_envs // (workers + 1), 1) if here is None else here
        if not 0 < self._here < num_envs:
            raise ValueError(f"expected here from 1 to {num_envs - 1} of {num_envs} environments, got {here}")
        super().__init__(factories, workers=workers, **options)
        self._ready: Infos | None = None  # of the step here; None: not stepped, or not to the end
        ours, stepper = self.factories[: self._here], len(self._workers)
        try:
            self._chunk = Chunk(ours, 0, self.block, worker=stepper, **self._common.of_chunks)
        except BaseException:
            with contextlib.suppress(EnvFault):  # that the environments could not be built is what is told
                super().close_extras()
            raise

    def _do_send(self, part: int) -> None:
        self._ready = None
        super()._do_send(part)
        self._ready = self._chunk.step()

    def _do_recv(self, part: int) -> News:
        there = super()._do_recv(part)
        return self._with_ours(whole(self._ready), there)

    def _do_reset(self, options: dict[str, Any] | None) -> News:
        there = super()._do_reset(options)
        return self._with_ours(self._chunk.reset(options), there)

    def _do_replay(self, plan: Sequence[tuple[int, Sequence[Any]]]) -> tuple[list[bool], list[EnvFault]]:
        followed, faults = super()._do_replay(plan)
        for index in self._chunk.indices:
            followed[index] = self._chunk.replay(index, *plan[index])
        return followed, self._with_ours([], ([], faults))[1]

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        there = super().call(name, *args, **kwargs)
        return (*self._chunk.call(name, args, kwargs), *there)

    def _do_set_attr(self, name: str, values: Sequence[Any]) -> None:
        super()._do_set_attr(name, values)
        self._chunk.set_attr(name, values[self._chunk.rows])

    def close_extras(self, **kwargs: Any) -> None:
        """Close the environments here, then the workers as `process` does; the first fault is raised at the end."""
        if self.closed:
            return
        fault = self._chunk.close()
        try:
            super().close_extras(**kwargs)
        except EnvFault as another:
            fault = fault or another
        if fault is not None:
            raise fault

    def _with_ours(self, infos: Infos, there: News) -> News:
        """The chunk's news before the workers', through the same sieve: which environments step here is chance."""
        if not infos and not self._chunk.faults:
            return there
        frame = news(infos, self._chunk)
        return self._infos(frame) + there[0], faults_of(frame) + there[1]
