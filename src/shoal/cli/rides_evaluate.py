"""`shoal evaluate` for rides: runs and baselines on the same held-out days (shoal.rides.contest.report)."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.cli.parsing import parse, take
from shoal.extras import require


@dataclass(frozen=True)
class ContestArgs:
    """Score trained runs and baselines on the same held-out days and riders."""

    policy: tuple[str, ...] = ()
    """Baselines to play: none, random, everything, fixed, max-change, max-expected, myopic, myopic:pooled, lookahead,
    lookahead:pooled, taught, rollout, informed, hindsight (docs/rides.md says what each is). Beside a run, none,
    max-change, and myopic and lookahead with both prices are played anyway."""
    days: int = 900
    """Held-out days: 900 for a final result (over an hour with the reference), 60 for a first look."""
    seed: int = 0
    """Seed of the evaluation stream."""
    reference: bool = True
    """Price all days by the independent reference solver (PyVRP) too."""
    reference_iterations: int = 1000
    """Iterations of the reference solver per day; use 3,000 for a final result."""
    reference_seeds: int = 2
    """Attempts of the reference solver per day; the best counts."""
    oracle_iterations: int = 300
    """Ruin-and-recreate iterations of the built-in planner after each request."""
    shift: str | None = None
    """A world that differs from training: cold, 45, 60, fleet, mix, rule, or all."""
    threads: int | None = None
    """Cores to use; default: all usable."""
    pictures: str = ""
    """Folder for the pictures of baselines; those of a run go to its own folder."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


@dataclass(frozen=True)
class RunContestArgs(ContestArgs):
    """Trained runs and baselines on the same held-out days and riders."""

    futures: int | None = None
    """Futures that the runs sample before each offer; default: 32, or none if trained without."""


def is_rides(args: list[str]) -> bool:
    """Does `shoal evaluate` with these arguments mean rides?"""
    run = (args[0] if args and not args[0].startswith("-") else None) or take(args, "--run")[0]
    if run is None or run == "rides":
        return run == "rides"
    from shoal.runs.folder import Run

    root, _ = take(args, "--runs-dir")
    try:
        return bool(Run.open(run, Path(root or "runs")).config["task"] == "rides")
    except (FileNotFoundError, ValueError, KeyError):
        return False  # whoever opens it next says what is wrong


def evaluate(args: list[str], as_json: bool) -> int:
    """`shoal evaluate rides --policy myopic`, `shoal evaluate RUN [RUN...]`."""
    run, args = take(args, "--run")
    args = ["--days" if arg == "--episodes" else arg for arg in args]  # an episode is a day
    runs = [] if run is None else [run]
    while args and not args[0].startswith("-"):
        runs.append(args[0])
        args = args[1:]
    if runs == ["rides"]:
        return _evaluate_policies(args, as_json)
    given = parse(RunContestArgs, args, "shoal evaluate RUN [RUN...]")
    require("rides", "shoal evaluate")
    from shoal.report import write_report
    from shoal.rides.contest.report import evaluate_runs, spoken

    results, folders = evaluate_runs(
        runs, **_settings(given), policies=given.policy, runs_dir=given.runs_dir, futures=given.futures
    )
    pages = [write_report(folder) for folder in folders]
    _show(results, as_json, [*(f"report   {page}" for page in pages), *map(spoken, folders)])
    return 0


def _evaluate_policies(args: list[str], as_json: bool) -> int:
    from shoal.rides.contest.report import evaluate_policies
    from shoal.rides.options import RidesOptions

    kinds = [("contest", ContestArgs), ("world", RidesOptions)]
    Both = dataclasses.make_dataclass("Both", kinds, frozen=True, namespace={"__doc__": ContestArgs.__doc__})
    both: Any = parse(Both, args, "shoal evaluate rides", Both(ContestArgs(), RidesOptions()))
    require("rides", "shoal evaluate")
    given = both.contest
    if not given.policy and any(arg.partition("=")[0] == "--policy" for arg in args):
        raise ValueError("expected at least one policy after --policy, such as myopic, got none")
    results, pictures = evaluate_policies(
        given.policy or ("myopic",), both.world, **_settings(given), pictures=given.pictures or None
    )
    _show(results, as_json, [f"picture  {path}" for path in pictures])
    return 0


def _settings(given: ContestArgs) -> dict[str, Any]:
    from shoal.core.machine import usable_cores

    if given.days < 1 or given.reference_iterations < 1 or given.reference_seeds < 1:
        raise ValueError(
            "expected --days, --reference-iterations and --reference-seeds of at least 1, got "
            f"{given.days}, {given.reference_iterations} and {given.reference_seeds}"
        )
    return {
        "days": given.days,
        "seed": given.seed,
        "reference": (given.reference_iterations, given.reference_seeds) if given.reference else None,
        "iterations": given.oracle_iterations,
        "shift": given.shift,
        "threads": given.threads or usable_cores(),
        "say": say,
    }


def _show(results: dict[str, Any], as_json: bool, last: list[str]) -> None:
    from shoal.rides.commands import table_lines

    if as_json:
        print(json.dumps(results, allow_nan=False))
        return
    for result in results["contests"].values():
        print("\n".join(table_lines(result)), end="\n\n")
    print("\n".join(last))


def say(text: str) -> None:
    """Progress, beside the results."""
    print(text, file=sys.stderr, flush=True)
