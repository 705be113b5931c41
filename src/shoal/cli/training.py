"""`shoal train`."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from shoal.cli.errors import fail
from shoal.cli.parsing import (
    BUDGETS,
    find_here,
    flags_of,
    gives_budget,
    named,
    own_command,
    parse,
    parse_both,
    switch,
    take,
    take_all,
)
from shoal.cli.seeds import several
from shoal.core.checks import shown
from shoal.core.machine import own_rank
from shoal.runs.folder import shown_path
from shoal.runs.trackers import own_places
from shoal.runs.words import wrapped

_ABOUT = """Train PPO on many environments at once; everything is kept in a run folder.

  shoal train CartPole-v1
  shoal train LunarLander-v3 --num-envs 16 --steps 2M --seed 1
  shoal train --resume runs/NAME --steps 4M

TASK is one of `shoal tasks`, or any other Gymnasium id; with TASK given this page shows its own defaults and flags.
Whole numbers may be written 500000, 1e6, 100k or 2M, lists 64,64."""
_EXTRA = (
    ("--resume RUN", "Go on with a run: its folder, or its name under --runs-dir. Its own settings hold; the budget, "
     "the backend, where it is saved and what is shown may be changed."),
    ("--reshard", "With --resume: allow another --num-envs (all episodes restart, and the run is labelled inexact)."),
    ("--seeds N", "Train N times, as many at once as cores allow (or --parallel N), and score each on 100 held-out "
     "episodes (or --held-out N): one folder of runs, with the mean and its 95 % interval."),
)  # fmt: skip


def train(args: list[str], as_json: bool) -> int:
    """Train a policy, or go on with one."""
    begun_in = Path.cwd()  # an environment may change it; what is printed is for the person, who stays here
    resume, args = _resume(args)
    reshard, args = switch(args, "--reshard")
    imports, args = take_all(args, "--import")
    args = named(args, "--task")
    if reshard and resume is None and not {"-h", "--help"} & set(args):
        from shoal.starting import RESHARD_ALONE

        raise ValueError(RESHARD_ALONE)
    beside = [*args, "--reshard"] if reshard else args
    if (code := several(beside, imports, resume, as_json)) is not None:
        return code
    try:
        result = _new(args, imports) if resume is None else _resumed(resume, args, reshard, imports)
    except KeyboardInterrupt:
        kept = "no run folder is kept" if resume is None else f"{resume} is as it was"
        return fail(f"stopped by Ctrl-C before the training began: {kept}", 130)
    if own_rank():
        pass  # rank 0 tells
    elif as_json:
        print(json.dumps(result.to_json(), allow_nan=False))
    else:
        _say_what_next(result, shown_path(result.run, begun_in))
    return 128 + int(result.signal) if result.signal is not None else 0


def _resume(args: list[str]) -> tuple[str | None, list[str]]:
    """The run to go on with, and the other arguments."""
    resume, rest = take(args, "--resume")
    if resume is None:
        return None, rest
    if resume.startswith("-"):
        raise ValueError(f"expected a run after --resume, got {resume}")
    at = args.index("--resume") + 2 if "--resume" in args else len(args)
    more = []
    while at < len(args) and not args[at].startswith("-"):
        more.append(args[at])
        at += 1
    if more:
        raise ValueError(
            f"expected one run after --resume, got {1 + len(more)}: {', '.join([resume, *more])}. Go on with one at a "
            "time; `shoal runs` says how far each has come"
        )
    return resume, rest


def _new(args: list[str], imports: list[str]) -> Any:
    config = config_from(args, imports)
    if sys.stderr.isatty():
        print(f"shoal trains {config.task} ...", file=sys.stderr, flush=True)  # torch takes seconds to load
    from shoal.training import train as run

    return run(config=config, imports=imports, command=own_command())


def config_from(args: list[str], imports: list[str]) -> Any:
    """The settings that the flags of a new run ask for."""
    from shoal.config import TrainConfig
    from shoal.tasks import task_or_default
    from shoal.tasks.presets import config_for, with_preset_kwargs, without_budget

    task, _ = take(args, "--task")
    if task is None and not {"-h", "--help"} & set(args):
        raise ValueError(f"expected a task to train: shoal train TASK\n\n{_tasks()}")
    wrappers, args = take_all(args, "--wrapper")
    callbacks, args = take_all(args, "--callback")
    find_here([*imports, *wrappers, *callbacks, *_own_trackers(args), *([task] if task and ":" in task else [])])
    default = config_for(task or TrainConfig.task, wrappers=tuple(wrappers), callbacks=tuple(callbacks))
    if gives_budget(args):
        default = without_budget(default)
    options = task_or_default(default.task).Options
    if options is None:
        given, args = take(args, "--env-kwargs")
        if given is not None:
            default = default.replace(env_kwargs=with_preset_kwargs(default.task, given))
        return parse(TrainConfig, args, "shoal train TASK", default, about=_ABOUT, extra=_EXTRA)
    return _with_flags(args, default, options)


def _tasks() -> str:
    from shoal.tasks import load_all

    found, broken = load_all()
    width = max(len(task.name) for task in found)
    lines = [*broken, *(f"  {task.name:<{width}}  {task.about}" for task in found)]
    return "\n".join([*lines, f"  {'ID':<{width}}  any other Gymnasium id"])


def _with_flags(args: list[str], default: Any, options: type[Any]) -> Any:
    """A task's own flags stand beside the common ones and become the environment's arguments."""
    from shoal.tasks import options_to_kwargs, task_or_default

    given, _ = take(args, "--env-kwargs")
    prog, own = f"shoal train {default.task}", options(**json.loads(default.env_kwargs))
    config, chosen = parse_both(default, own, args, prog, about=_ABOUT, extra=_EXTRA)
    settings = task_or_default(default.task).settings
    follows = settings(chosen)
    if gives_budget(args):
        follows = {name: value for name, value in follows.items() if "--" + name not in BUDGETS}
    if follows != settings(own):  # defaults that follow from the task's flags; flags by hand still win
        config, chosen = parse_both(default.replace(**follows), own, args, prog)
    if given is not None:
        flags = ", ".join(flags_of(options))
        raise ValueError(f"{default.task} has flags of its own ({flags}): use them in place of --env-kwargs")
    return dataclasses.replace(config, env_kwargs=options_to_kwargs(chosen))


def _resumed(resume: str, args: list[str], reshard: bool, imports: list[str]) -> Any:
    from shoal.config import TrainConfig, from_dict
    from shoal.runs.kinds import open_training
    from shoal.tasks.presets import without_budget

    callbacks, args = take_all(args, "--callback")
    trackers = _own_trackers(args)
    find_here([*imports, *callbacks, *trackers])
    root, _ = take(args, "--runs-dir")
    run = open_training(resume, Path(root or "runs"))
    before = from_dict(run.config)
    _refuse_own_flags(before, args)
    config = without_budget(before) if gives_budget(args) else before
    config = parse(TrainConfig, args, "shoal train --resume RUN", config, about=_ABOUT, extra=_EXTRA)
    _refuse_less(run, before.run, config.run)
    from shoal.training import train as go_on

    imports = [*imports, *(place.partition(":")[0] for place in trackers)]  # typed now, so trusted
    return go_on(
        resume=run.path, config=config, reshard=reshard, imports=imports, callbacks=callbacks, command=own_command()
    )


def _own_trackers(args: list[str]) -> tuple[str, ...]:
    return own_places(take(args, "--track")[0] or "")


def next_commands(run: str, shown: str | None = None) -> list[str]:
    """The commands that score a run as others score theirs, the quickest first."""
    from shoal.runs.folder import Run
    from shoal.tasks import task_or_default

    imports = _import_flags(run)
    return [
        f"shoal evaluate {shown or run}{imports} {flags}".rstrip() + (f"   ({words})" if words else "")
        for flags, words in task_or_default(Run.open(run, Path()).config["task"]).evaluations
    ]


def _import_flags(run: str, *, resume: bool = False) -> str:
    """What must be said again, since shoal imports nothing that only a run folder names. To `resume`, callbacks too."""
    from shoal.config import from_dict
    from shoal.runs.folder import Run
    from shoal.vector.foreign import import_flags, modules_of

    config = from_dict(Run.open(run, Path(".")).config)
    own = (*config.callbacks, *own_places(config.run.track)) if resume else ()
    places = (*config.wrappers, *own)
    flags = import_flags(modules_of(config.task, config.imports, places))
    return f" {flags}" if flags else ""


def _refuse_own_flags(before: Any, args: list[str]) -> None:
    """A task's own flags are what the run learns from: they stay as they are."""
    from shoal.config import TrainConfig
    from shoal.tasks import task_or_default

    options = task_or_default(before.task).Options
    own_flags = set() if options is None else set(flags_of(options)) - set(flags_of(TrainConfig))
    given = sorted({word.partition("=")[0] for word in args} & own_flags)
    if given:
        own = json.loads(before.env_kwargs)
        kept = ", ".join(f"{flag} {shown(own[name])}" for flag in given if (name := flag[2:].replace("-", "_")) in own)
        raise ValueError(
            f"expected none of {before.task}'s own flags beside --resume, got {', '.join(given)}: a run goes on as it "
            f"began{f' ({kept})' if kept else ''}; for others begin a new one: shoal train {before.task}"
        )


