"""What `shoal doctor` looks at: is everything here that shoal needs, and can it be used?

Whatever can be tried out is tried out: a worker is started by every method, memory is shared, a file is written.
"""

from __future__ import annotations

import contextlib
import difflib
import mmap
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

import gymnasium as gym
import torch

from shoal.core.machine import usable_cores
from shoal.extras import EXTRAS, install, missing, version
from shoal.runs.words import explain
from shoal.tasks import BrokenTask, Check, find, load_all, names
from shoal.vector.memory import SharedMemory
from shoal.vector.workers.launch import processes_work
from shoal.vector.workers.process import ProcessVectorEnv

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)
_SHM, _LEAST_SHM = Path("/dev/shm"), 256 << 20
_LEAST_DISK = 1 << 30


def examine(asked: set[str], runs_dir: Path) -> list[Check]:
    """All checks; Ray is started where it is asked for. ValueError, before anything is started, where something is
    asked for that none of them is called."""
    machine = list(_machine())
    rest = [*_installed(), *_accelerators(), *_folders(runs_dir), *_tasks()]
    methods = multiprocessing.get_all_start_methods() if processes_work() else []
    known = sorted({*methods, *(one.name for one in (*machine, *rest))})
    for name in sorted(asked - set(known)):
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"expected --for as names of {', '.join(known)}, got {name!r}{hint}")
    tried = [_ray() if one.name == "ray" and one.fine and "ray" in asked else one for one in rest]
    return [*machine, *map(_start_method, methods), *tried]


# -- the machine -----------------------------------------------------------------------------------


def _machine() -> Iterator[Check]:
    here = sys.version_info[:2]
    right = OLDEST_PYTHON <= here <= NEWEST_PYTHON
    versions = f"{'.'.join(map(str, OLDEST_PYTHON))} to {'.'.join(map(str, NEWEST_PYTHON))}"
    yield Check("python", right, sys.version.split()[0], f"make a virtual environment with Python {versions}")
    yield _cores()
    yield _threads()
    yield _memory()
    if not processes_work():
        cure = "use --backend serial or compiled environments, or Linux (on Windows: WSL)"
        yield Check("workers", None, "this system has no worker processes", cure)
    yield _scheduler()


def _cores() -> Check:
    cores, there = usable_cores(), os.cpu_count() or 1
    limited = "" if cores == there else f" of {there}: an affinity or a quota of CPU time keeps the others back"
    return Check("cores", True, f"{cores} usable{limited}")


def _threads() -> Check:
    """More threads than cores make a learner several times slower."""
    threads, cores = torch.get_num_threads(), usable_cores()
    if threads <= cores:
        return Check("threads", True, f"torch uses up to {threads} thread(s) on {cores} core(s)")
    said = f"torch would use {threads} threads on {cores} core(s); a training sets its own number, your scripts do not"
    return Check("threads", None, said, f"export OMP_NUM_THREADS={cores}")


def _memory() -> Check:
    try:
        memory = SharedMemory(mmap.PAGESIZE)
        memory.map[:1] = b"\1"
        memory.close()
    except OSError as error:
        return Check("memory", False, f"no shared memory: {explain(error)}", "allow memfd_create, or --backend serial")
    if not _SHM.is_dir():
        return Check("memory", True, "can be shared; there is no /dev/shm, which Ray would use")
    free = shutil.disk_usage(_SHM).free
    if free < _LEAST_SHM:
        said = f"can be shared, but /dev/shm has only {free >> 20} MB free: Ray and torch's loaders want more"
        return Check("memory", None, said, "docker run --shm-size 2g, or mount -o remount,size=2g /dev/shm")
    return Check("memory", True, f"can be shared; /dev/shm has {free / 2**30:,.1f} GB free")


