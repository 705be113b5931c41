"""Results on disk: benchmarks/results/NAME.json, each with what it takes to judge and to repeat it."""

from __future__ import annotations

import datetime
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from shoal.bench.rows import Row
from shoal.runs import provenance
from shoal.runs.disk import replace_atomically

_PACKAGES = (*provenance.PACKAGES, "stable-baselines3")


def results_folder() -> Path:
    """benchmarks/results of the checkout that this code runs from; an installed shoal has none."""
    return Path(__file__).resolve().parents[3] / "benchmarks" / "results"


def read(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    """A stored result, or None where there is none."""
    path = (folder or results_folder()) / f"{name}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def write(name: str, command: str, rows: Sequence[Row], folder: Path | None = None, **more: Any) -> Path:
    """Store rows with the command, commit, machine, date and versions they were measured with."""
    path = (folder or results_folder()) / f"{name}.json"
    result = {"command": command, **stamp(), "versions": versions(), "rows": [row.to_json() for row in rows], **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_atomically(path, (json.dumps(result, indent=2, allow_nan=False) + "\n").encode())
    return path


def stamp() -> dict[str, Any]:
    """Which code, on which machine, on which day; nothing that names a host, a user or a path."""
    code = provenance.code()
    return {
        "commit": code["commit"],
        "dirty": code["dirty"],
        "machine": machine(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def machine() -> str:
    """The machine in words.

    >>> "-core" in machine()
    True
    """
    facts = provenance.machine()
    cpuinfo = Path("/proc/cpuinfo")
    virtual = cpuinfo.exists() and " hypervisor" in cpuinfo.read_text(errors="replace")
    return f"{facts['cores_usable']}-core {'VM' if virtual else 'machine'}, {facts['cpu']}"


def versions() -> dict[str, str]:
    """Versions of Python and of what was measured."""
    found = {"python": sys.version.split()[0], "shoal": provenance.shoal_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def as_stored(rows: Sequence[Row], result: dict[str, Any]) -> list[Row]:
    """Rows made from a stored result, marked as such."""
    commits = {run["commit"] for run in result.get("runs", []) if run.get("commit")} or {result["commit"]}
    commit = ", ".join(sorted(filter(None, commits))) or None
    return [replace(row, measured="stored", commit=commit, date=result["date"]) for row in rows]


def measure(name: str, rows: Callable[[Callable[[str], None]], list[Row]]) -> None:
    """Main of a script in benchmarks/: measure, show, store."""
    found = rows(print_line)
    for row in found:
        print_line(json.dumps(row.to_json()))
    write(name, f"python benchmarks/{name}.py", found)


def print_line(text: str) -> None:
    """For the scripts in benchmarks/."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
