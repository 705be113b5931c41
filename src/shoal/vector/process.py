"""`process`: few workers, many environments each, one shared block of memory, one wake-up per worker and step.

One process per environment would make 256 environments many times slower than stepping them in turn: the time goes
into waking processes up. Here a step is: write the actions into shared memory, one byte to each worker, one
byte back. The parent notices a dead worker at once (its socket hangs up), a hanging one by a deadline.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import time
import types
import warnings
import weakref
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from typing import Any

import cloudpickle

from shoal.vector import worker as protocol
from shoal.vector.batch import BatchVectorEnv, cut
from shoal.vector.block import Block, SharedMemory
from shoal.vector.chunk import EnvFactory, Infos
from shoal.vector.errors import EnvFault, EnvTimeout, WorkerDied
from shoal.vector.seeding import Stream, episode_seed

START_METHODS = ("spawn", "fork", "forkserver")
START_TIMEOUT_S = 120.0
CLOSE_GRACE_S, TERMINATE_GRACE_S = 1.5, 1.0


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Worker:
    """One worker process and the parent's end of its socket."""

    process: BaseProcess
    connection: socket.socket

    def __init__(self, number: int, parts: list[tuple[int, slice]]) -> None:
        self.number, self.parts = number, parts  # parts: (slice of the batch, rows in it) this worker owns

    def rows(self, part: int) -> slice:
        return next(rows for number, rows in self.parts if number == part)

    def local(self, part: int) -> int:
        return [number for number, _ in self.parts].index(part)


