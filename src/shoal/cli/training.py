"""`shoal train`."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from pathlib import Path
from typing import Any

from shoal.cli.parsing import BUDGETS, find_here, gives_budget, named, parse, switch, take, take_all


def train(args: list[str], as_json: bool) -> int:
    """Train a policy, or go on with one."""
    resume, args = take(args, "--resume")
    reshard, args = switch(args, "--reshard")
    imports, args = take_all(args, "--import")
    args = named(args, "--task")
    result = _new(args, imports) if resume is None else _resumed(resume, args, reshard, imports)
    if as_json:
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        _say_what_next(result)
    return 128 + int(result.signal) if result.signal is not None else 0


def _new(args: list[str], imports: list[str]) -> Any:
    from shoal.config import TrainConfig
    from shoal.tasks import options_class
    from shoal.tasks.presets import config_for, without_budget

    task, _ = take(args, "--task")
    wrappers, args = take_all(args, "--wrapper")
    find_here([*imports, *wrappers, *([task] if task and ":" in task else [])])
    default = config_for(task or TrainConfig.task).replace(wrappers=tuple(wrappers))
    if gives_budget(args):
        default = without_budget(default)
    options = options_class(default.task)
    config = (
        parse(TrainConfig, args, "shoal train TASK", default)
        if options is None
        else _with_flags(args, default, options)
    )
    from shoal.train import train as run

    return run(config=config, imports=imports, command=_command())


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


def _resumed(resume: str, args: list[str], reshard: bool, imports: list[str]) -> Any:
    from shoal.config import TrainConfig, from_dict
    from shoal.runs.store import Run
    from shoal.tasks.presets import without_budget

    find_here(imports)
    root, _ = take(args, "--runs-dir")
    run = Run.open(resume, Path(root or "runs"))
    config = from_dict(run.config)
    if gives_budget(args):
        config = without_budget(config)
    config = parse(TrainConfig, args, "shoal train --resume RUN", config)
    from shoal.train import train as go_on

    return go_on(resume=run.path, config=config, reshard=reshard, imports=imports, command=_command())


def _command() -> str:
    return shlex.join(["shoal", *sys.argv[1:]])


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
    for number, command in enumerate(next_commands(result.run)):
        print(f"{'         ' if number else 'next     '}{command}")
    if result.status == "interrupted":
        print(f"         shoal train --resume {result.run}{_import_flags(result.run)}")


def next_commands(run: str) -> list[str]:
    """The commands that score a run as others score theirs, the quickest first."""
    from shoal.runs.store import Run
    from shoal.tasks import evaluations

    imports = _import_flags(run)
    return [
        f"shoal evaluate {run}{imports} {flags}".rstrip() + (f"   ({words})" if words else "")
        for flags, words in evaluations(Run.open(run, Path()).config["task"])
    ]


def _import_flags(run: str) -> str:
    """What must be said again, since shoal imports nothing that only a run folder names."""
    from shoal.config import from_dict
    from shoal.runs.store import Run
    from shoal.vector.foreign import import_flags, modules_of

    config = from_dict(Run.open(run, Path(".")).config)
    flags = import_flags(modules_of(config.task, config.imports, config.wrappers))
    return f" {flags}" if flags else ""
