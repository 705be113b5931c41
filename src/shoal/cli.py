"""The command line: the only place that prints for people and decides exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage or unusable input, 130 / 143 stopped by Ctrl-C / SIGTERM.
"""

from __future__ import annotations

import difflib
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

ALIASES = {
    "--n-envs": "--num-envs",
    "--num-episodes": "--episodes",
    "--lr": "--learning-rate",
    "--checkpoint-dir": "--runs-dir",
    "--save-dir": "--runs-dir",
}
BUDGETS = ("--steps", "--epochs", "--episodes")
T = TypeVar("T")


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
    name, rest = args[0], _unalias(args[1:])
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        _fail(f"unknown command {name!r}" + (f"; did you mean {near[0]!r}?" if near else "") + "\n\n" + _usage(), 2)
    as_json = "--json" in rest
    rest = [arg for arg in rest if arg != "--json"]
    try:
        sys.exit(COMMANDS[name][0](rest, as_json))
    except (ValueError, TypeError, FileNotFoundError, FileExistsError, ModuleNotFoundError) as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        from shoal.runs.checkpoint import CheckpointError

        _fail(str(error), 2 if isinstance(error, CheckpointError) else 1)


# -- commands ------------------------------------------------------------------------------------


def train(args: list[str], as_json: bool) -> int:
    """Train a policy."""
    resume, args = _take(args, "--resume")
    reshard = "--reshard" in args
    args = [arg for arg in args if arg != "--reshard"]
    if args and not args[0].startswith("-"):
        args = ["--task", *args]
    if resume is not None:
        result = _resume(resume, args, reshard)
    else:
        from shoal.config import TrainConfig
        from shoal.tasks.presets import config_for, without_budget

        task, _ = _take(args, "--task")
        default = config_for(task or TrainConfig.task)
        if any(arg.split("=")[0] in BUDGETS for arg in args):
            default = without_budget(default)
        config = _parse(TrainConfig, args, "shoal train TASK", default)
        from shoal.train import train as run

        result = run(config=config, command=shlex.join(["shoal", *sys.argv[1:]]))
    if as_json:
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        _after_training(result)
    return 128 + result.signal if result.signal is not None else 0


def _resume(resume: str, args: list[str], reshard: bool) -> Any:
    from pathlib import Path

    from shoal.config import TrainConfig, from_dict
    from shoal.runs.store import Run
    from shoal.tasks.presets import without_budget

    root, _ = _take(args, "--runs-dir")
    run = Run.open(resume, Path(root or "runs"))
    config = from_dict(run.config)
    if any(arg.split("=")[0] in BUDGETS for arg in args):
        config = without_budget(config)
    config = _parse(TrainConfig, args, "shoal train --resume RUN", config)
    from shoal.train import train as go_on

    return go_on(resume=run.path, config=config, reshard=reshard)


def _after_training(result: Any) -> None:
    mean = "-" if result.mean_return is None else f"{result.mean_return:,.1f}"
    print(
        f"{result.status}: {result.reason}\n"
        f"{result.steps:,} steps, {result.episodes:,} episodes, mean return of the last 100: {mean}; "
        f"{result.wall_s:,.1f} s ({result.cpu_s:,.1f} CPU-s)"
    )
    if result.restarts:
        print(f"{result.restarts} environments were restarted after faults: see {result.run}/events.jsonl")
    print(f"run      {result.run}")
    print(f"report   {result.run}/report.html")
    print(f"next     shoal evaluate {result.run}")
    if result.status == "interrupted":
        print(f"         shoal train --resume {result.run}")