def _refuse_less(run: Any, before: Any, after: Any) -> None:
    """A new budget that is spent already is a mistake, not a finished training."""
    row = run.last_row()
    for name, key in (("steps", "steps"), ("epochs", "epoch"), ("episodes", "episodes")):
        asked, done = getattr(after, name), row.get(key) or 0
        if asked is not None and asked != getattr(before, name) and asked <= done:
            raise ValueError(
                f"{run.shown} has done {done:,} {name} already, --{name} {asked:,} asks for no more: the budget counts "
                "from the beginning of the run"
            )


def _say_what_next(result: Any, run: str) -> None:
    lines = result.lines()
    if not _one_place():  # else the end of the display has just said them there
        print("\n".join(_wrapped(line) for line in lines))
    print(f"run      {run}")
    print(f"report   {run}/report.html")
    commands = next_commands(result.run, run) if result.epochs > 0 else []
    if result.status == "interrupted":
        commands.append(f"shoal train --resume {run}{_import_flags(result.run, resume=True)}")
    for number, command in enumerate(commands):
        print(f"{'         ' if number else 'next     '}{command}")


def _one_place() -> bool:
    """Do standard output and standard error go to the same terminal or file?"""
    try:
        out, err = (os.fstat(stream.fileno()) for stream in (sys.stdout, sys.stderr))
    except (OSError, ValueError):
        return False
    return (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino)


def _wrapped(line: str) -> str:
    """At the width of the terminal; as it is where it goes to a file."""
    return wrapped(line, shutil.get_terminal_size().columns) if sys.stdout.isatty() else line
