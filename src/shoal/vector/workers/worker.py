"""The other side of `process`: a process that owns some environments and steps them when told to.

The protocol is one byte each way for a step (which slice; done), over a socket pair. Everything else
(reset, replay, close, a call, a fault, infos) is the byte and a length-prefixed frame of plain data; only what
the user hands over on purpose (factories, reset options, arguments of `call`) is cloudpickled, and never in `step`.

A worker begins with HELLO: either "build your first environment and tell me its spaces" or nothing; then it gets the
shared memory as a descriptor over the same socket, builds all its environments and says DONE.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import marshal
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from types import FrameType
from typing import Any

import cloudpickle
import gymnasium as gym

from shoal.core.errors import EnvFault, as_fault
from shoal.vector.chunk import Chunk, Infos, close_all, take_faults
from shoal.vector.environments import first_environment
from shoal.vector.memory import Block, SharedMemory
from shoal.vector.workers.protocol import DONE, fault_to_data, pack, read_payload, send_frame
from shoal.vector.workers.spin import Lookout

RESET, REPLAY, CALL, CLOSE, ROLLOUT, SET_ATTR, STEP = 0, 1, 2, 3, 4, 5, 16  # a byte >= STEP steps slice (byte - STEP)


class _Leave(BaseException):
    """The owner closed the batch and sent SIGTERM: unwind, out of whatever the environment is doing."""


def run(
    connection: socket.socket, first: int, job: bytes, die_with_starter: bool, close_first: Sequence[int] = ()
) -> None:
    """Main of the worker whose lowest environment is `first`. `job` is a cloudpickled dict: factories and options."""
    for fd in close_first:  # under fork: the parent's ends of the sockets of our siblings
        os.close(fd)
    # Ctrl-C and a SIGTERM to the whole group are the parent's to answer. Handlers, not SIG_IGN: a program that an
    # environment starts would inherit that.
    signal.signal(signal.SIGINT, _nothing)
    signal.signal(signal.SIGTERM, _nothing)
    _die_with_parent(connection, die_with_starter)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError, _Leave):  # the parent is gone, or will not listen
        _work(connection, first, job)
    connection.close()


def _work(connection: socket.socket, first: int, job: bytes) -> None:
    try:
        options = cloudpickle.loads(job)
        first_env = None
        if options["scout"]:
            first_env = first_environment(options["parts"][0][1][0], first)
            send_frame(connection, {"spaces": spaces_of(first_env)})
        options |= cloudpickle.loads(read_payload(connection))
        memory = _shared(connection, options["memory_size"])
        block = Block(
            options["num_envs"], options["observation_space"], options["action_space"], options["workers"], memory
        )
        signal.signal(signal.SIGTERM, _leave_if_closing(block))
        chunks = [
            Chunk(
                factories,
                start,
                block,
                worker=options["worker"],
                first_env=first_env if part == 0 else None,
                **options["chunks"],
            )
            for part, (start, factories) in enumerate(options["parts"])
        ]
        if hasattr(os, "SCHED_BATCH"):
            # A worker that is woken must not push the parent off its core before the other workers are woken too.
            with contextlib.suppress(OSError):  # a sandbox may forbid it; it only makes waking faster
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        gc.freeze()  # what lives now lives for ever: keep the collector from walking it
        connection.sendall(DONE)
        _serve(connection, chunks, options["look_s"])
    except EnvFault as fault:
        send_frame(connection, {"error": fault_to_data(fault)})
    except (BrokenPipeError, ConnectionResetError, _Leave):
        raise
    except BaseException as error:
        send_frame(connection, {"error": fault_to_data(as_fault(error, "in a worker", first, None, None))})


def _serve(connection: socket.socket, chunks: list[Chunk], look_s: float) -> None:
    fd = connection.fileno()
    lookout = Lookout(fd, look_s)
    while True:
        lookout.look()
        command = os.read(fd, 1)
        if not command:
            return  # the parent closed its end
        code = command[0]
        if code >= STEP:
            chunk = chunks[code - STEP]
            infos = chunk.step()
            if not infos and not chunk.faults:
                os.write(fd, DONE)
                continue
            send_frame(connection, news(infos, chunk))
        elif code == RESET:
            options = cloudpickle.loads(read_payload(connection))
            everything: list[Any] = [entry for chunk in chunks for entry in chunk.reset(options)]
            send_frame(connection, news(everything, *chunks))
        elif code == REPLAY:
            part, local, episode, actions = cloudpickle.loads(read_payload(connection))
            followed = chunks[part].replay(local, episode, actions)
            send_frame(connection, {"followed": followed, **news([], *chunks)})
        elif code == ROLLOUT:
            rows, size = marshal.loads(read_payload(connection))
            chunks[0].block.set_rollout(rows, _shared(connection, size))
            os.write(fd, DONE)
        elif code == CALL:
            send_frame(connection, call_all(chunks, *cloudpickle.loads(read_payload(connection))))
        elif code == SET_ATTR:
            send_frame(connection, set_all(chunks, *cloudpickle.loads(read_payload(connection))))
        else:
            fault = close_all(chunks)
            send_frame(connection, {"error": fault_to_data(fault)} if fault else {})
            return


def _shared(connection: socket.socket, size: int) -> SharedMemory:
    """Memory whose descriptor comes next."""
    _, fds, _, _ = socket.recv_fds(connection, 1, 1)
    memory = SharedMemory(size, fds[0])
    memory.close()  # the mapping stays
    return memory


def call_all(chunks: list[Chunk], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A mistake in a call is the caller's: it is told, and the worker goes on."""
    try:
        values = [value for chunk in chunks for value in chunk.call(name, args, kwargs)]
        return {"value": cloudpickle.dumps(values)}
    except EnvFault as fault:
        return {"mistake": fault_to_data(fault)}
    except Exception as error:  # the values cannot be pickled
        return {"mistake": fault_to_data(as_fault(error, f"in call({name!r})", chunks[0].first, None, None))}