def _cartpole() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def _start_method(method: str) -> Check:
    """One worker with one environment, started and stepped once."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fork after torch: it does nothing here
            with closing(ProcessVectorEnv([_cartpole], start_method=method, start_timeout_s=60.0)) as envs:
                envs.reset(seed=0)
                envs.step(envs.action_space.sample())
    except Exception as error:  # of many kinds: no children allowed, no memory, a sandbox, ...
        cure = "use another --start-method, or --backend serial"
        return Check(method, False, f"a worker cannot be started by {method}: {error}", cure)
    return Check(method, True, f"a worker started by {method} steps an environment")


def _ray() -> Check:
    """A local instance, with one actor that steps one environment."""
    from shoal.vector.workers.ray import RayVectorEnv

    try:
        with closing(RayVectorEnv([_cartpole], workers=1)) as envs:
            envs.reset(seed=0)
            envs.step(envs.action_space.sample())
    except Exception as error:  # of many kinds: no port, no /dev/shm, a sandbox, ...
        said = f"ray {_version('ray')} cannot be used: {error}"
        return Check("ray", False, said, "look at `ray start --head`, or use --backend process")
    return Check("ray", True, f"ray {_version('ray')}: an actor of a local instance steps an environment")


def _scheduler() -> Check:
    """Whether a worker may tell the scheduler that it does not mind waiting; tried in a thread of its own."""
    if not hasattr(os, "SCHED_BATCH"):
        return Check("scheduler", True, "this system has no SCHED_BATCH; workers do without")
    refused: list[OSError] = []

    def ask() -> None:
        try:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        except OSError as error:
            refused.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    if refused:
        cure = "allow sched_setscheduler in the container's seccomp profile; it only makes waking workers quicker"
        return Check("scheduler", None, f"workers may not set SCHED_BATCH: {explain(refused[0])}", cure)
    return Check("scheduler", True, "workers may set SCHED_BATCH")


# -- packages --------------------------------------------------------------------------------------


def _installed() -> Iterator[Check]:
    try:
        needed = metadata.requires("shoal") or []
    except metadata.PackageNotFoundError:
        yield Check("shoal", False, "runs from source that is not installed", "pip install -e .")
        needed = []
    else:
        yield Check("shoal", True, metadata.version("shoal"))
    for line in needed:
        package = re.match(r"[A-Za-z0-9._-]+", line)
        if package is not None and "extra ==" not in line:
            yield _package(package[0], line.partition(";")[0])
    extras: dict[str, str] = {}
    for extra, packages in EXTRAS.items():
        if extra not in ("peers", *names()):  # tasks say themselves what they need
            found = [f"{package} {_version(package)}" for package in packages if package not in missing(extra)]
            lacking = missing(extra)
            extras[extra] = ", ".join(found) or "needs nothing more"
            said = f"{' and '.join(lacking)} not installed" if lacking else extras[extra]
            yield Check(extra, None if lacking else True, said, install(extra))


def _package(package: str, wanted: str) -> Check:
    found = version(package)
    if found is None:
        return Check(package, False, "is not installed", f'pip install "{wanted}"')
    if not fits(found, wanted):
        return Check(package, False, f"{found}; expected {wanted}", f'pip install "{wanted}"')
    return Check(package, True, found)


def _version(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version({"sklearn": "scikit-learn", "PIL": "pillow"}.get(package, package))
    return ""


def fits(found: str, wanted: str) -> bool:
    """Whether a version is within the bounds of a requirement.

    >>> fits("2.10.1", "torch>=2.6"), fits("1.4.0", "gymnasium<2,>=1.1"), fits("2.0", "gymnasium<2,>=1.1")
    (True, True, False)
    """

    def numbers(text: str) -> tuple[int, ...]:
        parts = [int(number) for number in re.findall(r"\d+", re.split(r"[a-z+]", text)[0])]
        return tuple(parts + [0] * (4 - len(parts)))

    bounds = re.findall(r"(>=|<)\s*([0-9][^,\s]*)", wanted)
    return all(numbers(found) >= numbers(bound) if sign == ">=" else numbers(found) < numbers(bound)
               for sign, bound in bounds)  # fmt: skip


def _accelerators() -> Iterator[Check]:
    if torch.cuda.is_available():
        try:
            name = torch.cuda.get_device_name(0)
            torch.ones(1, device="cuda").sum().item()
            yield Check("cuda", True, f"{torch.cuda.device_count()} device(s), the first a {name}")
        except RuntimeError as error:
            said = f"a CUDA device is there, and cannot be used: {error}".splitlines()[0]
            yield Check("cuda", False, said, "install a torch built for this driver's CUDA")
    else:
        built = torch.version.cuda
        said = f"torch {torch.__version__} sees no CUDA device" if built else "torch is a build without CUDA"
        cure = "install NVIDIA's driver" if built else "install a CUDA build of torch (pytorch.org)"
        yield Check("cuda", None, said, cure)
    there = torch.backends.mps.is_available()
    said = "torch sees an Apple GPU" if there else "torch sees no Apple GPU"
    yield Check("mps", True if there else None, said, "that needs macOS on Apple silicon")


# -- folders ---------------------------------------------------------------------------------------


def _folders(runs_dir: Path) -> Iterator[Check]:
    yield _writable("runs", runs_dir, "give another folder: --runs-dir")
    cache = Path(os.environ.get("SHOAL_CACHE_DIR") or Path.home() / ".cache" / "shoal")
    found = _writable("cache", cache, "set SHOAL_CACHE_DIR to a folder that can be written")
    if found.fine is False:  # costs the compilation at every start, nothing else
        found = Check("cache", None, f"{found.said}: compiled environments are compiled at every start", found.cure)
    yield found


def _writable(name: str, folder: Path, cure: str) -> Check:
    """A file is written, synchronised and renamed as a checkpoint is; nothing is left."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        with tempfile.TemporaryDirectory(prefix=".shoal-doctor-", dir=there) as inner:
            before, after = Path(inner, "before"), Path(inner, "after")
            with before.open("wb") as file:
                file.write(b"shoal")
                file.flush()
                os.fsync(file.fileno())
            before.rename(after)
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check(name, False, f"{folder} cannot be written: {explain(error)}", cure)
    if free < _LEAST_DISK:
        return Check(name, False, f"{folder} has only {free >> 20} MB free", "make room, or " + cure)
    return Check(name, True, f"{folder} can be written, {free / 2**30:,.0f} GB free")


# -- tasks -----------------------------------------------------------------------------------------


def _tasks() -> Iterator[Check]:
    _, broken = load_all()
    for line in broken:
        yield Check("tasks", False, line)
    for name in names():
        with contextlib.suppress(BrokenTask):
            task = find(name)
            found: Sequence[Check] = () if task is None else task.checks()
            yield from found
