"""One worker process as its parent sees it: starting it, telling it, waiting for it, burying it.

A command is owed one answer. Answers come in the order of the commands, so `owed` says what the next one is about, even
after a Ctrl-C between command and answer; one that breaks into the reading of an answer makes the worker unusable,
and it is said so.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
import warnings
from collections import deque
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

from shoal.core.errors import EnvFault, EnvTimeout, WorkerDied
from shoal.vector.memory import Block
from shoal.vector.workers import worker as protocol
from shoal.vector.workers.launch import dies_with_starter, light_start
from shoal.vector.workers.protocol import DONE, FRAME, fault_from_data, framed, read_frame
from shoal.vector.workers.spin import Lookout

CLOSE_S, LEAVE_S = 1.5, 0.5  # closing: environments close, processes end
_LOOK_S = 1.0  # waits are cut into pieces: while the whole group is stopped (Ctrl-Z) at most one of them passes


class Remote:
    """A worker that owns `parts`: (slice of the batch, its rows of that slice)."""

    process: BaseProcess
    connection: socket.socket

    def __init__(self, number: int, parts: list[tuple[int, slice]], look_s: float = 0.0) -> None:
        self.number, self.parts, self.look_s = number, parts, look_s
        self.block: Block | None = None
        self.step_bytes = {part: bytes((protocol.STEP + k,)) for k, (part, _) in enumerate(parts)}
        self.owed: deque[int] = deque()  # commands not yet answered: a slice's number, or -1 - command
        self.answers: dict[int, dict[str, Any] | None] = {}  # of slices, not yet asked for
        self.lost: set[int] = set()  # slices whose environments were restarted since they were last received
        self._reading = False

    @property
    def first(self) -> int:
        """The lowest environment it owns."""
        return int(self.parts[0][1].start)

    @property
    def environments(self) -> list[int]:
        """All environments it owns, in its own order."""
        return [index for _, rows in self.parts for index in range(rows.start, rows.stop)]

    # -- starting and ending -------------------------------------------------------------------

    def start(self, context: BaseContext, job: bytes, siblings: list[Remote], send_timeout_s: float) -> None:
        """Start the process. It has yet to be told about the shared memory."""
        method = context.get_start_method()
        parent_end, child_end = socket.socketpair()
        parent_end.settimeout(send_timeout_s)
        others = [one.connection.fileno() for one in siblings if one is not self and one.is_connected]
        try:
            self.process = context.Process(  # type: ignore[attr-defined]
                target=protocol.run,
                args=(
                    child_end,
                    self.first,
                    job,
                    dies_with_starter(method),
                    [*others, parent_end.fileno()] if method == "fork" else [],
                ),
                daemon=True,
                name=f"shoal-worker-{self.number}",
            )
            with light_start(method):
                self.process.start()
        except BaseException:
            parent_end.close()
            raise
        finally:
            child_end.close()
        self.connection, self._fd = parent_end, parent_end.fileno()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._lookout = Lookout(self._fd, self.look_s)
        self._reading = False
        self.owed.clear()
        self.owed.append(-1)  # it says when it is ready

    def share(self, block: Block, details: bytes) -> None:
        """Hand over the shared memory."""
        self.block = block
        assert block.memory is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # found dead when waited for
            self.connection.sendall(framed(details))
            socket.send_fds(self.connection, [b"m"], [block.memory.fd])

    @property
    def is_connected(self) -> bool:
        return hasattr(self, "connection") and self.connection.fileno() >= 0

    @property
    def pid(self) -> int | None:
        try:
            return self.process.pid
        except (AttributeError, ValueError):  # not started, or buried
            return None

    def is_alive(self) -> bool:
        return self.pid is not None and self.process.is_alive()

    def signal(self, number: int) -> None:
        """Send it a signal, if it lives."""
        with contextlib.suppress(ProcessLookupError):
            if self.is_alive():
                os.kill(self.process.pid or 0, number)

    def bury(self) -> None:
        """Kill it if it lives, and give back its descriptors."""
        self.signal(signal.SIGKILL)
        if self.is_connected:
            self.connection.close()
        if self.pid is not None:
            self.process.join(5.0)
            with contextlib.suppress(ValueError):  # cannot be reaped (stuck in the kernel): leave it
                self.process.close()

    # -- talking -------------------------------------------------------------------------------

    def tell(self, command: int, payload: bytes | None = None, fd: int | None = None) -> None:
        """A command that is not a step; with `fd` a descriptor goes along."""
        self.owed.append(-1 - command)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # found dead when waited for
            self.connection.sendall(bytes((command,)) + (framed(payload) if payload is not None else b""))
            if fd is not None:
                socket.send_fds(self.connection, [b"m"], [fd])

    def send_step(self, part: int) -> None:
        """One byte: step your environments of this slice."""
        if part in self.lost:  # their episodes are new and unseen: show them instead of stepping
            self.lost.discard(part)
            self.answers[part] = None
            return
        self.owed.append(part)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            os.write(self._fd, self.step_bytes[part])

    def take_step(self, part: int, timeout_s: float) -> dict[str, Any] | None:
        """The answer to `send_step`: None, or a frame with news."""
        while part not in self.answers:
            about = self.owed[0]
            self._lookout.look()
            self.answers[about] = self.wait(timeout_s, "in step")
        return self.answers.pop(part)

    def wait(
        self, timeout_s: float, doing: str, *, while_progressing: bool = False, spare: bool = False
    ) -> dict[str, Any] | None:
        """The answer to the oldest unanswered command: None for a plain "done", else its frame. Faults are
        raised. A worker that is late is killed (not with `spare`); with `while_progressing` the deadline moves
        as long as the environment's clock does."""
        if self._reading:
            raise WorkerDied(
                "an earlier answer of this worker was interrupted half-way (Ctrl-C), so the next one cannot be told "
                "apart; make a new batch", **self.where(False),
            )  # fmt: skip
        if not self._poll.poll(min(timeout_s, _LOOK_S) * 1000):
            self._keep_waiting(timeout_s, doing, while_progressing, spare)
        self._reading, frame = True, None
        try:
            status = os.read(self._fd, 1)
            frame = read_frame(self.connection) if status == FRAME else None
        except (ConnectionResetError, BrokenPipeError, TimeoutError):
            status = b""
        if status != DONE and frame is None:
            raise self._obituary(doing, f"it sent {status!r}, which is no answer" if status else "")
        self.owed.popleft()
        self._reading = False
        if frame is not None and "error" in frame:
            raise fault_from_data(frame["error"])
        return frame

    def _keep_waiting(self, timeout_s: float, doing: str, while_progressing: bool, spare: bool) -> None:
        # What it did during the first look is not known: with a moving deadline that look does not count.
        left, seen = timeout_s - (0.0 if while_progressing else _LOOK_S), self._progress()
        while left > 0:
            if self._poll.poll(min(left, _LOOK_S) * 1000):
                return
            left -= _LOOK_S
            if while_progressing and self._progress() != seen:
                left, seen = timeout_s, self._progress()
        where = self.where(doing == "in step")
        if not spare:
            self.signal(signal.SIGKILL)
        hint = ". Raise --step-timeout if the environment is that slow" if doing in ("in step", "in reset") else ""
        if "built" in doing:
            hint = ". Raise --build-timeout if building one environment takes that long"
        raise EnvTimeout(f"no answer within {timeout_s:g} s {doing}; the worker was killed{hint}", **where)

    def _progress(self) -> tuple[int, int]:
        if self.block is None:
            return -1, 0
        env = int(self.block.current[self.number])
        return env, int(self.block.elapsed[env])

    # -- what happened to it -------------------------------------------------------------------

    def where(self, stepping: bool) -> dict[str, Any]:
        """Environment, pid, seed and step, as far as the shared block tells."""
        block = self.block
        env = int(block.current[self.number]) if block is not None else -1
        inside = env >= 0
        env = env if inside else self.first
        known = block is not None and block.seeds[env] >= 0
        return {
            "env": env,
            "pid": self.pid,
            "seed": int(block.seeds[env]) if block is not None and known else None,
            "step": int(block.elapsed[env]) + (inside and stepping) if block is not None and known else None,
        }

    def _obituary(self, doing: str, symptom: str) -> WorkerDied:
        where = self.where(doing == "in step")
        inside = self.block is not None and self.block.current[self.number] >= 0
        self.process.join(1.0)
        code = self.process.exitcode
        if code is None:  # it lives, but cannot be talked to
            self.signal(signal.SIGKILL)
            symptom = (
                symptom or "its end of the socket is closed (did the environment close descriptors it does not own?)"
            )
        killed_by = -code if code is not None and code < 0 else None
        how = symptom or (f"killed by {_signal_name(killed_by)}" if killed_by else f"exit code {code}")
        place = (
            f"it was inside environment {where['env']}"
            if inside
            else f"it was idle (its first environment is {where['env']})"
        )
        return WorkerDied(f"a worker died {doing}: {how}; {place}", signal=killed_by, **where)


