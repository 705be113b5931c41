"""This process's connection to Ray: a cluster that is there, or a local instance of its own.

A local instance listens on the loopback interface alone, wants a token from whoever connects, has no dashboard and
reports no usage. It ends with the last batch that uses it; a warden sees to that if this process is killed.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.core.machine import usable_cores
from shoal.extras import require
from shoal.vector.workers import ray_warden

LOOPBACK = "127.0.0.1"
_STORE_BYTES, _LEAST_STORE_BYTES = 512 << 20, 80 << 20
_LONGEST_FOLDER = 40  # Ray's sockets lie below it, and a socket's path has 107 characters at most
_WARDEN_S = 12.0


class Instance:
    """Shared by all batches of a process; made by `join`, left by `leave`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._users = 0
        self._ours = False  # we connected, so we disconnect
        self._folder: str | None = None
        self._warden: subprocess.Popen[bytes] | None = None
        self._prints: Any = None
        self._token = secrets.token_hex(32)

    def join(self, address: str | None, cores: int | None = None) -> Any:
        """Connect if nobody has; returns the module `ray`. Without an address a local instance is started, with so
        many cores. Leave it again with `leave`."""
        require("ray", "--backend ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        with self._lock:
            if self._users == 0 and not ray.is_initialized():
                with _signals_kept():
                    self._mute(True)
                    if address is None or address == "local":
                        self._start(ray, cores or usable_cores())
                    else:
                        _connect(ray, address)
                self._ours = True
            self._users += 1
        return ray

    def leave(self) -> None:
        """One batch less; the last one ends the instance, or the connection."""
        with self._lock:
            self._users -= 1
            if self._users > 0 or not self._ours:
                return
            self._ours = False
            import ray

            with _signals_kept():
                ray.shutdown()
            self._mute(False)
            self._clear()

    @property
    def folder(self) -> str | None:
        """Of an instance that runs on this machine for this process alone; None of a cluster."""
        return self._folder

    def _start(self, ray: Any, cores: int) -> None:
        self._folder = _short_folder()
        # Its own session: what is sent to our group (Ctrl-C, kill -9) is not meant for it.
        self._warden = subprocess.Popen(
            [sys.executable, "-S", "-E", str(Path(ray_warden.__file__)), self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            with _on_loopback(self._token):
                ray.init(
                    address="local",
                    num_cpus=cores,
                    include_dashboard=False,
                    object_store_memory=_store_bytes(),
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _node_ip_address=LOOPBACK,
                    _temp_dir=self._folder,
                )
        except BaseException as error:
            with contextlib.suppress(Exception):
                ray.shutdown()
            self._clear()
            if not isinstance(error, Exception):
                raise
            raise RuntimeError(
                f"--backend ray: Ray's processes did not start here: {str(error).rstrip('.')}. Is the machine "
                "overloaded, or short of memory? Try again, use --backend process, or name a running cluster with "
                "--ray-address"
            ) from error

    def _mute(self, mute: bool) -> None:
        """Ray prints the deaths of actors to standard output, where `--json` is; we tell them ourselves."""
        from ray._private import worker

        if mute and hasattr(worker, "print_to_stdstream"):
            self._prints, worker.print_to_stdstream = worker.print_to_stdstream, lambda *_, **__: None
        elif not mute and self._prints is not None:
            worker.print_to_stdstream, self._prints = self._prints, None

    def _clear(self) -> None:
        """Let the warden end what is left, and wait for it."""
        warden, folder, self._warden, self._folder = self._warden, self._folder, None, None
        if warden is None or folder is None:
            return
        assert warden.stdin is not None
        warden.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            warden.wait(_WARDEN_S)
        shutil.rmtree(folder, ignore_errors=True)
        _read_again()


INSTANCE = Instance()


def free_cores(ray: Any) -> int:
    """Cores of the cluster that nobody has taken."""
    return max(int(ray.available_resources().get("CPU", 1)), 1)


def _connect(ray: Any, address: str) -> None:
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
        raise RuntimeError(
            f"--ray-address {address}: no Ray cluster can be reached there ({str(error).strip().splitlines()[0]}). "
            "Start one with `ray start --head`, or leave out --ray-address for an instance of this machine's own"
        ) from error


def _read_again() -> None:
    """Ray keeps what it has read of its variables: whether there is a token, and which."""
    with contextlib.suppress(Exception):  # a version that has none
        inner: Any = importlib.import_module("ray._raylet")
        inner.Config.initialize("")
        inner.AuthenticationTokenLoader.instance().reset_cache()


def _short_folder() -> str:
    where = tempfile.gettempdir()
    if len(where) > _LONGEST_FOLDER and os.access("/tmp", os.W_OK):
        where = "/tmp"
    return tempfile.mkdtemp(prefix="shoal-ray-", dir=where)


def _store_bytes() -> int:
    """Ray's store of objects: rows on their way. Memory is taken only as it is used."""
    with contextlib.suppress(OSError):
        return max(min(_STORE_BYTES, shutil.disk_usage("/dev/shm").free // 4), _LEAST_STORE_BYTES)
    return _LEAST_STORE_BYTES


@contextlib.contextmanager
def _on_loopback(token: str) -> Iterator[None]:
    """Within this block Ray takes the loopback address for this machine's, as it does on macOS and Windows, and its
    processes inherit a token. `_node_ip_address` alone is not enough: Ray turns 127.0.0.1 into the address that other
    machines see, and listens on all interfaces."""
    from ray._private import ray_constants

    wanted = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    before, many = {name: os.environ.get(name) for name in wanted}, ray_constants.ENABLE_RAY_CLUSTER
    os.environ.update(wanted)
    ray_constants.ENABLE_RAY_CLUSTER = False
    _read_again()
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = many
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray sets a handler of SIGTERM; who ends this process, and how, is not Ray's to say."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
