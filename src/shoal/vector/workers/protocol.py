"""What crosses between a worker and its parent besides one-byte commands: frames of plain data.

A frame is the byte FRAME, 4 bytes of length and a `marshal` dump, which cannot construct objects. Infos and
faults travel this way; exceptions are never pickled.
"""

from __future__ import annotations

import marshal
import socket
import struct
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.core import errors
from shoal.core.errors import EnvFault

DONE, FRAME = b"d", b"f"
_PLAIN = (bool, int, float, str, bytes, complex, type(None))
_ARRAY_KINDS = "biufcSUmM"


def send_frame(connection: socket.socket, data: dict[str, Any]) -> None:
    """Send plain data as a frame."""
    connection.sendall(FRAME + framed(marshal.dumps(data)))


def framed(payload: bytes) -> bytes:
    """A payload behind its length."""
    return struct.pack("<I", len(payload)) + payload


def read_frame(connection: socket.socket) -> dict[str, Any]:
    """The data of a frame whose first byte has been read."""
    data: dict[str, Any] = marshal.loads(read_payload(connection))
    return data


def read_payload(connection: socket.socket) -> bytes:
    """What `framed` made."""
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


class _Dropped:
    """Stands for what cannot be packed."""


_DROPPED = _Dropped()


def pack(value: Any, dropped: set[str], key: str = "info") -> Any:
    """Infos as plain data. What is neither number, text, array nor a container of them is left out, and its
    name added to `dropped`. Whatever is not plain already becomes a (tag, ...) tuple."""
    if type(value) in _PLAIN:
        return value
    if type(value) is np.ndarray and value.dtype.kind in _ARRAY_KINDS:
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic) and value.dtype.kind in _ARRAY_KINDS:
        return "scalar", value.dtype.str, value.tobytes()
    if type(value) is dict:
        packed = {k: pack(v, dropped, str(k)) for k, v in value.items() if type(k) in _PLAIN}
        dropped.update(f"{k!r} (a key)" for k in value if type(k) not in _PLAIN)
        return "dict", {k: v for k, v in packed.items() if v is not _DROPPED}
    if type(value) in (list, tuple):
        parts = [pack(v, dropped, key) for v in value]
        return _DROPPED if any(part is _DROPPED for part in parts) else (type(value).__name__, parts)
    dropped.add(f"{key} ({type(value).__name__})")
    return _DROPPED


def unpack(value: Any) -> Any:
    """The inverse of `pack`."""
    if type(value) is not tuple:
        return value
    tag, *rest = value
    if tag == "array":
        dtype, shape, data = rest
        return np.frombuffer(data, dtype).reshape(shape).copy()
    if tag == "scalar":
        dtype, data = rest
        return np.frombuffer(data, dtype)[0]
    if tag == "dict":
        return {k: unpack(v) for k, v in rest[0].items()}
    return [unpack(v) for v in rest[0]] if tag == "list" else tuple(unpack(v) for v in rest[0])


_FIELDS = ("message", "env", "pid", "seed", "step", "kind", "worker_traceback")


def fault_to_data(fault: EnvFault) -> dict[str, Any]:
    """An error as text."""
    data = {name: getattr(fault, name) for name in _FIELDS}
    return {"class": type(fault).__name__, "aftermath": fault.aftermath, **data}


def fault_from_data(data: dict[str, Any]) -> EnvFault:
    """The inverse of `fault_to_data`."""
    kind = getattr(errors, data["class"], errors.EnvRaised)
    fault: EnvFault = kind(data["message"], **{name: data[name] for name in _FIELDS[1:]})
    fault.aftermath = data["aftermath"]
    return fault


def faults_of(frame: dict[str, Any]) -> list[EnvFault]:
    """The faults that a worker survived."""
    return [fault_from_data(data) for data in frame["faults"]]


class Sieve:
    """Infos out of frames; what a worker had to leave out is told, once for each name."""

    def __init__(self) -> None:
        self._dropped: set[str] = set()

    def __call__(self, frame: dict[str, Any]) -> list[tuple[int, Any, Any]]:
        """(environment, info, final info) of each that has any."""
        dropped = set(frame["dropped"]) - self._dropped
        if dropped:
            self._dropped |= dropped
            names = ", ".join(sorted(dropped))
            warnings.warn(
                f"infos that cannot cross a process without pickling are left out: {names}",
                RuntimeWarning,
                stacklevel=6,
            )
        return [(index, unpack(info), unpack(final)) for index, info, final in frame["infos"]]


def raise_mistakes(frames: Sequence[dict[str, Any]]) -> None:
    """Of what workers answered to something the user called: the first complaint."""
    for frame in frames:
        if "mistake" in frame:
            raise fault_from_data(frame["mistake"])
