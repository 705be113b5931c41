"""`shoal train`."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from shoal.cli.parsing import BUDGETS, gives_budget, named, parse, switch, take


def train(args: list[str], as_json: bool) -> int:
    """Train a policy, or go on with one."""
    resume, args = take(args, "--resume")
    reshard, args = switch(args, "--reshard")
    args = named(args, "--task")
    result = _new(args) if resume is None else _resumed(resume, args, reshard)
    if as_json:
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        _say_what_next(result)
    return 128 + int(result.signal) if result.signal is not None else 0


def _new(args: list[str]) -> Any:
    from shoal.config import TrainConfig
    from shoal.tasks import options_class
    from shoal.tasks.presets import config_for, without_budget

    task, _ = take(args, "--task")
    default = config_for(task or TrainConfig.task)
    if gives_budget(args):
        default = without_budget(default)
    options = options_class(default.task)
    config = (
        parse(TrainConfig, args, "shoal train TASK", default)
        if options is None
        else _with_flags(args, default, options)
    )
    from shoal.train import train as run

    return run(config=config, command=shlex.join(["shoal", *sys.argv[1:]]))


def _with_flags(args: list[str], default: Any, options: type[Any]) -> Any:
    """A task's own flags stand beside the common ones and become the environment's arguments."""
    from shoal.config import TrainConfig
    from shoal.tasks import options_to_kwargs, settings

    both_kinds = [("config", TrainConfig), ("task_options", options)]
    Both = dataclasses.make_dataclass("Both", both_kinds, frozen=True, namespace={"__doc__": "One training run."})
    given, _ = take(args, "--env-kwargs")
    prog, own = f"shoal train {default.task}", options(**json.loads(default.env_kwargs))
    both: Any = parse(Both, args, prog, Both(default, own))
    follows = settings(default.task, both.task_options)
    if gives_budget(args):
        follows = {name: value for name, value in follows.items() if "--" + name not in BUDGETS}
    if follows != settings(default.task, own):  # defaults that follow from the task's flags; flags by hand still win
        both = parse(Both, args, prog, Both(default.replace(**follows), own))
    if given is not None:
        raise ValueError(f"{default.task} has flags of its own ({_flags(options)}): use them in place of --env-kwargs")
    return dataclasses.replace(both.config, env_kwargs=options_to_kwargs(both.task_options))


def _flags(options: type[Any]) -> str:
    return ", ".join("--" + field.name.replace("_", "-") for field in dataclasses.fields(options))


def _resumed(resume: str, args: list[str], reshard: bool) -> Any:
    from shoal.config import TrainConfig, from_dict
    from shoal.runs.store import Run
    from shoal.tasks.presets import without_budget

    root, _ = take(args, "--runs-dir")
    run = Run.open(resume, Path(root or "runs"))
    config = from_dict(run.config)
    if gives_budget(args):
        config = without_budget(config)
    config = parse(TrainConfig, args, "shoal train --resume RUN", config)
    from shoal.train import train as go_on

    return go_on(resume=run.path, config=config, reshard=reshard)


def _say_what_next(result: Any) -> None:
    mean = "-" if result.mean_return is None else f"{result.mean_return:,.1f}"
    print(f"{result.status}: {result.reason}")
    print(
        f"{result.steps:,} steps, {result.episodes:,} episodes, mean return of the last 100: {mean}; "
        f"{result.wall_s:,.1f} s ({result.cpu_s:,.1f} CPU-s)"
    )
    if result.restarts:
        print(f"{result.restarts} environments were restarted after faults: see {result.run}/events.jsonl")
    print(f"run      {result.run}")
    print(f"report   {result.run}/report.html")
    print(f"next     {next_command(result.run)}")
    if result.status == "interrupted":
        print(f"         shoal train --resume {result.run}")


def next_command(folder: str) -> str:
    """The command that scores a run as others score theirs."""
    from shoal.runs.store import Run
    from shoal.tasks import TASKS

    task = Run.open(folder, Path()).config["task"]
    flags = TASKS[task].evaluate if task in TASKS else ""
    return f"shoal evaluate {folder} {flags}".rstrip()
