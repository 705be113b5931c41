"""One writer per folder: an flock that dies with its process, and names it to whoever comes second."""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import IO


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

    def acquire(self) -> None:
        if self._file is not None:
            return
        file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), "r+b", 0)
        for attempt in range(5):  # `is_held` of another process may hold it for an instant
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt < 4:
                    time.sleep(0.05)
        else:
            holder = file.read(20).decode("ascii", "replace").strip()
            file.close()
            raise Locked(
                f"{self.path.parent} is being written by process {holder or '(unknown)'}: "
                "wait until it ends, or stop it"
            )
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
        self._file = file
        # A forked worker inherits the descriptor, and with it the lock: it must let go, or the lock
        # would outlive this process.
        reference = weakref.ref(self)
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
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


def _release(reference: weakref.ref[Lock]) -> None:
    lock = reference()
    if lock is not None:
        lock.release()