def set_all(chunks: list[Chunk], name: str, values: list[list[Any]]) -> dict[str, Any]:
    try:
        for chunk, own in zip(chunks, values, strict=True):
            chunk.set_attr(name, own)
        return {}
    except EnvFault as fault:
        return {"mistake": fault_to_data(fault)}


def news(infos: Infos, *chunks: Chunk) -> dict[str, Any]:
    """Infos, and the faults that the chunks survived, as plain data."""
    dropped: set[str] = set()
    packed = [(i, pack(info, dropped), pack(final, dropped)) for i, info, final in infos]
    faults = [fault_to_data(fault) for fault in take_faults(*chunks)]
    return {"infos": packed, "faults": faults, "dropped": sorted(dropped)}


def spaces_of(env: gym.Env[Any, Any]) -> bytes:
    """What the parent must know of the environments, since it builds none itself."""
    known = {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "metadata": env.metadata,
        "render_mode": env.render_mode,
    }
    try:
        return bytes(cloudpickle.dumps({**known, "spec": env.spec}))
    except Exception:  # a spec may hold anything; the batch works without it
        return bytes(cloudpickle.dumps({**known, "metadata": {}, "spec": None}))


# -- signals and the parent's death ----------------------------------------------------------------


def _nothing(number: int, frame: FrameType | None) -> None:
    return None


def _leave_if_closing(block: Block) -> Any:
    def handle(number: int, frame: FrameType | None) -> None:
        if block.closing[0]:
            raise _Leave

    return handle


def _die_with_parent(connection: socket.socket, die_with_starter: bool) -> None:
    """End this process when the parent is gone, even if it is inside an environment then."""
    # The fork server leaves when nobody holds this descriptor any more; its children inherit it, and would keep the
    # server, and themselves, alive after the parent's death. A private name: without it only the GIL case is lost.
    server = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None
    if sys.platform == "linux" and die_with_starter:
        # PR_SET_PDEATHSIG: works even while an environment holds the GIL. It means the death of the thread that
        # started us, so it is asked for only where that thread lives as long as the parent.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    parent_is_gone = _by_asking(os.getppid()) if sys.platform == "darwin" else _by_hang_up(connection.fileno())

    def watch() -> None:
        while not parent_is_gone():
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="shoal-watch-parent").start()


def _by_hang_up(fd: int) -> Callable[[], bool]:
    """Sleeps until something is up with the socket: is it that the other end is closed?"""
    poll = select.poll()
    poll.register(fd, 0)  # no events asked for: wakes for a hang-up or an error only
    return lambda: any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll())


def _by_asking(parent: int, every_s: float = 1.0) -> Callable[[], bool]:
    """On macOS a poll without events does not report a hang-up, and may return for nothing: ask who the parent is.
    Under forkserver that is the server, which ends when its owner does."""

    def is_gone() -> bool:
        time.sleep(every_s)
        return os.getppid() != parent

    return is_gone
