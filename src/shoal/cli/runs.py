"""`shoal runs`: what is in the folder of runs, and how to be rid of what failed."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.cli.errors import fail
from shoal.cli.parsing import parse
from shoal.runs.disk import size_of
from shoal.runs.folder import Run, check_folder, runs_in
from shoal.runs.words import columns, figure

ABOUT = """List the runs, newest first: name, task, status, steps, mean return of the last 100 episodes.

  shoal runs                    list all runs
  shoal runs --clean            list the runs to remove, ask, and remove them"""


@dataclass(frozen=True)
class RunsArgs:
    """List the runs, newest first."""

    runs_dir: str = "runs"
    """Folder that holds the run folders."""
    clean: bool = False
    """Remove the runs that failed, and those that were killed before their first checkpoint."""
    yes: bool = False
    """With --clean: do not ask."""


def runs(args: list[str], as_json: bool) -> int:
    """List runs, or remove those that failed."""
    given = parse(RunsArgs, args, "shoal runs", about=ABOUT)
    root = check_folder(Path(given.runs_dir))
    if given.yes and not given.clean:
        raise ValueError("--yes is for --clean, which removes runs: add that, or leave it out")
    found = [_row(run) for run in runs_in(root)]
    if given.clean:
        return _clean([row for row in found if row["removable"]], root, given.yes, as_json)
    if as_json:
        print(json.dumps({"runs": found}))
        return 0
    if not found:
        print(f"no run in {root} yet: shoal train CartPole-v1")
        return 0
    print("\n".join(_table(found)))
    failed = sum(row["removable"] for row in found)
    if failed:
        print(f"\n{failed} of them came to nothing: shoal runs --clean removes them")
    return 0


def _clean(rows: list[dict[str, Any]], root: Path, yes: bool, as_json: bool) -> int:
    names = [row["name"] for row in rows]
    if rows and not as_json:
        print("\n".join(_table(rows)))
        size_mb = sum(size_of(root / name) for name in names) / 1e6
        print(f"\n{len(rows)} {'run' if len(rows) == 1 else 'runs'} to remove from {root}, {size_mb:,.1f} MB")
    if rows and not yes:
        if as_json or not sys.stdin.isatty():
            return fail("nothing was removed: add --yes to remove them", 2)
        if input("Remove them? [y/N] ").strip().lower() not in ("y", "yes"):
            print("nothing was removed")
            return 0
    for name in names:
        shutil.rmtree(root / name)
    print(json.dumps({"removed": names}) if as_json else f"removed {len(names)}" if names else "nothing to remove")
    return 0


def _row(run: Run) -> dict[str, Any]:
    """One line of the list; a run whose files cannot be read is still listed."""
    row: dict[str, Any] = {"name": run.name, "task": None, "status": "damaged", "steps": None, "mean_return": None}
    with contextlib.suppress(ValueError, OSError, AttributeError):
        config = run.config
        row["task"] = config.get("task") or _kind(config)
        row["status"] = run.status
        last = run.last_row()
        row |= {"steps": last.get("steps"), "mean_return": last.get("return/mean_100")}
    row["removable"] = row["status"] == "failed" or (row["status"] == "killed" and not run.has_begun())
    return row


def _kind(config: dict[str, Any]) -> str:
    if "comparison" in config:
        return f"compare {config['comparison'].get('task', '?')}"
    if "seeds" in config:
        return f"{config['seeds'].get('task', '?')}, {config['seeds'].get('seeds', '?')} seeds"
    return f"search {config.get('search', {}).get('domain', '?')}"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    heads = ("name", "task", "status", "steps", "return")
    cells = [heads] + [
        (row["name"], row["task"] or "-", row["status"], _steps(row["steps"]), figure(row["mean_return"]))
        for row in rows
    ]
    return columns(cells, right=(3, 4))


def _steps(steps: int | None) -> str:
    return "-" if steps is None else f"{steps:,}"
