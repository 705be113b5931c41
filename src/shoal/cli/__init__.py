"""The command line: the only place that prints for people and decides exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage or unusable input, 130 / 143 stopped by Ctrl-C / SIGTERM.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from shoal.cli.cage2 import cage2, leaderboard_lines
from shoal.cli.parsing import named, parse, switch, unalias
from shoal.cli.rides import rides
from shoal.cli.rides_evaluate import evaluate as evaluate_rides
from shoal.cli.rides_evaluate import is_rides
from shoal.cli.search import search
from shoal.cli.training import train


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `shoal`."""
    args = list(sys.argv[1:] if arguments is None else arguments)
    if not args or args[0] in ("-h", "--help"):
        print(_usage())
        sys.exit(0)
    if args[0] in ("-V", "--version"):
        from shoal import __version__

        print(f"shoal {__version__}")
        sys.exit(0)
    name, rest = args[0], unalias(args[1:])
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        _fail(f"unknown command {name!r}" + (f"; did you mean {near[0]!r}?" if near else "") + "\n\n" + _usage(), 2)
    as_json, rest = switch(rest, "--json")
    try:
        sys.exit(COMMANDS[name][0](rest, as_json))
    except (ValueError, FileNotFoundError, FileExistsError, ImportError) as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        from shoal.runs.checkpoint import CheckpointError

        _fail(str(error), 2 if isinstance(error, CheckpointError) else 1)


# -- commands ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluateArgs:
    """Score a saved run on episodes it has never seen, greedily and by sampling."""

    run: str
    """Run folder, or its name under --runs-dir."""
    episodes: int | None = None
    """Held-out episodes per mode; default 100."""
    num_envs: int | None = None
    """Environments that play them; default: as many as make it fast. The score is the same."""
    max_episode_steps: int | None = None
    """Steps after which an episode that nothing ends is cut; default: 20,000, or the environment's own limit."""
    seed: int | None = None
    """Seed of the evaluation stream; default: the run's (0 with --leaderboard)."""
    leaderboard: bool = False
    """cage2: the challenge's protocol, 3 red agents x 30, 50 and 100 steps (--episodes of each, default 1,000)."""
    simulator: Literal["shoal", "cyborg"] | None = None
    """cage2: play in the compiled simulator, or in the real CybORG if it is installed."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def evaluate(args: list[str], as_json: bool) -> int:
    """Score a run on held-out episodes."""
    if is_rides(args):
        return evaluate_rides(args, as_json)
    given = parse(EvaluateArgs, named(args, "--run"), "shoal evaluate RUN")
    if given.leaderboard:
        from shoal.evaluate import leaderboard

        found = leaderboard(
            given.run,
            episodes=1000 if given.episodes is None else given.episodes,
            seed=given.seed or 0,
            simulator=given.simulator or "shoal",
            runs_dir=given.runs_dir,
        )
        _page_again(given.run, given.runs_dir)
        print(json.dumps(found, allow_nan=False) if as_json else "\n".join(leaderboard_lines(given.run, found)))
        return 0
    from shoal.evaluate import evaluate as score

    result = score(
        given.run,
        episodes=100 if given.episodes is None else given.episodes,
        num_envs=given.num_envs,
        seed=given.seed,
        simulator=given.simulator,
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
    print(f"{'':15}{'mean':>10}  {'95 % interval':^21}{'median':>10}{'worst':>10}{'best':>10}{'length':>9}")
    for mode in ("deterministic", "sampled"):
        row = result[mode]
        bounds = "-" if row["low"] is None else f"[{row['low']:,.1f}, {row['high']:,.1f}]"
        print(
            f"{mode:15}{row['mean']:>10,.1f}  {bounds:^21}{row['median']:>10,.1f}{row['worst']:>10,.1f}"
            f"{row['best']:>10,.1f}{row['mean_length']:>9,.0f}"
        )
    for mode in ("deterministic", "sampled"):
        if "conduct" in result[mode]:
            from shoal.words import conduct_line

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
    print("\nAny other Gymnasium id works too: shoal train ID")
    return 0


@dataclass(frozen=True)
class TasksArgs:
    """List what can be trained."""


@dataclass(frozen=True)
class BenchArgs:
    """Measure this machine: a group of benchmarks with its bars."""

    group: str
    """vector, ppo, cage2 or rides."""
    full: bool = False
    """Run the long learning results again instead of reading the stored ones."""
    instances: str = ""
    """Folder with Li and Lim's instance files (lc101.txt, ...), for rides."""


def bench(args: list[str], as_json: bool) -> int:
    """Measure throughput, backends and peers side by side."""
    given = parse(BenchArgs, named(args, "--group"), "shoal bench GROUP")
    from shoal import bench as measuring

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows = measuring.run(given.group, full=given.full, instances=given.instances or None, say=say)
    if as_json:
        print(json.dumps({"results": rows}, allow_nan=False))
        return 0
    for row in rows:
        bar = "" if row["bar"] is None else f"bar {row['bar']:g}: {'holds' if row['holds'] else 'MISSED'}"
        value = "-" if row["value"] is None else f"{row['value']:,.4g}"
        note = f"  ({row['note']})" if row.get("note") else ""
        print(f"{row['name']:<64}{value:>12} {row['unit']:<12}{bar}{note}")
    return 0


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

    from shoal.runs.store import Run

    if "search" in Run.open(given.run, Path(given.runs_dir)).config:
        from shoal.search.report import write_again

        path = write_again(given.run, runs_dir=given.runs_dir)
    else:
        from shoal.report import write_report

        path = write_report(given.run, runs_dir=given.runs_dir)
    print(json.dumps({"report": str(path)}) if as_json else f"report   {path}")
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str], bool], int], str]] = {
    "train": (train, "train TASK [flags]: train PPO on N environments (--resume RUN goes on)"),
    "evaluate": (
        evaluate,
        "evaluate RUN | rides --policy NAME: score a run, or baselines, on held-out episodes",
    ),
    "search": (search, "search cage2|gridworld: in which order? A bandit whose pulls are trainings (--resume FOLDER)"),
    "tasks": (tasks, "tasks: what can be trained"),
    "report": (report, "report RUN|SEARCH: write its page again"),
    "rides": (rides, "rides city|day|offer: the city and its days as maps, what a trained run would offer a rider now"),
    "cage2": (cage2, "cage2 replay|play|score: recordings of the real CybORG, episodes in words, scripted defenders"),
    "bench": (bench, "bench vector|ppo|cage2|rides: measure this machine, peers side by side"),
}


def _usage() -> str:
    lines = [f"  shoal {about}" for _, about in COMMANDS.values()]
    return (
        "shoal: PPO on hundreds to thousands of environments at once, measured honestly\n\n"
        + "\n".join(lines)
        + "\n\nEvery command takes --help, and --json where it prints figures. Start with:\n\n"
        "  shoal train CartPole-v1\n"
    )


def _fail(text: str, code: int) -> None:
    print(f"shoal: {text}", file=sys.stderr)
    sys.exit(code)
