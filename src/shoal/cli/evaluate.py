"""`shoal evaluate`: the evaluation that a run's task brings, or the one that every task has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.cli.parsing import find_here, flags_of, parse, say, take, take_all
from shoal.cli.task_commands import show
from shoal.evaluation_command import EvaluateArgs, evaluate_run
from shoal.tasks import Task, find, load_all, task_or_default


def evaluate(args: list[str], as_json: bool) -> int:
    """Score runs on held-out episodes."""
    run, args = take(args, "--run")
    runs = [] if run is None else [run]
    while args and not args[0].startswith("-"):
        runs, args = [*runs, args[0]], args[1:]
    imports, args = take_all(args, "--import")
    find_here(imports)
    task = task_of(runs, take(args, "--runs-dir")[0] or "runs")
    if task.name in runs:  # `shoal evaluate TASK`: what the task can play without a run
        runs = [run for run in runs if run != task.name]
    prog = f"shoal evaluate {'RUN [RUN...]' if runs else task.name or 'RUN'}"
    kind = task.evaluate_options(runs)
    args = [task.evaluate_aliases.get(arg, arg) for arg in args]
    _check_flags(task, kind or EvaluateArgs, args)
    given = parse(kind or EvaluateArgs, args, prog)
    if isinstance(given, EvaluateArgs):
        given = dataclasses.replace(given, imports=tuple(imports))
    if kind is not None:
        return show(task.evaluate(runs, given, say), as_json)
    return show(evaluate_run(runs, given, say), as_json)


def _check_flags(task: Task, kind: type[Any], args: list[str]) -> None:
    """A flag of another task's evaluation is told from a misspelt one."""
    for flag in {arg.partition("=")[0] for arg in args if arg.startswith("--")} - set(flags_of(kind)) - {"--help"}:
        for other in load_all()[0]:
            theirs = [one for runs in ([], ["RUN"]) if (one := other.evaluate_options(runs)) is not None]
            if other is not task and any(flag in flags_of(one) for one in theirs):
                raise ValueError(
                    f"{flag} is for {other.name}: shoal evaluate {other.name} {flag} ..., or a run of {other.name}"
                )


def task_of(runs: Sequence[str], runs_dir: str) -> Task:
    """The task of the first run, or the one that is named in its place; one without parts of its own if neither is."""
    if not runs:
        return Task()
    named = find(runs[0]) if "/" not in runs[0] else None
    if named is not None and named.evaluate_options([]) is not None:
        return named
    from shoal.runs.folder import Run

    try:
        return task_or_default(str(Run.open(runs[0], Path(runs_dir)).config["task"]))
    except (FileNotFoundError, KeyError):
        return Task()  # whoever opens it next says what is wrong