@dataclass(frozen=True)
class EvaluateArgs:
    """Score a saved run on episodes it has never seen, greedily and by sampling."""

    run: str
    """Run folder, or its name under --runs-dir."""
    episodes: int = 100
    """Held-out episodes per mode."""
    num_envs: int = 1
    """Environments that play them."""
    seed: int | None = None
    """Seed of the evaluation stream; default: the run's."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def evaluate(args: list[str], as_json: bool) -> int:
    """Score a run on held-out episodes."""
    given = _parse(EvaluateArgs, _named(args, "--run"), "shoal evaluate RUN")
    from shoal.evaluate import evaluate as score

    result = score(given.run, episodes=given.episodes, num_envs=given.num_envs, seed=given.seed, runs_dir=given.runs_dir)
    if as_json:
        print(json.dumps(result, allow_nan=False))
        return 0
    print(f"{result['task']}, epoch {result['epoch']}, {result['episodes']} held-out episodes, evaluation seed {result['seed']}")
    print(f"{'':15}{'mean':>10}  {'95 % interval':^21}{'median':>10}{'worst':>10}{'best':>10}{'length':>9}")
    for mode in ("deterministic", "sampled"):
        row = result[mode]
        bounds = f"[{row['low']:,.1f}, {row['high']:,.1f}]"
        print(
            f"{mode:15}{row['mean']:>10,.1f}  {bounds:^21}{row['median']:>10,.1f}{row['worst']:>10,.1f}"
            f"{row['best']:>10,.1f}{row['mean_length']:>9,.0f}"
        )
    return 0


def tasks(args: list[str], as_json: bool) -> int:
    """List what can be trained."""
    _parse(TasksArgs, args, "shoal tasks")
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
    """vector or ppo."""
    full: bool = False
    """Run the long learning results again instead of reading the stored ones."""


def bench(args: list[str], as_json: bool) -> int:
    """Measure throughput, backends and peers side by side."""
    given = _parse(BenchArgs, _named(args, "--group"), "shoal bench GROUP")
    from shoal import bench as measuring

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    rows = measuring.run(given.group, full=given.full, say=say)
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
    """Write a run's page again: curves, settings, events, in one self-contained HTML file."""

    run: str
    """Run folder, or its name under --runs-dir."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""


def report(args: list[str], as_json: bool) -> int:
    """Write a run's page."""
    given = _parse(ReportArgs, _named(args, "--run"), "shoal report RUN")
    from shoal.report import write_report

    path = write_report(given.run, runs_dir=given.runs_dir)
    print(json.dumps({"report": str(path)}) if as_json else f"report   {path}")
    return 0


COMMANDS: dict[str, tuple[Callable[[list[str], bool], int], str]] = {
    "train": (train, "train TASK [flags]: train PPO on N environments (--resume RUN goes on)"),
    "evaluate": (evaluate, "evaluate RUN: score a run on held-out episodes"),
    "tasks": (tasks, "tasks: what can be trained"),
    "report": (report, "report RUN: write a run's page again"),
    "bench": (bench, "bench vector|ppo: measure this machine, peers side by side"),
}


# -- parsing -------------------------------------------------------------------------------------


def _usage() -> str:
    lines = [f"  shoal {about}" for _, about in COMMANDS.values()]
    return (
        "shoal: PPO on hundreds to thousands of environments at once, measured honestly\n\n"
        + "\n".join(lines)
        + "\n\nEvery command takes --help, and --json where it prints figures. Start with:\n\n"
        "  shoal train CartPole-v1\n"
    )


def _parse(kind: type[T], args: list[str], prog: str, default: T | None = None) -> T:
    """Flags into a dataclass. tyro prints help and wrong flags, with the nearest ones; values out of range come here."""
    import tyro

    options: dict[str, Any] = {} if default is None else {"default": default}
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    return tyro.cli(kind, args=args, prog=prog, config=config, **options)


def _unalias(args: list[str]) -> list[str]:
    """The other familiar spelling of a flag: `--lr 1e-3` is `--learning-rate 1e-3`."""
    out = []
    for arg in args:
        flag, equals, value = arg.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        out.append(ALIASES.get(flag, flag) + equals + value)
    return out


def _take(args: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of a flag, and the arguments without it."""
    for i, arg in enumerate(args):
        if arg == flag:
            if i + 1 >= len(args):
                raise ValueError(f"expected a value after {flag}")
            return args[i + 1], args[:i] + args[i + 2 :]
        if arg.startswith(flag + "="):
            return arg.partition("=")[2], args[:i] + args[i + 1 :]
    return None, args


def _named(args: list[str], flag: str) -> list[str]:
    """A first argument without a flag gets one."""
    return [flag, *args] if args and not args[0].startswith("-") else args


def _fail(text: str, code: int) -> None:
    print(f"shoal: {text}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
