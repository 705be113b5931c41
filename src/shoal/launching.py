"""Where whole trainings run: as processes on this machine, or as tasks of a Ray cluster, a process each as well.

A task of Ray runs the same command on whatever node has a core for it, and writes into the same folder, which all nodes
must therefore see. What is lost with a node is told by its exit code, LOST, and whoever launched it launches it again:
it goes on from what is in its folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import IO, Any, Protocol

from shoal.core.machine import usable_cores

PLACES = ("here", "ray")
LOST = -signal.SIGKILL  # as of a process that somebody killed
_FAREWELL_S, _LOOK_S = 20.0, 0.1
_RAY: ContextVar[Any] = ContextVar("ray", default=None)  # the module, while trainings run on a cluster


class Process(Protocol):
    """What a launched training can be asked, here as elsewhere: the part of Popen that is used."""

    stdin: IO[bytes] | None
    returncode: int | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


@contextlib.contextmanager
def on(place: str, address: str | None = None) -> Iterator[None]:
    """Within this block trainings are launched there."""
    if place not in PLACES:
        raise ValueError(f"expected --on as {' or '.join(PLACES)}, got {place!r}")
    if place == "here":
        if address is not None:
            raise ValueError("--ray-address is for --on ray: add that")
        yield
        return
    from shoal.vector.workers.ray_instance import INSTANCE

    token = _RAY.set(INSTANCE.join(address))
    try:
        yield
    finally:
        _RAY.reset(token)
        INSTANCE.leave()


def elsewhere() -> bool:
    """Are trainings launched on a cluster?"""
    return _RAY.get() is not None


def cores() -> int:
    """Cores that trainings may take, wherever they run."""
    ray = _RAY.get()
    return usable_cores() if ray is None else max(int(ray.cluster_resources().get("CPU", 1)), 1)


def launch(command: Sequence[str], log: Path, *, append: bool = False) -> Process:
    """Start a process whose output goes into a file. It ends when this one does: it watches its standard input."""
    path = os.pathsep.join(filter(None, sys.path))
    ray = _RAY.get()
    if ray is None:
        return _start(command, str(log), append, path)
    return _Task(ray, command, str(log), append, path)


def _start(command: Sequence[str], log: str, append: bool, path: str) -> subprocess.Popen[bytes]:
    with open(log, "ab" if append else "wb") as output:
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for whoever launched it, who ends it itself
        )


def _run(command: list[str], log: str, append: bool, path: str) -> int:
    """The task: on the node, start the process and wait for it."""
    if not Path(log).parent.is_dir():
        raise FileNotFoundError(
            f"{Path(log).parent} is not on this node: with --on ray, --runs-dir must be a folder that all nodes see"
        )
    process = _start([sys.executable, *command[1:]], log, append, path)
    try:
        while process.poll() is None:  # a system call that waits would not hear of it when Ray cancels the task
            time.sleep(_LOOK_S)
        return process.wait()
    except BaseException:  # a KeyboardInterrupt, it is: time for a checkpoint
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_FAREWELL_S)
        process.kill()
        return process.wait()


def end_with_launcher() -> None:
    """In a launched process: end it when the other end of its standard input is closed, as the kernel does for one that
    was killed."""

    def watch(pipe: int) -> None:
        while os.read(pipe, 4096):  # without a buffer, whose lock would outlive this thread
            pass
        os._exit(1)

    threading.Thread(target=watch, args=(sys.stdin.fileno(),), daemon=True).start()


class _Task:
    """A task of Ray, as if it were a process of ours."""

    stdin: IO[bytes] | None = None

    def __init__(self, ray: Any, command: Sequence[str], log: str, append: bool, path: str) -> None:
        self._ray = ray
        self.returncode: int | None = None
        task = ray.remote(num_cpus=1, max_retries=0)(_run)  # whoever launched it launches it again
        self._ref = task.remote(list(command), log, append, path)

    def poll(self) -> int | None:
        """Its exit code, LOST where the node or Ray's worker is gone, or None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self._look(0.5)) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("task", timeout or 0.0)
        return code

    def _look(self, seconds: float) -> int | None:
        if self.returncode is None:
            ready, _ = self._ray.wait([self._ref], timeout=seconds)
            if ready:
                try:
                    self.returncode = int(self._ray.get(self._ref))
                except self._ray.exceptions.RayTaskError as error:
                    self.returncode = 1
                    raise RuntimeError(f"a training could not be started on the cluster: {error.cause}") from None
                except self._ray.exceptions.RayError:
                    self.returncode = LOST
        return self.returncode

    def terminate(self) -> None:
        """Ask it to stop."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.cancel(self._ref)

    def kill(self) -> None:
        """End it; the process that it runs ends with it."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.cancel(self._ref, force=True)