def leave(workers: list[Remote]) -> EnvFault | None:
    """Ask every worker to close its environments and end. Returns what one of them raised in its `close`, first."""
    fault: EnvFault | None = None
    for one in workers:
        with contextlib.suppress(OSError):
            one.tell(protocol.CLOSE)
    deadline = time.monotonic() + CLOSE_S
    for one in workers:
        try:
            while len(one.owed) > 1:  # steps that nobody waits for any more
                one.wait(max(deadline - time.monotonic(), 0.01), "in close", spare=True)
        except (EnvFault, OSError):
            continue
        try:
            one.wait(max(deadline - time.monotonic(), 0.01), "in close", spare=True)
            one.process.join(LEAVE_S)
        except (WorkerDied, OSError):
            continue
        except EnvTimeout as late:
            text = f"environment {late.env} (worker pid {late.pid}) did not close within {CLOSE_S:g} s and was killed"
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        except EnvFault as error:
            fault = fault or error
    return fault


def end_all(workers: list[Remote], grace_s: float) -> None:
    """End every worker that has not left already: SIGTERM, `grace_s` to unwind, SIGKILL."""
    living = [one for one in workers if one.is_alive()]
    for one in living:
        if one.block is None:  # it is only starting, and holds nothing
            one.signal(signal.SIGKILL)
        else:
            one.block.closing[0] = True
            one.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for one in living:
        one.process.join(max(deadline - time.monotonic(), 0.0))
    for one in workers:
        one.bury()


def _signal_name(number: int) -> str:
    try:
        return f"{signal.Signals(number).name} (signal {number})"
    except ValueError:
        return f"signal {number}"
