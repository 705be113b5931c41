"""`shoal evaluate` for rides: runs and baselines on the same held-out days (shoal.rides.contest.report)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Any, Literal

from shoal.extras import require
from shoal.tasks import Say, Shown


@dataclass(frozen=True)
class ContestArgs:
    """Score trained runs and baselines on the same held-out days and riders."""

    policy: tuple[str, ...] = ()
    """Baselines to play: none, random, everything, fixed, max-change, max-expected, myopic, myopic:pooled, lookahead,
    lookahead:pooled, taught, rollout, informed, hindsight (docs/rides.md says what each is). Beside a run, none,
    max-change, and myopic and lookahead with both prices are played anyway; rollout:agent plays futures with the run's
    own agent, which is slow."""
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
    checkpoint: str | None = None
    """last, best or the number of an epoch; default: the best by --evaluate-every, if the run has one, otherwise the
    last."""
    think: int = 0
    """More futures sampled before each offer, as shoal rides offer --think does (0: none); the runs play without
    thinking too, for comparison."""
    think_loop: Literal["open", "closed"] = "open"
    """With --think, as shoal rides offer --think-loop: in a closed loop the run's agent negotiates the later requests
    of every future (6 futures take about as long as 768 in an open one: 0.3 s an offer)."""

    def __post_init__(self) -> None:
        if self.think < 0:
            raise ValueError(f"expected --think as a number of futures of at least 0, got {self.think}")
        if self.think_loop == "closed" and not self.think:
            raise ValueError("--think-loop closed says how to think: add --think 6, a number of futures")


@dataclass(frozen=True)
class BaselineArgs(ContestArgs):
    """Baselines alone on held-out days and riders."""

    policy: tuple[str, ...] = ("myopic",)
    """Baselines to play: none, random, everything, fixed, max-change, max-expected, myopic, myopic:pooled, lookahead,
    lookahead:pooled, taught, rollout, informed, hindsight (docs/rides.md says what each is)."""

    def __post_init__(self) -> None:
        if not self.policy:
            raise ValueError("expected at least one policy after --policy, such as myopic, got none")


def baselines_options() -> type[Any]:
    """Flags of `shoal evaluate rides`: the contest, and the world that it is played in."""
    from shoal.rides.options import RidesOptions

    parts = [("contest", BaselineArgs, field(default_factory=BaselineArgs)),
             ("world", RidesOptions, field(default_factory=RidesOptions))]  # fmt: skip
    return make_dataclass("Both", parts, frozen=True, namespace={"__doc__": ContestArgs.__doc__})


def evaluate(runs: Sequence[str], given: RunContestArgs, say: Say) -> Shown:
    """`shoal evaluate RUN [RUN...]`: trained runs and baselines on the same days."""
    require("rides", "shoal evaluate")
    from shoal.report import write_report
    from shoal.rides.contest.page import spoken
    from shoal.rides.contest.report import evaluate_runs

    results, folders = evaluate_runs(
        runs,
        **_settings(given, say),
        policies=given.policy,
        runs_dir=given.runs_dir,
        futures=given.futures,
        think=given.think,
        think_loop=given.think_loop,
        checkpoint=given.checkpoint,
    )
    pages = [write_report(folder) for folder in folders]
    return _shown(results, [*(f"report   {page}" for page in pages), *map(spoken, folders)])


def baselines(both: Any, say: Say) -> Shown:
    """`shoal evaluate rides --policy myopic`: baselines alone, in a world as the flags say."""
    require("rides", "shoal evaluate")
    from shoal.rides.contest.report import evaluate_policies

    given = both.contest
    results, pictures = evaluate_policies(
        given.policy, both.world, **_settings(given, say), pictures=given.pictures or None
    )
    return _shown(results, [f"picture  {path}" for path in pictures])


def _settings(given: ContestArgs, say: Say) -> dict[str, Any]:
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


def _shown(results: dict[str, Any], last: list[str]) -> Shown:
    from shoal.rides.commands import table_lines

    lines = []
    for result in results["contests"].values():
        lines += [*table_lines(result), ""]
    return Shown(results, [*lines, *last])
