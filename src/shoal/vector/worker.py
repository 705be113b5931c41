"""The other side of `process`: a process that owns some environments and steps them when told to.

The protocol is one byte each way for a step (which slice; done), over a socket pair. Everything else
(reset, replay, close, a call, a fault, infos) is the byte and a length-prefixed frame. Frames carry plain
data by `marshal`, which cannot construct objects; only what the user hands over on purpose (factories, reset
options, arguments of `call`) is cloudpickled, and never in `step`.
"""

from __future__ import annotations

import ctypes
import gc
import marshal
import os
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

import cloudpickle
import numpy as np

from shoal.vector import errors
from shoal.vector.block import Block, SharedMemory
from shoal.vector.chunk import Chunk, Infos
from shoal.vector.errors import EnvFault
from shoal.vector.seeding import Stream

RESET, REPLAY, CALL, CLOSE, STEP = 0, 1, 2, 3, 16  # a byte >= STEP steps slice (byte - STEP)
DONE, FRAME = b"d", b"f"


def run(
    connection: socket.socket,
    memory: SharedMemory,
    job: bytes,
    close_first: Sequence[int] = (),
) -> None:
    """Main of a worker. `job` is a cloudpickled dict: factories, slices, spaces and options."""
    for fd in close_first:  # under fork: the parent's ends of the sockets of our siblings
        os.close(fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with_parent(connection)
    chunks: list[Chunk] = []
    try:
        options = cloudpickle.loads(job)
        block = Block(
            options["num_envs"], options["observation_space"], options["action_space"], options["workers"], memory
        )
        for first, factories in options["parts"]:
            chunks.append(
                Chunk(
                    factories,
                    first,
                    block,
                    stream=Stream(options["stream"]),
                    restart=options["restart"],
                    check_finite=options["check_finite"],
                    worker=options["worker"],
                )
            )
        gc.freeze()  # what lives now lives for ever: keep the collector from walking it
        connection.sendall(DONE)
        _serve(connection, chunks)
    except EnvFault as fault:
        send_frame(connection, {"error": fault_to_data(fault)})
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent is gone: nobody to tell
    except BaseException as error:
        send_frame(connection, {"error": fault_to_data(_own_fault(error))})
    finally:
        connection.close()


def _serve(connection: socket.socket, chunks: list[Chunk]) -> None:
    fd = connection.fileno()
    while True:
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
            send_frame(connection, _news(infos, chunk))
        elif code == RESET:
            options = cloudpickle.loads(read_frame(connection))
            everything: list[Any] = [entry for chunk in chunks for entry in chunk.reset(options)]
            send_frame(connection, _news(everything, *chunks))
        elif code == REPLAY:
            part, local, episode, actions = cloudpickle.loads(read_frame(connection))
            chunks[part].replay(local, episode, actions)
            os.write(fd, DONE)
        elif code == CALL:
            name, args, kwargs = cloudpickle.loads(read_frame(connection))
            values = [env.get_wrapper_attr(name) for chunk in chunks for env in chunk.envs]
            values = [value(*args, **kwargs) if callable(value) else value for value in values]
            send_frame(connection, {"value": cloudpickle.dumps(values)})
        else:
            for chunk in chunks:
                chunk.close()
            os.write(fd, DONE)
            return


def _news(infos: Infos, *chunks: Chunk) -> dict[str, Any]:
    dropped: set[str] = set()
    packed = [[i, pack(info, dropped), pack(final, dropped)] for i, info, final in infos]
    faults = [fault_to_data(fault) for chunk in chunks for fault in chunk.faults]
    for chunk in chunks:
        chunk.faults = []
    return {"infos": packed, "faults": faults, "dropped": sorted(dropped)}


def _die_with_parent(connection: socket.socket) -> None:
    """End this process when the parent is gone, even if it is inside an environment then."""
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: helps when the parent forked us itself and the environment holds the GIL.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    poll = select.poll()
    poll.register(connection.fileno(), 0)  # no events asked for: wakes for a hang-up only

    def watch() -> None:
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="shoal-watch-parent").start()


def _own_fault(error: BaseException) -> EnvFault:
    name = type(error).__name__
    trace = "".join(traceback.format_exception(error))
    return errors.EnvRaised(f"{name} in a worker: {error}", pid=os.getpid(), kind=name, worker_traceback=trace)


# -- frames --------------------------------------------------------------------------------------


def send_frame(connection: socket.socket, data: dict[str, Any]) -> None:
    """FRAME, 4 bytes of length, marshalled plain data."""
    payload = marshal.dumps(data)
    connection.sendall(FRAME + struct.pack("<I", len(payload)) + payload)


def read_frame(connection: socket.socket) -> bytes:
    """The rest of a frame whose first byte has been read."""
    (size,) = struct.unpack("<I", _read(connection, 4))
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionResetError("the other side is gone")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def pack(value: Any, dropped: set[str], key: str = "info") -> Any:
    """Infos as plain data; what is neither number, text, array nor container of them is left out, by name."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufSU":
        return {"__array__": [value.dtype.str, list(value.shape), value.tobytes()]}
    if isinstance(value, np.generic):
        return {"__scalar__": [value.dtype.str, value.tobytes()]}
    if isinstance(value, dict):
        packed = {str(k): pack(v, dropped, str(k)) for k, v in value.items()}
        return {k: v for k, v in packed.items() if v is not _DROPPED}
    if isinstance(value, list | tuple):
        parts = [pack(v, dropped, key) for v in value]
        return None if any(part is _DROPPED for part in parts) else {"__list__": [parts, isinstance(value, tuple)]}
    dropped.add(f"{key} ({type(value).__name__})")
    return _DROPPED


_DROPPED = object()


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    if not isinstance(value, dict):
        return value
    if "__array__" in value:
        dtype, shape, data = value["__array__"]
        return np.frombuffer(data, dtype).reshape(shape).copy()
    if "__scalar__" in value:
        dtype, data = value["__scalar__"]
        return np.frombuffer(data, dtype)[0]
    if "__list__" in value:
        parts, is_tuple = value["__list__"]
        return tuple(map(unpack, parts)) if is_tuple else list(map(unpack, parts))
    return {k: unpack(v) for k, v in value.items()}


def fault_to_data(fault: EnvFault) -> dict[str, Any]:
    """An error as text: exceptions are never pickled."""
    return {
        "class": type(fault).__name__,
        "message": fault.message,
        "env": fault.env,
        "pid": fault.pid,
        "seed": fault.seed,
        "step": fault.step,
        "kind": fault.kind,
        "worker_traceback": fault.worker_traceback,
    }


def fault_from_data(data: dict[str, Any]) -> EnvFault:
    """The inverse of `fault_to_data`."""
    data = dict(data)
    kind = getattr(errors, data.pop("class"))
    fault: EnvFault = kind(data.pop("message"), **data)
    return fault
