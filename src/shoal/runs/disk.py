"""Bytes on disk: a crash leaves the old or the new, never a part; a hostile file is refused unread."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn

# Flags that a system lacks are 0 there; O_BINARY is Windows' own, without it a newline would become two characters.
CLOEXEC, BINARY = getattr(os, "O_CLOEXEC", 0), getattr(os, "O_BINARY", 0)
_CAREFUL = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
TEMPORARY = ".tmp-"  # whatever starts with this is left over from a crash and may be deleted


def fault_point(name: str, epoch: int) -> None:
    """For tests only: kill this process (SIGKILL) when SHOAL_FAULT_POINT is `name` or `name@epoch`."""
    if os.environ.get("SHOAL_FAULT_POINT") in (name, f"{name}@{epoch}"):
        os.kill(os.getpid(), signal.SIGKILL)


def temporary_beside(path: Path) -> Path:
    """A name nobody else uses, on the same file system as `path`, so that a rename is atomic."""
    return path.with_name(f"{TEMPORARY}{path.name}-{os.getpid()}-{secrets.token_hex(4)}")


def write_all(descriptor: int, data: bytes) -> None:
    """`os.write` may write less than asked (a nearly full disk): go on until all is written or it raises."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_new(path: Path, data: bytes) -> None:
    """Create `path` (which must not exist) with `data`, and return once it is on the disk itself."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOEXEC | BINARY, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    except OSError as error:  # os.write does not know its file's name; the message must
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """A rename is durable only once the folder that holds the names is on the disk (fsync(2), NOTES)."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows cannot open a folder, and has no such call
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_atomically(path: Path, data: bytes) -> None:
    """Readers see the old content or the new, never a part; a failure leaves the old and nothing else."""
    temporary = temporary_beside(path)
    try:
        write_new(temporary, data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextlib.contextmanager
def open_regular(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """Open a plain file to read, with its size. Links, devices and pipes (which would block) are refused."""
    descriptor = os.open(path, os.O_RDONLY | _CAREFUL | CLOEXEC | BINARY)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a regular file")
    with os.fdopen(descriptor, "rb") as handle:
        yield handle, status.st_size


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The content of a plain file, refused before reading when it is larger than `most_bytes`."""
    with open_regular(path) as (handle, size):
        if size > most_bytes:
            raise ValueError(f"{path.name} has {size:,} bytes, at most {most_bytes:,} are read")
        return handle.read(most_bytes)


def sha256_of(handle: IO[bytes]) -> str:
    """The digest of the rest of a file, read in small pieces."""
    digest = hashlib.sha256()
    while piece := handle.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()


def to_json(value: Any, *, indent: int | None = 2) -> bytes:
    """JSON in one spelling; refuses what it cannot hold (NaN, keys that are not text), naming the place.

    >>> to_json({"b": [1, 2.5], "a": None}, indent=None)
    b'{"b": [1, 2.5], "a": null}\\n'
    """
    _check_json(value, "")
    return json.dumps(value, indent=indent, allow_nan=False).encode() + b"\n"


def _check_json(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                # json would turn {1: ...} into {"1": ...} without a word.
                raise TypeError(f"the key {key!r} in {where or 'the top level'} must be a string for JSON")
            _check_json(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_json(item, f"{where}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where or 'the value'} is {value}, which JSON cannot hold; use None")
    elif value is not None and not isinstance(value, str | int | float):
        raise TypeError(f"{where or 'the value'} is a {type(value).__name__}, which JSON cannot hold")


def from_json(raw: bytes) -> dict[str, Any]:
    """The JSON object in `raw`; anything else (NaN, nesting without end, bad text) is a ValueError."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    if b"\\u" in raw:
        _refuse_half_characters(value)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; what is wrong with it is said with its name."""
    try:
        return from_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}. Restore it from a backup, or start anew") from None


def size_of(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _refuse_half_characters(value: Any) -> None:
    """Half of a character (\\ud800) is text that nothing can be written with."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start : error.end]!r} is half a character") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")
