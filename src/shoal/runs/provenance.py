"""Which machine and which code made a run: enough to repeat it, nothing that names a host, user or path."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "torch", "numba", "gymnasium", "safetensors")


def shoal_version() -> str:
    """The installed version, or "unknown" when the source is used without installing it."""
    return _version("shoal") or "unknown"


def machine() -> dict[str, Any]:
    """The processor, memory, accelerators and library versions of this machine."""
    return {
        "cpu": _cpu_model(),
        "cores_usable": cores_usable(),
        "memory_bytes": memory_bytes(),
        "gpus": _gpu_models(),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def code() -> dict[str, Any]:
    """shoal's version and, when it runs from a git checkout, the commit and whether files differ from it."""
    checkout = Path(__file__).resolve().parents[3]
    commit = changes = None
    if (checkout / ".git").exists():
        commit = _git(checkout, "rev-parse", "HEAD")
        # A result that the last benchmark has just written does not make the code another.
        changes = _git(checkout, "status", "--porcelain", "--", ".", ":(exclude)benchmarks/results")
    known = {
        "shoal": shoal_version(),
        "commit": commit or None,
        "dirty": None if changes is None else bool(changes),
    }
    return {**known, "source": source()} if known["dirty"] else known


def source() -> str:
    """A digest of every file of the package, data included."""
    package, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def data(env_kwargs: str) -> dict[str, str]:
    """A digest of every file that the environment's arguments name: another file is another experiment.

    >>> data('{"g": 9.81, "riders": ""}')
    {}
    """
    try:
        given = json.loads(env_kwargs)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return {}
    paths = {name: value for name, value in given.items() if isinstance(value, str) and value and len(value) < 1000}
    return {
        name: hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
        for name, path in paths.items()
        if "\0" not in path and Path(path).is_file()
    }


def memory_bytes() -> int | None:
    """The machine's memory, where the system tells (Windows does not)."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cores_usable() -> int:
    """Cores this process may run on, which a container or taskset can make fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # macOS has no affinity


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(checkout: Path, *arguments: str) -> str | None:
    # GIT_OPTIONAL_LOCKS=0: looking must not disturb a git command the user has running.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(checkout), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _gpu_models() -> list[str]:
    """What NVIDIA's driver lists; read from /proc, since this layer does not import torch."""
    models = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                models.append(line.partition(":")[2].strip())
    return models