class ProcessVectorEnv(BatchVectorEnv):
    """Environments in worker processes.

    `slices="lockstep"` steps all together; `"double"` cuts the batch into two halves so that acting
    overlaps stepping; `"ready"` makes each worker a slice of its own, received as soon as it is done
    (`ready()`), so that uneven environments do not wait for the slowest.
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        *,
        workers: int | None = None,
        slices: str = "lockstep",
        start_method: str | None = None,
        stream: Stream = Stream.TRAIN,
        step_timeout_s: float = 300.0,
        on_fault: str = "fail",
        max_restarts: int = 10,
        restart_window: int = 10_000,
        check_finite: bool = True,
    ) -> None:
        self._workers: list[_Worker] = []
        self._context = multiprocessing.get_context(safe_start_method(start_method))
        self.factories, self.on_fault, self.step_timeout_s = list(factories), on_fault, step_timeout_s
        self._check_finite = check_finite
        num_envs = len(self.factories)
        count = min(workers or usable_cores(), num_envs)
        self.by_readiness = slices == "ready"
        bounds = {"lockstep": 1, "double": min(2, num_envs), "ready": count}
        if slices not in bounds:
            raise ValueError(f"expected slices as one of {', '.join(bounds)}, got {slices!r}")
        parts = cut(num_envs, bounds[slices])
        probe = self.factories[0]()
        size = Block.size(num_envs, probe.observation_space, probe.action_space, count)
        block = Block(num_envs, probe.observation_space, probe.action_space, count, SharedMemory(size))
        block.clear()
        super().__init__(
            block,
            parts,
            stream=stream,
            max_restarts=max_restarts,
            restart_window=restart_window,
            metadata=probe.metadata,
            spec=probe.spec,
        )
        probe.close()
        for number in range(count):
            if slices == "ready":
                owned = [(number, parts[number])]
            else:
                owned = [(part, _shift(cut(rows.stop - rows.start, count)[number], rows.start))
                         for part, rows in enumerate(parts)]  # fmt: skip
            self._workers.append(_Worker(number, [(part, rows) for part, rows in owned if rows.stop > rows.start]))
        self._serving = [[w for w in self._workers if any(p == part for p, _ in w.parts)] for part in range(len(parts))]
        self._finalizer = weakref.finalize(self, _kill_all, self._workers)
        try:
            for one in self._workers:
                self._start(one)
            for one in self._workers:
                self._await(one, START_TIMEOUT_S, "while its environments were built")
        except BaseException:
            _kill_all(self._workers)
            raise

    # -- one worker ----------------------------------------------------------------------------

    def _start(self, one: _Worker) -> None:
        parent_end, child_end = socket.socketpair()
        forking = self._context.get_start_method() == "fork"
        others = [w.connection.fileno() for w in self._workers if hasattr(w, "connection") and w.connection.fileno() >= 0]
        job = cloudpickle.dumps(
            {
                "num_envs": self.num_envs,
                "observation_space": self.single_observation_space,
                "action_space": self.single_action_space,
                "workers": len(self._workers),
                "worker": one.number,
                "parts": [(rows.start, self.factories[rows]) for _, rows in one.parts],
                "stream": int(self.stream),
                "restart": self.on_fault == "restart",
                "check_finite": self._check_finite,
            }
        )
        close_first = [*others, parent_end.fileno()] if forking else []
        one.process = self._context.Process(  # type: ignore[attr-defined]
            target=protocol.run,
            args=(child_end, self.block.memory, job, close_first),
            daemon=True,
            name=f"shoal-worker-{one.number}",
        )
        with _light_start(self._context.get_start_method()):
            one.process.start()
        child_end.close()
        one.connection = parent_end

    def _await(self, one: _Worker, timeout_s: float, doing: str) -> dict[str, Any] | None:
        """Wait for a worker's answer: None for a plain "done", else its frame. Faults are raised."""
        connection = one.connection
        try:
            connection.settimeout(timeout_s)
            status = connection.recv(1)
            if status == protocol.DONE:
                return None
            if status == protocol.FRAME:
                frame: dict[str, Any] = protocol.marshal.loads(protocol.read_frame(connection))
                if "error" in frame:
                    raise protocol.fault_from_data(frame["error"])
                if frame.get("dropped"):
                    warnings.warn(
                        f"infos that cannot cross a process without pickling were left out: {', '.join(frame['dropped'])}",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return frame
        except TimeoutError:
            where = self._where(one)
            _kill(one)
            raise EnvTimeout(
                f"no answer within {timeout_s:g} s {doing}; the worker was killed. Raise --step-timeout if the "
                "environment is that slow",
                **where,
            ) from None
        except (ConnectionResetError, BrokenPipeError):
            pass
        raise self._obituary(one, doing)

    def _where(self, one: _Worker) -> dict[str, Any]:
        env = int(self.block.current[one.number])
        known = 0 <= env < self.num_envs and self.block.seeds[env] >= 0
        return {
            "env": env if 0 <= env < self.num_envs else one.parts[0][1].start,
            "pid": one.process.pid,
            "seed": int(self.block.seeds[env]) if known else None,
            "step": int(self.block.elapsed[env]) if known else None,
        }

    def _obituary(self, one: _Worker, doing: str) -> WorkerDied:
        where = self._where(one)
        one.process.join(1.0)
        code = one.process.exitcode
        killed_by = -code if code is not None and code < 0 else None
        how = f"killed by {_signal_name(killed_by)}" if killed_by else f"exit code {code}"
        inside = "inside" if self.block.current[one.number] >= 0 else "idle, first of its environments:"
        return WorkerDied(f"a worker died {doing}: {how}; it was {inside} environment {where['env']}",
                          signal=killed_by, **where)  # fmt: skip

    # -- batch ---------------------------------------------------------------------------------

    def _do_reset(self, options: dict[str, Any] | None) -> Infos:
        self._tell_all(protocol.RESET, cloudpickle.dumps(options))
        infos: Infos = []
        for one in self._workers:
            frame = self._await(one, max(self.step_timeout_s, 1.0), "in reset")
            infos += _infos(frame)
        return infos

    def _do_send(self, part: int) -> None:
        for one in self._serving[part]:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # found dead in recv, with a message
                os.write(one.connection.fileno(), bytes((protocol.STEP + one.local(part),)))

    def _do_recv(self, part: int) -> tuple[Infos, list[EnvFault]]:
        infos: Infos = []
        faults: list[EnvFault] = []
        for one in self._serving[part]:
            try:
                frame = self._await(one, self.step_timeout_s, "in step")
            except (WorkerDied, EnvTimeout) as fault:
                if self.on_fault != "restart":
                    raise
                self._replace(one, part)
                faults.append(fault)
                continue
            if frame is not None:
                infos += _infos(frame)
                faults += [protocol.fault_from_data(data) for data in frame["faults"]]
        return infos, faults

    def _replace(self, one: _Worker, part: int) -> None:
        """A new worker for a dead one. All its environments lost their state, so all go on to their next episode."""
        _kill(one)
        one.connection.close()
        self._start(one)
        self._await(one, START_TIMEOUT_S, "while its environments were rebuilt")
        block = self.block
        block.reset_mask[:] = False
        for _, rows in one.parts:
            block.reset_mask[rows] = True
            block.rewards[rows], block.terminated[rows] = 0.0, False
            block.truncated[rows], block.restarted[rows] = True, True
        one.connection.sendall(bytes((protocol.RESET,)) + _framed(cloudpickle.dumps(None)))
        self._await(one, max(self.step_timeout_s, 1.0), "in the reset after a restart")
        for _, rows in one.parts:
            for final, row in zip(block.final_observations, block.observations, strict=True):
                final[rows] = row[rows]

    def ready(self, waiting: Sequence[int], at_least: int = 1) -> list[int]:
        """Those of the slices `waiting` that have an answer; waits until there are `at_least` so many."""
        poll = select.poll()
        by_fd = {}
        for part in waiting:
            fd = self._serving[part][0].connection.fileno()
            by_fd[fd] = part
            poll.register(fd, select.POLLIN)
        deadline = time.monotonic() + self.step_timeout_s
        found: list[int] = []
        while len(found) < min(at_least, len(waiting)):
            events = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
            if not events:
                return list(waiting)  # too late: recv says for whom
            for fd, _ in events:
                found.append(by_fd[fd])
                poll.unregister(fd)
        return sorted(found)

    def _do_replay(self, index: int, episode: int, actions: Sequence[Any]) -> None:
        for one in self._workers:
            for local_part, (_, rows) in enumerate(one.parts):
                if rows.start <= index < rows.stop:
                    payload = cloudpickle.dumps((local_part, index - rows.start, episode, actions))
                    one.connection.sendall(bytes((protocol.REPLAY,)) + _framed(payload))
                    self._await(one, START_TIMEOUT_S, "while an unfinished episode was replayed")

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        self._tell_all(protocol.CALL, cloudpickle.dumps((name, args, kwargs)))
        values: dict[int, Any] = {}
        for one in self._workers:
            frame = self._await(one, self.step_timeout_s, f"in call({name!r})")
            indices = [index for _, rows in one.parts for index in range(rows.start, rows.stop)]
            values.update(zip(indices, cloudpickle.loads(frame["value"] if frame else b""), strict=True))
        return tuple(values[index] for index in range(self.num_envs))

    def _tell_all(self, command: int, payload: bytes) -> None:
        for one in self._workers:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # found dead in _await
                one.connection.sendall(bytes((command,)) + _framed(payload))

    def kill(self) -> None:
        """End the workers at once, without asking. For a process that is about to leave."""
        for one in self._workers:
            if one.process.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.process.pid, signal.SIGKILL)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [one.process.pid for one in self._workers if one.process.pid is not None]

    def close_extras(self, **kwargs: Any) -> None:
        """Ask, then terminate, then kill; bounded by about 3 seconds whatever the environments do."""
        fault: EnvFault | None = None
        for one in self._workers:
            with contextlib.suppress(OSError):
                one.connection.sendall(bytes((protocol.CLOSE,)))
        deadline = time.monotonic() + CLOSE_GRACE_S
        for one in self._workers:
            try:
                self._await(one, max(deadline - time.monotonic(), 0.01), "in close")
            except (WorkerDied, EnvTimeout, OSError):
                continue
            except EnvFault as error:
                fault = fault or error
        self._finalizer()
        if fault is not None:
            raise fault


