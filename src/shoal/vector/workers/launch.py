"""How a worker process is started: by a safe method, without the caller's `__main__`, with one thread per library."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import socket
import sys
import threading
import types
import warnings
from collections.abc import Iterator

from shoal.core.errors import Unsupported

START_METHODS = ("spawn", "fork", "forkserver")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_lock = threading.Lock()  # two threads that start workers would restore each other's blank `__main__`


def processes_work() -> bool:
    """Whether this system has what worker processes are built on: Linux and macOS have, Windows has not."""
    return hasattr(select, "poll") and hasattr(socket, "send_fds")


def check_processes() -> None:
    """Refuse worker processes where they cannot work."""
    if not processes_work():
        raise Unsupported(
            "worker processes need Linux or macOS (poll, and descriptors sent over a socket); this system has neither. "
            "Use --backend serial, or a compiled environment"
        )


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


def dies_with_starter(method: str) -> bool:
    """Whether a worker may ask to die with the thread that starts it (see `worker._die_with_parent`).

    Under forkserver that thread is the fork server's main one, which ends when we do.
    """
    return method == "forkserver" or threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def light_start(method: str) -> Iterator[None]:
    """Within this block a process starts light.

    multiprocessing imports the main script again in every child, and with it whatever the script imports
    (torch: 150 MB and seconds); it also asks for an `if __name__ == "__main__"` guard for that reason. Our
    workers get their environments by cloudpickle and need none of it, so a blank module stands in for `__main__`.
    """
    with _lock:
        main, saved = sys.modules["__main__"], {name: os.environ.get(name) for name in _THREADS}
        try:
            if method != "fork":
                sys.modules["__main__"] = types.ModuleType("__main__")
            if method == "forkserver":
                multiprocessing.set_forkserver_preload(["shoal.vector.workers.preload"])
            for name, value in saved.items():
                os.environ[name] = value or "1"
            yield
        finally:
            sys.modules["__main__"] = main
            for name, value in saved.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
