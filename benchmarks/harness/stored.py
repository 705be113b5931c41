"""Results on disk: benchmarks/results/NAME.json, each with what it takes to judge and to repeat it.

A result is worth something only with the code that made it. So nothing is written unless `--store` asks for it, and
never from a tree with changes that are not committed.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.rows import Row
from shoal.runs import provenance
from shoal.runs.disk import replace_atomically

_PACKAGES = (*provenance.PACKAGES, "stable-baselines3")
Say = Callable[[str], None]


class DirtyTree(Exception):
    """The code that measures is not that of any commit."""


def results_folder() -> Path:
    """benchmarks/results."""
    return Path(__file__).resolve().parents[1] / "results"


def read(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    """A stored result, or None where there is none."""
    path = (folder or results_folder()) / f"{name}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def runs(name: str) -> list[dict[str, Any]]:
    """The runs that a result stored so far was made of."""
    found: list[dict[str, Any]] = (read(name) or {"runs": []})["runs"]
    return found


def read_rows(name: str, place: str, folder: Path | None = None) -> list[Row]:
    """The rows of a stored result, marked as such; or one without a value that says how to make it."""
    result = read(name, folder)
    if result is None:
        return [Row(name, None, "", note=f"nothing stored: python -m {place} --store")]
    return as_stored([Row.from_json(row) for row in result["rows"]], result)


def write(name: str, command: str, rows: Sequence[Row], folder: Path | None = None, **more: Any) -> Path:
    """Store rows with the command, commit, machine, date and versions they were measured with."""
    require_clean()
    path = (folder or results_folder()) / f"{name}.json"
    result = {"command": command, **stamp(), "versions": versions(), "rows": [row.to_json() for row in rows], **more}
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_atomically(path, (json.dumps(result, indent=2, allow_nan=False) + "\n").encode())
    return path


def require_clean() -> None:
    """Refuses a tree of which nobody could say later what it was; benchmarks/results itself may have changed."""
    code = provenance.code()
    if code["commit"] is None:
        raise DirtyTree("expected shoal to run from a git checkout, got one without a commit: a result needs its code")
    if code["dirty"]:
        raise DirtyTree(
            "expected a tree without changes (outside benchmarks/results), got one with some: commit them first "
            "(`git status` lists them), or measure without --store"
        )


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


class CpuShare(NamedTuple):
    """CPU-seconds of some runs over those of others, by medians; of so many of each."""

    value: float | None  # None: no processor has run both
    ours: int
    theirs: int
    note: str


def cpu_share(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]], whose: str = "SB3") -> CpuShare:
    """Runs of one processor only: another one's seconds are other seconds. Where several have run both, the one with
    the most pairs counts.

    >>> slow, fast = {"machine": "2-core VM, a", "cpu_s": 9.0}, {"machine": "2-core VM, b", "cpu_s": 3.0}
    >>> cpu_share([slow], [fast]).value is None, cpu_share([slow, fast], [fast]).value
    (True, 1.0)
    """

    def on(runs: Sequence[dict[str, Any]], processor: str) -> list[float]:
        return [run["cpu_s"] for run in runs if processor_of(run) == processor]

    if not ours or not theirs:
        return CpuShare(None, len(ours), len(theirs), f"{len(ours)} seeds of shoal, {len(theirs)} of {whose}")
    both = sorted({processor_of(run) for run in ours} & {processor_of(run) for run in theirs})
    if not both:
        ran = " and ".join(
            f"{who} ran on {', '.join(sorted({run['machine'] for run in runs}))}"
            for who, runs in (("shoal", ours), (whose, theirs))
        )
        return CpuShare(None, 0, 0, f"no machine has run seeds of both: {ran}")
    best = max(both, key=lambda one: min(len(on(ours, one)), len(on(theirs, one))))
    a, b = on(ours, best), on(theirs, best)
    note = f"{len(a)} seeds of shoal, {len(b)} of {whose}" + (", on one kind of machine" if len(both) > 1 else "")
    return CpuShare(statistics.median(a) / statistics.median(b), len(a), len(b), note)


def processor_of(run: dict[str, Any]) -> str:
    """A run's machine without the number of its cores, which differs by pinning alone.

    >>> processor_of({"machine": "1-core VM, AMD EPYC"}) == processor_of({"machine": "2-core VM, AMD EPYC"})
    True
    """
    return re.sub(r"^\d+-core ", "", str(run["machine"]))


# Options that came after the first stored results and that no result depends on.
_BESIDE_LEARNING = {"imports", "wrappers", "given", "build_timeout"}
_BESIDE_LEARNING |= {"wandb_project", "wandb_entity", "wandb_group", "wandb_tags"}

# Options of tasks that came later: at these values they change nothing.
_LATER_OPTIONS = {
    "trips": "", "credit": "auto", "credit_requests": 15, "credit_generous": 0.5, "held_out_days": None,
    "rules": "present",
}  # fmt: skip


def settings_hash(task: str) -> str:
    """Of the options of `shoal train TASK` that what is learnt depends on."""
    from shoal.config import to_dict
    from shoal.tasks.presets import config_for

    options = to_dict(config_for(task))
    for group in (options, options["vector"], options["run"]):
        for name in _BESIDE_LEARNING & set(group):
            del group[name]
    own = json.loads(options["env_kwargs"])
    kept = {name: value for name, value in own.items() if _LATER_OPTIONS.get(name, ...) != value}
    options["env_kwargs"] = json.dumps(kept) if own else options["env_kwargs"]
    return hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16]


# -- the mains of the figures ----------------------------------------------------------------------


def arguments(about: str | None) -> argparse.ArgumentParser:
    """A figure's flags: `--store`, and those that it adds."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--store", action="store_true", help="write benchmarks/results; refused where the tree has changes"
    )
    return parser


def storing(given: argparse.Namespace) -> bool:
    """Whether to store; asked before anything is measured, so that a dirty tree is refused at once."""
    if given.store:
        try:
            require_clean()
        except DirtyTree as error:
            sys.exit(f"benchmarks: {error}")
    return bool(given.store)


def main(place: str, rows: Callable[[Say], list[Row]], about: str | None) -> None:
    """Main of a figure that is measured in one go. `place` is its module, of which the last part names the result."""
    measure(place, rows, storing(arguments(about).parse_args()))


def measure(place: str, rows: Callable[[Say], list[Row]], store: bool) -> None:
    """Measure, show, and store if asked."""
    load = os.getloadavg()[0]
    found = rows(print_line)
    show(found)
    if store:
        write(place.rpartition(".")[2], f"python -m {place} --store", found, load_before=round(load, 2))


def measure_parts(
    place: str,
    given: argparse.Namespace,
    measured: Callable[[argparse.Namespace, Say], dict[str, Any]],
    summarise: Callable[[dict[str, Any]], list[Row]],
) -> dict[str, Any]:
    """The same where rows are made of plain data that is stored beside them; returns that."""
    store = storing(given)
    result = measured(given, print_line)
    found = summarise(result)
    show(found)
    if store:
        write(place.rpartition(".")[2], f"python -m {place} --store", found, **result)
    return result


def show(rows: Sequence[Row]) -> None:
    """A line of JSON each, which is what would be stored."""
    for row in rows:
        print_line(json.dumps(row.to_json()))


def print_line(text: str) -> None:
    """For the figures' mains."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
