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
from typing import Literal

from shoal.cli.cage2 import cage2, leaderboard_lines, say
from shoal.cli.errors import guarded
from shoal.cli.parsing import find_here, named, parse, plain_warnings, switch, take, take_all, unalias
from shoal.cli.rides import rides
from shoal.cli.rides_evaluate import evaluate as evaluate_rides
from shoal.cli.rides_evaluate import is_rides
from shoal.cli.runs import runs
from shoal.cli.search import search
from shoal.cli.training import train
from shoal.cli.tune import tune
from shoal.runs.words import decimals, figure


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
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown command {name!r}{hint}\n\n{_usage()}")
    as_json, rest = switch(rest, "--json")
    warnings.showwarning = plain_warnings()
    return COMMANDS[name][0](rest, as_json)


# -- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluateArgs:
    """Score a saved run on held-out episodes, with the most probable and with sampled actions."""

    run: str
    """Run folder, or its name under --runs-dir."""
    episodes: int | None = None
    """Held-out episodes per mode (deterministic and sampled); default: 100."""
    num_envs: int | None = None
    """Environments that play; default: a fast number. It does not change the score."""
    max_episode_steps: int | None = None
    """Steps after which an endless episode is cut; default: the environment's own limit, otherwise 20,000."""
    seed: int | None = None
    """Seed of the evaluation stream; default: the run's (0 with --leaderboard)."""
    leaderboard: bool = False
    """cage2: the challenge's protocol, 3 red agents x 30, 50 and 100 steps (--episodes of each, default 1,000)."""
    simulator: Literal["shoal", "cyborg"] | None = None
    """cage2: play in the compiled simulator, or in CybORG if it is installed."""
    imports: tuple[str, ...] = ()
    """Modules that register environments, imported first: --import MODULE, once for each."""
    rules: Literal["present", "final"] | None = None
    """cage2, with --leaderboard: the present rules, or those of the published leaderboard (docs/cage2-rules.md)."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def evaluate(args: list[str], as_json: bool) -> int:
    """Score a run on held-out episodes."""
    if is_rides(args):
        return evaluate_rides(args, as_json)
    imports, args = take_all(args, "--import")
    find_here(imports)
    if take(args, "--policy")[0] is not None:
        raise ValueError("--policy plays baselines of rides: shoal evaluate rides --policy myopic, or a run of rides")
    given = parse(EvaluateArgs, named(args, "--run"), "shoal evaluate RUN")
    if given.leaderboard:
        from shoal.evaluation import leaderboard

        found = leaderboard(
            given.run,
            episodes=1000 if given.episodes is None else given.episodes,
            seed=given.seed or 0,
            simulator=given.simulator or "shoal",
            rules=given.rules,
            runs_dir=given.runs_dir,
            say=say,
        )
        _page_again(given.run, given.runs_dir)
        print(json.dumps(found, allow_nan=False) if as_json else "\n".join(leaderboard_lines(given.run, found)))
        return 0
    if given.rules is not None:
        raise ValueError("--rules: expected --leaderboard beside it")
    episodes = 100 if given.episodes is None else given.episodes
    from shoal.evaluation import evaluate as score

    result = score(
        given.run,
        episodes=episodes,
        num_envs=given.num_envs,
        seed=given.seed,
        simulator=given.simulator,
        imports=imports,
        max_episode_steps=given.max_episode_steps,
        runs_dir=given.runs_dir,
        say=warn,
    )
    page = _page_again(given.run, given.runs_dir)
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return 0
    print(
        f"{result['task']}, epoch {result['epoch']}, {result['episodes']} held-out episodes, "
        f"evaluation seed {result['seed']}"
    )
    if "played" in result:
        print(result["played"])
    print(f"{'':15}{'mean':>10}  {'95 % interval':^23}{'median':>10}{'worst':>10}{'best':>10}{'length':>9}")
    modes = [result[mode] for mode in ("deterministic", "sampled")]
    places = decimals(*(row[name] for row in modes for name in ("mean", "low", "high", "median", "worst", "best")))
    for mode, row in zip(("deterministic", "sampled"), modes, strict=True):
        mean, low, high, median, worst, best = (
            figure(row[name], places) for name in ("mean", "low", "high", "median", "worst", "best")
        )
        bounds = "-" if row["low"] is None else f"[{low}, {high}]"
        print(f"{mode:15}{mean:>10}  {bounds:^23}{median:>10}{worst:>10}{best:>10}{row['mean_length']:>9,.0f}")
    for mode in ("deterministic", "sampled"):
        if "conduct" in result[mode]:
            from shoal.runs.conduct import conduct_line

            print(f"{mode:15}{conduct_line(result[mode]['conduct'])}")
    print(page)
    return 0


def warn(text: str) -> None:
    """Beside the results, not among them."""
    print(f"shoal: {text}" if text.startswith("WARNING") else text, file=sys.stderr, flush=True)


def _page_again(run: str, runs_dir: str) -> str:
    """The run's page, with the new score; a page that cannot be written takes nothing from the score."""
    from shoal.report import write_report

    try:
        return f"report   {write_report(run, runs_dir=runs_dir)}"
    except (OSError, ValueError) as error:
        return f"the report was not written: {error}"


def tasks(args: list[str], as_json: bool) -> int:
    """List what can be trained."""
    parse(TasksArgs, args, "shoal tasks")
    from shoal.tasks import listing

    rows = listing()
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
    """Write the page of a run or a search again: scores, curves, settings, events, in one self-contained HTML file."""

    run: str
    """Folder of a run or a search, or its name under --runs-dir."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def report(args: list[str], as_json: bool) -> int:
    """Write the page of a run or a search."""
    given = parse(ReportArgs, named(args, "--run"), "shoal report RUN")
    from pathlib import Path

    from shoal.runs.folder import Run

    if "search" in Run.open(given.run, Path(given.runs_dir)).config:
        from shoal.search.sections import write_again

        path = write_again(given.run, runs_dir=given.runs_dir)
    else:
        from shoal.report import write_report

        path = write_report(given.run, runs_dir=given.runs_dir)
    print(json.dumps({"report": str(path)}) if as_json else f"report   {path}")
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str], bool], int], str]] = {
    "train": (train, "train TASK: train PPO on many environments (--resume RUN continues)"),
    "evaluate": (
        evaluate,
        "evaluate RUN: score a run on held-out episodes (baselines: evaluate rides --policy NAME)",
    ),
    "search": (search, "search cage2|gridworld: find the best order of repairs (--resume FOLDER continues)"),
    "tasks": (tasks, "tasks: list the tasks"),
    "runs": (runs, "runs: list the runs with their results (--clean removes those that failed)"),
    "report": (report, "report RUN|SEARCH: write the report of a run or a search again"),
    "rides": (rides, "rides city|day|offer: draw the city or a day, get a trained run's offer for a rider"),
    "cage2": (cage2, "cage2 replay|play|score: check recordings of CybORG, show an episode, score a scripted defender"),
    "tune": (tune, "tune ID: measure which backend and how many environments are fastest on this machine"),
}


def _usage() -> str:
    lines = [f"  shoal {about}" for _, about in COMMANDS.values()]
    return (
        "shoal: PPO on hundreds to thousands of environments at once, measured honestly\n\n"
        + "\n".join(lines)
        + "\n\nEvery command takes --help (shoal help COMMAND), and --json if it prints figures. Start with:\n\n"
        "  shoal train CartPole-v1\n"
    )