# -- helpers -------------------------------------------------------------------------------------


def safe_start_method(wanted: str | None) -> str:
    """The start method to use: `forkserver` where there is one, since it never copies a process that has
    threads (torch's, say), and its workers share the imports they have in common; else `spawn`."""
    if wanted is None:
        return "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    if wanted not in START_METHODS:
        raise ValueError(f"expected a start method of {', '.join(START_METHODS)}, got {wanted!r}")
    if wanted == "fork" and "torch" in sys.modules:
        warnings.warn(
            "fork after torch was imported: a worker may deadlock on a lock that a thread held. "
            "Prefer --start-method forkserver",
            RuntimeWarning,
            stacklevel=3,
        )
    return wanted


@contextlib.contextmanager
def _light_start(method: str) -> Iterator[None]:
    """Start a worker without the caller's `__main__` and with one thread per library.

    multiprocessing imports the main script again in every child, and with it whatever the script imports
    (torch: 150 MB and seconds); it also asks for an `if __name__ == "__main__"` guard for that reason. Our
    workers get their environments by cloudpickle and need none of it, so a blank module stands in for `__main__`.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    saved = {name: os.environ.get(name) for name in names}
    main = sys.modules["__main__"]
    if method != "fork":
        sys.modules["__main__"] = types.ModuleType("__main__")
    if method == "forkserver":
        multiprocessing.set_forkserver_preload(["shoal.vector.worker"])
    for name, value in saved.items():
        os.environ[name] = value or "1"
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in saved.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _kill(one: _Worker) -> None:
    if hasattr(one, "process") and one.process.is_alive():
        one.process.kill()
        one.process.join(2.0)


def _kill_all(workers: list[_Worker]) -> None:
    """End every worker: those still alive get SIGTERM, then SIGKILL."""
    started = [one for one in workers if hasattr(one, "process") and one.process.pid is not None]
    for one in started:
        if hasattr(one, "connection"):
            one.connection.close()
    for one in started:
        one.process.join(0.1)
        if one.process.is_alive():
            one.process.terminate()
    deadline = time.monotonic() + TERMINATE_GRACE_S
    for one in started:
        one.process.join(max(deadline - time.monotonic(), 0.0))
    for one in started:
        _kill(one)


def _shift(rows: slice, by: int) -> slice:
    return slice(rows.start + by, rows.stop + by)


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


def _infos(frame: dict[str, Any] | None) -> Infos:
    if frame is None:
        return []
    return [(index, protocol.unpack(info), protocol.unpack(final)) for index, info, final in frame["infos"]]


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
