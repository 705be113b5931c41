"""NumPy arrays to safetensors bytes and back. The header is checked before anything is allocated for it."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from shoal.runs.disk import from_json

MOST_HEADER_BYTES = 4 << 20
MOST_NAME_CHARACTERS = 256
MOST_DIMENSIONS = 32

# safetensors' names for the dtypes that round-trip exactly through NumPy.
_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}


def check_name(name: str) -> None:
    """A tensor's name may one day become a file's: no way up, no absolute path, nothing invisible."""
    if not 0 < len(name) <= MOST_NAME_CHARACTERS or not name.isprintable() or name == "__metadata__":
        raise ValueError(f"tensor name {name[:80]!r}: expected 1 to {MOST_NAME_CHARACTERS} printable characters")
    if ".." in name or name.startswith("/") or "\\" in name:
        raise ValueError(f"tensor name {name!r}: '..', a leading '/' and '\\' are not allowed")


def pack(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Arrays of any order and byte order as safetensors.

    >>> sorted(safetensors.numpy.load(pack({"w": np.zeros((2, 3), np.float32)})))
    ['w']
    """
    plain: dict[str, np.ndarray[Any, Any]] = {}
    for name, array in tensors.items():
        check_name(name)
        dtype = array.dtype.newbyteorder("<")
        if dtype not in _DTYPES.values():
            raise TypeError(
                f"tensor {name!r} has dtype {array.dtype}; expected bool, (u)int8-64 or float16-64. "
                "Save other records as bytes: array.view(np.uint8)"
            )
        # safetensors copies nbytes from the array's address, whatever its strides: C order first.
        # (np.ascontiguousarray would turn a 0-d array into a 1-d one.)
        plain[name] = np.asarray(array, dtype=dtype, order="C")
    data = safetensors.numpy.save(plain)
    header_bytes = int.from_bytes(data[:8], "little")
    if header_bytes > MOST_HEADER_BYTES:
        raise ValueError(f"{len(plain):,} tensors need a header of {header_bytes:,} bytes; join some of them")
    return data


def unpack(handle: IO[bytes], size: int) -> dict[str, np.ndarray[Any, Any]]:
    """Read a safetensors file of `size` bytes; whatever does not add up is a ValueError."""
    _check_header(handle, size)
    handle.seek(0)
    try:
        return safetensors.numpy.load(handle.read(size))
    except SafetensorError as error:
        raise ValueError(f"not a safetensors file: {error}") from None


def unpack_bytes(data: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """The inverse of `pack`."""
    return unpack(io.BytesIO(data), len(data))


def _check_header(handle: IO[bytes], size: int) -> None:
    header_bytes = int.from_bytes(handle.read(8), "little")
    data_bytes = size - 8 - header_bytes
    if header_bytes > MOST_HEADER_BYTES or data_bytes < 0:
        raise ValueError(
            f"not a safetensors file: its header claims {header_bytes:,} bytes, "
            f"the file has {size:,} and at most {MOST_HEADER_BYTES:,} are read"
        )
    header = from_json(handle.read(header_bytes))
    header.pop("__metadata__", None)
    for name, spec in header.items():
        check_name(name)
        try:
            dtype, shape, (begin, end) = spec["dtype"], spec["shape"], spec["data_offsets"]
            itemsize = _DTYPES[dtype].itemsize
            sound = len(shape) <= MOST_DIMENSIONS and all(
                type(number) is int and number >= 0 for number in (*shape, begin, end)
            )
        except (KeyError, TypeError, ValueError):
            sound = False
        if not sound or end > data_bytes or math.prod(shape) * itemsize != end - begin:
            raise ValueError(f"tensor {name!r} does not fit the file: {str(spec)[:200]}")
