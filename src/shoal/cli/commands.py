"""The command line: the only place that prints for people and decides exit codes.

Errors become a sentence and an exit code in shoal.cli.errors, and nowhere else.
"""

from __future__ import annotations

import difflib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.cli.compare import compare
from shoal.cli.doctor import doctor
from shoal.cli.errors import fail, guarded
from shoal.cli.evaluate import evaluate
from shoal.cli.parsing import find_here, named, parse, plain_warnings, switch, take_all, unalias
from shoal.cli.play import play
from shoal.cli.runs import runs
from shoal.cli.search import search
from shoal.cli.task_commands import run_command, verbs_of
from shoal.cli.training import train
from shoal.cli.tune import tune
from shoal.tasks import find, load_all


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `shoal`."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(guarded(lambda: _command(args)))


def _command(args: list[str]) -> int:
    if args and args[0] == "help":  # `shoal help train` is `shoal train --help`
        args = [args[1], "--help"] if len(args) > 1 else []
    if not args or args[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if args[0] in ("-V", "--version"):
        from shoal import __version__

        print(f"shoal {__version__}")
        return 0
    name, rest = args[0], unalias(args[1:])
    as_json, rest = switch(rest, "--json")
    warnings.showwarning = plain_warnings()
    if name in COMMANDS:
        return COMMANDS[name][0](rest, as_json)
    if (task := find(name)) is not None and task.commands:
        return run_command(task, rest, as_json)
    near = difflib.get_close_matches(name, [*COMMANDS, *(task.name for task in load_all()[0] if task.commands)], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    hint = "; did you mean 'train --resume'?" if name in ("resume", "continue") else hint
    raise ValueError(f"unknown command {name!r}{hint}\n\n{_usage()}")


# -- commands ------------------------------------------------------------------------------------


def tasks(args: list[str], as_json: bool) -> int:
    """List what can be trained."""
    parse(TasksArgs, args, "shoal tasks")
    found, broken = load_all()
    for line in broken:
        fail(line, 0)
    rows = [{"task": task.name, "about": task.about} for task in found]
    if as_json:
        print(json.dumps({"tasks": rows}))
        return 0
    width = max(len(row["task"]) for row in rows)
    for row in rows:
        print(f"{row['task']:<{width}}  {row['about']}")
    print("\nAny other Gymnasium id works too: shoal train ID, of another package shoal train MODULE:ID")
    return 0


@dataclass(frozen=True)
class TasksArgs:
    """List what can be trained."""


@dataclass(frozen=True)
class ReportArgs:
    """Write the page of a run, a search or a comparison again: scores, curves, settings, in one self-contained file."""

    run: str
    """Folder of a run, a search (of orders or settings) or a comparison, or its name under --runs-dir."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


_REPORT_EXTRA = (("--import MODULE", "Import a module first (repeatable): for a search of a domain of your own."),)


def report(args: list[str], as_json: bool) -> int:
    """Write the page of a run, a search or a comparison."""
    imports, args = take_all(args, "--import")
    given = parse(ReportArgs, named(args, "--run"), "shoal report RUN", extra=_REPORT_EXTRA)
    from shoal.runs.folder import Run
    from shoal.tuning.folder import find_search
    from shoal.vector.foreign import import_all

    find_here(imports)
    import_all(imports)
    if (folder := find_search(given.run, given.runs_dir)) is not None:
        from shoal.tuning.page import write_page

        return _written(write_page(folder), as_json)
    config = Run.open(given.run, Path(given.runs_dir)).config
    if "search" in config:
        from shoal.search.sections import write_again

        path = write_again(given.run, runs_dir=given.runs_dir)
    elif "seeds" in config:
        from shoal.comparison.seeds import read_again

        path = Path(read_again(given.run, given.runs_dir).report)
    elif "comparison" in config:
        from shoal.comparison.api import read
        from shoal.comparison.folder import ComparisonFolder

        path = Path(read(ComparisonFolder.open(given.run, Path(given.runs_dir))).report or "")
    else:
        from shoal.report import write_report

        path = write_report(given.run, runs_dir=given.runs_dir)
    return _written(path, as_json)


def _written(path: Path, as_json: bool) -> int:
    print(json.dumps({"report": str(path)}) if as_json else f"report   {path}")
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str], bool], int], str]] = {
    "train": (train, "train TASK: train PPO on many environments (--resume RUN continues)"),
    "evaluate": (evaluate, "evaluate RUN: score a run on held-out episodes"),
    "compare": (compare, "compare TASK --vary OPTION=A,B: train arms with the same seeds and say which is better"),
    "play": (play, "play RUN: watch a run, as a video, in a window or as text"),
    "search": (search, "search TASK: find the best order of repairs or visits (--resume FOLDER continues)"),
    "tasks": (tasks, "tasks: list the tasks"),
    "runs": (runs, "runs: list the runs with their results (--clean removes those that failed)"),
    "report": (report, "report RUN|SEARCH|COMPARISON: write the report of a run, a search or a comparison again"),
    "doctor": (doctor, "doctor: check this installation (--for ray|cuda|...: also what is only needed for that)"),
    "tune": (tune, "tune ID: measure which backend and how many environments are fastest on this machine"),
}


def _usage() -> str:
    found, broken = load_all()
    lines = [f"  shoal {about}" for _, about in COMMANDS.values()]
    lines += [f"  shoal {task.name} {verbs_of(task)}: {task.about}" for task in found if task.commands]
    lines += [f"\n{line}" for line in broken]
    return (
        "shoal: PPO on hundreds to thousands of environments at once, measured honestly\n\n"
        + "\n".join(lines)
        + "\n\nEvery command takes --help (shoal help COMMAND), and --json if it prints figures. Start with:\n\n"
        "  shoal train CartPole-v1\n"
    )
