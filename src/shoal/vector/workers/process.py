"""`process`: few workers, many environments each, one shared block of memory, one wake-up per worker and step.

One process per environment would make 256 environments many times slower than stepping them in turn: the time goes
into waking processes up. Here a step is: write the actions into shared memory, one byte to each worker, one
byte back. Workers look for the next step for a moment before they sleep (lookout.py). The parent notices a dead worker
at once (its socket hangs up), a hanging one by a deadline. It builds no environment itself, so none can break it.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
from collections.abc import Sequence
from multiprocessing import util
from typing import Any

import cloudpickle

from shoal.core.arrays import Array
from shoal.core.errors import EnvFault, EnvTimeout, WorkerDied
from shoal.core.machine import usable_cores
from shoal.vector.batch import BatchVectorEnv, News
from shoal.vector.chunk import Infos
from shoal.vector.environments import EnvFactory
from shoal.vector.memory import Block, SharedMemory
from shoal.vector.parts import Common, check_options, cut, owned_rows
from shoal.vector.workers import worker as protocol
from shoal.vector.workers.launch import check_processes, safe_start_method
from shoal.vector.workers.protocol import Sieve, faults_of, raise_mistakes
from shoal.vector.workers.rows import SharedRows
from shoal.vector.workers.supervisor import Remote, end_all, leave

TERMINATE_S = 1.0  # closing: SIGTERM works


class ProcessVectorEnv(BatchVectorEnv):
    """Environments in worker processes.

    `slices="lockstep"` steps all together; `"double"` cuts the batch into two halves so that acting
    overlaps stepping; `"ready"` makes each worker a slice of its own, received as soon as it is done
    (`ready()`), so that uneven environments do not wait for the slowest.
    """

    _here = 0  # so many environments, the first, are not for the workers (see split.py)
    # How long each side looks for the other's word before it sleeps (lookout.py). The caller sleeps at once: while its
    # workers step, all cores are theirs.
    _look_s, _workers_look_s = 0.0, 300e-6

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        workers: int | None = None,
        slices: str = "lockstep",
        start_method: str | None = None,
        step_timeout_s: float = 300.0,
        start_timeout_s: float = 120.0,
        **common: Any,
    ) -> None:
        """`common` options are those of `shoal.vector.parts.Common`."""
        self._workers: list[Remote] = []
        check_processes()
        self.factories, self._common = list(factories), Common(**common)
        self.on_fault = self._common.on_fault
        self.step_timeout_s, self.start_timeout_s = step_timeout_s, start_timeout_s
        num_envs = len(self.factories)
        check_options(num_envs, workers, slices, step_timeout_s, start_timeout_s)
        self._context = multiprocessing.get_context(safe_start_method(start_method))
        count = min(workers or usable_cores(), num_envs - self._here)
        if slices == "double":
            count = min(count, (num_envs + 1) // 2)  # so that nobody is left without environments
        parts = cut(num_envs, {"lockstep": 1, "double": min(2, num_envs), "ready": count}[slices])
        self.by_readiness = slices == "ready"
        owned = [owned_rows(number, count, parts, self.by_readiness, self._here) for number in range(count)]
        self._workers = [Remote(number, rows, self._look_s) for number, rows in enumerate(owned)]
        look_s = self._workers_look_s if count + (self._here > 0) <= usable_cores() else 0.0
        self._options = {"chunks": self._common.of_chunks, "look_s": look_s}
        # At exit before multiprocessing joins its children: an environment that ignores SIGTERM would hang that.
        self._finalizer = util.Finalize(self, end_all, (self._workers, TERMINATE_S), exitpriority=10)
        try:
            for one in self._workers:
                self._start(one, scout=one.number == 0)
            known = cloudpickle.loads((self._workers[0].wait(start_timeout_s, "while being built") or {})["spaces"])
            self._workers[0].owed.append(-1)  # its environments are yet to be built
            spaces = known["observation_space"], known["action_space"]
            steppers = count + (self._here > 0)
            memory = SharedMemory(Block.size(num_envs, *spaces, steppers))
            util.Finalize(self, memory.close, exitpriority=9)
            block = Block(num_envs, *spaces, steppers, memory)
            block.clear()
            self._rows = SharedRows(block)
            util.Finalize(self, self._rows.close, exitpriority=9)
            about = {name: known[name] for name in ("metadata", "render_mode", "spec")}
            super().__init__(block, parts, self._common, **about)
            self._serving = [[w for w in self._workers if part in w.step_bytes] for part in range(len(parts))]
            self._infos = Sieve()
            self._attributes: dict[str, Sequence[Any]] = {}  # set by the caller: a new worker gets them
            self._late = False
            for one in self._workers:
                self._share(one)
            for one in self._workers:
                one.wait(start_timeout_s, "while its environments were built", while_progressing=True)
        except BaseException:
            self.closed = True
            self._finalizer()
            raise

    def _start(self, one: Remote, *, scout: bool) -> None:
        parts = [(rows.start, self.factories[rows]) for _, rows in one.parts]
        job = cloudpickle.dumps({"parts": parts, "worker": one.number, "scout": scout, **self._options})
        one.start(self._context, job, self._workers, max(self.step_timeout_s, 1.0))

    def _share(self, one: Remote) -> None:
        block = self.block
        assert block.memory is not None
        details = {
            "num_envs": self.num_envs,
            "observation_space": self.single_observation_space,
            "action_space": self.single_action_space,
            "workers": block.workers,
            "memory_size": block.memory.size,
        }
        one.share(block, cloudpickle.dumps(details))

    def allocate(self, rows: int) -> list[Array] | None:
        """As in every batch, where shared memory is memory and not a file."""
        return super().allocate(rows) if hasattr(os, "memfd_create") else None

    def _do_allocate(self, rows: int) -> None:
        self._rows.give(rows, self._workers, self.step_timeout_s)

    # -- stepping ------------------------------------------------------------------------------

    def _do_send(self, part: int) -> None:
        for one in self._serving[part]:
            if part in one.lost:
                for _, rows in one.parts:  # a rollout has one slice
                    self.block.carry(rows)
            one.send_step(part)

    def _do_recv(self, part: int) -> News:
        timeout_s = 0.01 if self._late else self.step_timeout_s
        self._late = False
        infos: Infos = []
        faults: list[EnvFault] = []
        for one in self._serving[part]:
            try:
                frame = one.take_step(part, timeout_s)
            except (WorkerDied, EnvTimeout) as fault:
                self._replace(one, fault)
                one.answers.pop(part, None)  # the restarts are in the block already
                timeout_s = min(timeout_s, 0.1)  # whoever answers has done so in the meantime
                continue
            if frame is not None:
                infos += self._infos(frame)
                faults += faults_of(frame)
        return infos, faults

    def ready(self, waiting: Sequence[int]) -> list[int]:
        """Those of the slices `waiting` that have an answer; waits until one has."""
        poll = select.poll()
        by_fd = {self._serving[part][0].connection.fileno(): part for part in waiting}
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        found = [by_fd[fd] for fd, _ in poll.poll(self.step_timeout_s * 1000)] if by_fd else []
        self._late = not found and bool(by_fd)  # recv says for whom
        return sorted(found) or list(waiting)

    def _do_drain(self) -> None:
        for one in self._workers:
            while one.owed:
                one.wait(self.step_timeout_s, "in step")
            one.answers.clear()

    # -- everything else -----------------------------------------------------------------------

    def _do_reset(self, options: dict[str, Any] | None) -> News:
        everything = bool(self.block.reset_mask.all())
        self._tell_all(protocol.RESET, cloudpickle.dumps(options))
        infos: Infos = []
        faults: list[EnvFault] = []
        for one in self._workers:
            try:
                frame = one.wait(self.step_timeout_s, "in reset") or {}
            except (WorkerDied, EnvTimeout) as fault:
                self._replace(one, fault)
            else:
                infos += self._infos(frame)
                faults += faults_of(frame)
            if everything:
                one.lost.clear()
        return infos, faults

    def _do_replay(self, plan: Sequence[tuple[int, Sequence[Any]]]) -> tuple[list[bool], list[EnvFault]]:
        followed = [False] * self.num_envs
        faults: list[EnvFault] = []
        places = {
            one.number: [
                (k, i, rows.start) for k, (_, rows) in enumerate(one.parts) for i in range(rows.start, rows.stop)
            ]
            for one in self._workers
        }
        while any(places.values()):  # one environment of each worker at a time, all workers at once
            busy = [(one, *places[one.number].pop(0)) for one in self._workers if places[one.number]]
            for one, part, index, start in busy:
                one.tell(protocol.REPLAY, cloudpickle.dumps((part, index - start, *plan[index])))
            for one, _, index, _ in busy:
                doing = "while an unfinished episode was replayed"
                frame = one.wait(self.step_timeout_s, doing, while_progressing=True) or {}
                followed[index] = frame["followed"]
                faults += faults_of(frame)
        return followed, faults

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        self._check_usable()
        self._check_at_rest("call")
        with self._failing():
            self._tell_all(protocol.CALL, cloudpickle.dumps((name, args, kwargs)))
            frames = [one.wait(self.step_timeout_s, f"in call({name!r})") or {} for one in self._workers]
        raise_mistakes(frames)
        values: dict[int, Any] = {}
        for one, frame in zip(self._workers, frames, strict=True):
            values.update(zip(one.environments, cloudpickle.loads(frame["value"]), strict=True))
        return tuple(values[index] for index in sorted(values))

    def _do_set_attr(self, name: str, values: Sequence[Any]) -> None:
        payloads = [self._values_for(one, name, values) for one in self._workers]  # before anyone is told: may fail
        with self._failing():
            for one, payload in zip(self._workers, payloads, strict=True):
                one.tell(protocol.SET_ATTR, payload)
            frames = [one.wait(self.step_timeout_s, f"in set_attr({name!r})") or {} for one in self._workers]
        raise_mistakes(frames)
        self._attributes[name] = values

    def _values_for(self, one: Remote, name: str, values: Sequence[Any]) -> bytes:
        return bytes(cloudpickle.dumps((name, [values[rows] for _, rows in one.parts])))

    def _tell_all(self, command: int, payload: bytes) -> None:
        for one in self._workers:
            one.tell(command, payload)

    # -- faults and the end --------------------------------------------------------------------

    def _replace(self, one: Remote, fault: EnvFault) -> None:
        """Policy `restart`: a new worker for a dead one; else raise. All its environments lost their state, so
        all go on to their next episode."""
        if self.on_fault != "restart":
            raise fault
        in_flight = {part for part in one.owed if part >= 0} | set(one.answers)
        while True:
            self._count([fault])  # raises when there have been too many
            try:
                self._rebuild(one)
                break
            except EnvFault as another:
                fault = another
        one.answers = dict.fromkeys(in_flight)
        one.lost = set(one.step_bytes) - in_flight
        env, block = fault.env if fault.env in one.environments else one.first, self.block
        fault.aftermath = (
            f"its worker was replaced (pid {one.pid}) and its {len(one.environments)} environments begin their next "
            f"episodes, environment {env} episode {block.episodes[env]}, seed {block.seeds[env]}"
        )

    def _rebuild(self, one: Remote) -> None:
        one.bury()
        block, asked = self.block, self.block.reset_mask.copy()
        block.current[one.number] = -1
        self._start(one, scout=False)
        self._share(one)
        one.wait(self.start_timeout_s, "while its environments were rebuilt", while_progressing=True)
        self._rows.share_again(one, self.start_timeout_s)
        for name, values in self._attributes.items():
            one.tell(protocol.SET_ATTR, self._values_for(one, name, values))
            raise_mistakes([one.wait(self.step_timeout_s, f"in set_attr({name!r})") or {}])
        for _, rows in one.parts:  # the other workers may be reading theirs
            block.reset_mask[rows] = True
        one.tell(protocol.RESET, cloudpickle.dumps(None))
        try:
            one.wait(self.step_timeout_s, "in the reset after a restart")
        finally:
            for _, rows in one.parts:
                block.reset_mask[rows] = asked[rows]
        for _, rows in one.parts:
            block.rewards[rows], block.terminated[rows] = 0.0, False
            block.truncated[rows], block.restarted[rows] = True, True
            for final, row in zip(block.final_observations, block.observations, strict=True):
                final[rows] = row[rows]

    def kill(self) -> None:
        """End the workers at once, without asking. For a process that is about to leave."""
        for one in self._workers:
            one.signal(signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers; none after close."""
        return [one.pid for one in self._workers if one.pid is not None]

    def close_extras(self, **kwargs: Any) -> None:
        """Ask, then terminate, then kill: about 3 seconds at most, whatever the environments do. What an
        environment raised in its `close` is raised when all are gone."""
        if self.closed:
            return
        self.closed = True
        fault = leave(self._workers)
        self._finalizer()
        memory = self.block.memory
        assert memory is not None
        memory.close()
        self._rows.close()
        if fault is not None:
            raise fault
