"""One writer per folder: an flock that dies with its process, and names it to whoever comes second."""

from __future__ import annotations

import errno
import os
import sys
import time
import warnings
import weakref
from pathlib import Path
from typing import IO

from shoal.runs.disk import BINARY, CLOEXEC

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

ORPHAN_S = 30.0  # a worker whose parent was killed ends by itself within moments: so long its folder is waited for
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)  # what file systems without locks answer


class Locked(RuntimeError):
    """Another process holds the lock; the message names it."""


class Lock:
    """An exclusive lock on a file. Not reentrant over processes: a forked child does not hold it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lock"
    >>> lock = Lock(path)
    >>> lock.acquire()
    >>> Lock(path).is_held(), lock.release(), Lock(path).is_held()
    (True, None, False)
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def acquire(self, wait_s: float = 0.0) -> None:
        """Take it; whoever holds it is waited for so long."""
        if self._file is not None:
            return
        file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | CLOEXEC | BINARY, 0o644), "r+b", 0)
        end = time.monotonic() + max(wait_s, 0.2)  # `is_held` of another process may hold it for an instant
        while True:
            try:
                if not _lock(file, exclusive=True):
                    warnings.warn(
                        f"{self.path.parent} cannot be locked (no locks on this system or file system): nothing keeps "
                        "a second process from writing there, so start none",
                        stacklevel=3,
                    )
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    holder = file.read(20).decode("ascii", "replace").strip()
                    file.close()
                    raise Locked(
                        f"{self.path.parent} is being written by process {holder or '(unknown)'}: "
                        "wait until it ends, or stop it"
                    ) from None
                time.sleep(0.05)
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
        self._file = file
        # A forked worker inherits the descriptor, and with it the lock: it must let go, or the lock
        # would outlive this process.
        reference = weakref.ref(self)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=lambda: _release(reference))

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def is_held(self) -> bool:
        """Whether any process, this one included, holds it now."""
        if self._file is not None:
            return True
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return False
        with file:
            try:
                if not _lock(file, exclusive=False):
                    return _lives(file.read(20))
            except BlockingIOError:
                return True
        return False


def _lock(file: IO[bytes], *, exclusive: bool) -> bool:
    """Lock without waiting (BlockingIOError if another process holds it); False where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _lives(holder: bytes) -> bool:
    """Where nothing is locked: does the process that wrote its number still live, as far as can be told here?"""
    if sys.platform == "win32" or not holder.strip().isdigit():
        return False  # there is no such question on Windows: signal 0 would be Ctrl-C
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _release(reference: weakref.ref[Lock]) -> None:
    lock = reference()
    if lock is not None:
        lock.release()
