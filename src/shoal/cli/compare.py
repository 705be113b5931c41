"""`shoal compare`: which settings are better? What it does is in shoal.comparison."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from shoal import launching
from shoal.cli.parsing import find_here, flags_of, own_command, parse, say, switch, take, take_all
from shoal.cli.training import config_from

_ABOUT = """Train arms (settings) with the same seeds and state which is better, or compare existing runs.

  shoal compare CartPole-v1 --vary num_envs=64,256 --seeds 10
  shoal compare CartPole-v1 --num-envs 64 256 --vary auto_scale=true,false --steps 200k
  shoal compare COMPARISON             continue it, or show it again
  shoal compare RUN RUN ...            runs of the same settings and code are an arm; also folders of --seeds

Every flag of `shoal train TASK` holds for all arms. A run is one value: a firm verdict needs at
least 10 seeds; with fewer than 5 there are figures and no verdict. The other arms are compared with the first."""
_EXTRA = (
    ("--vary OPTION=A,B", "An option and the values to try; several options: every combination. Lists in lists are "
     "separated by semicolons: hidden=64,64;128,128. `--num-envs 64 256` is a short form."),
    ("--report", "With a comparison: judge the existing runs and write the page, without training."),
)  # fmt: skip


@dataclass(frozen=True)
class CompareArgs:
    """Train arms (settings) with the same seeds and state which is better."""

    seeds: int = 20
    """Trainings of each arm."""
    seed: int = 0
    """Seed from which the seeds of all trainings are derived."""
    held_out: int = 100
    """Held-out episodes that each trained policy plays."""
    match: str = "samples"
    """The budget that is equal for all arms: samples, updates (gradient steps), wall (seconds, by a pilot of each arm),
    or several of these, separated by commas."""
    primary: str = "final"
    """The claim that is tested at 5 %; all others share Holm's correction."""
    threshold: float | None = None
    """Training return to be reached; default: the task's target, otherwise three quarters of the way up."""
    parallel: int | None = None
    """Trainings at once; default: as many as cores allow."""
    name: str | None = None
    """Name of the folder; default: task, date and time."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""
    on: Literal["here", "ray"] = "here"
    """Where trainings run: on this machine, or as tasks of a Ray cluster whose nodes all see --runs-dir."""
    ray_address: str | None = None
    """With --on ray: the cluster, as auto, HOST:PORT or ray://HOST:PORT; default: an instance on this machine."""


def compare(args: list[str], as_json: bool) -> int:
    """Compare arms, runs, or go on with a comparison."""
    if {"-h", "--help"} & set(args):
        parse(CompareArgs, ["--help"], "shoal compare TASK --vary OPTION=A,B", about=_ABOUT, extra=_EXTRA)
    words, args = _leading(args)
    report_only, args = switch(args, "--report")
    varied, args = take_all(args, "--vary")
    imports, args = take_all(args, "--import")
    own, args = _own(args)
    given = parse(CompareArgs, own, "shoal compare")
    if not words:
        raise ValueError("expected what to compare: shoal compare TASK --vary num_envs=64,256, runs, or a comparison")
    vary = dict(_pair(text) for text in varied)
    if not _are_runs(words, given.runs_dir):
        short, args = _short_form(words[0], args)
        vary |= short
    find_here(imports)
    try:
        with launching.on(given.on, given.ray_address):
            found = (
                _existing(words, args, given, report_only, imports)
                if not vary
                else _new(words, args, given, vary, imports, report_only)
            )
    except KeyboardInterrupt:
        say("stopped; every finished training is kept: go on with shoal compare and the folder named above")
        return 130
    print(json.dumps(found.to_json(), allow_nan=False) if as_json else "\n".join(_lines(found)))
    return 0


def _existing(words: list[str], args: list[str], given: CompareArgs, report_only: bool, imports: list[str]) -> Any:
    from shoal.comparison.api import compare_existing

    if args:
        raise ValueError(f"unknown option {args[0]} for runs that are there. See shoal compare --help")
    for name in ("seeds", "seed", "held_out", "match", "name"):
        if getattr(given, name) != getattr(CompareArgs, name):
            flag = "--" + name.replace("_", "-")
            raise ValueError(
                f"{flag} is for a new comparison (shoal compare TASK --vary OPTION=A,B), not for {words[0]}"
            )
    if not _are_runs(words, given.runs_dir) and len(words) == 1:
        _known_task(words[0])
    return compare_existing(
        words, runs_dir=given.runs_dir, primary=given.primary, threshold=given.threshold, say=say,
        parallel=given.parallel, report_only=report_only, imports=imports,
    )  # fmt: skip


def _known_task(name: str) -> None:
    from shoal.tasks import find
    from shoal.vector.foreign import find_spec

    try:
        known = find(name) is not None or find_spec(name) is not None
    except Exception:
        return  # neither task nor run: whoever opens it says so
    if known:
        raise ValueError(f"expected what varies: shoal compare {name} --vary num_envs=64,256")


def _new(
    words: list[str],
    args: list[str],
    given: CompareArgs,
    vary: dict[str, list[str]],
    imports: list[str],
    report_only: bool,
) -> Any:
    from shoal.comparison.api import begin
    from shoal.comparison.plan import grid, name_of

    if report_only:
        raise ValueError("--report is for a comparison that is there: shoal compare COMPARISON --report")
    if len(words) != 1:
        raise ValueError(f"expected one task to vary options of, got {len(words)}: {', '.join(words)}")
    configs = []
    for settings in grid(vary):
        flags = [flag for name, value in settings.items() for flag in _flag(name, value)]
        config = config_from(["--task", words[0], *args, *flags], imports)
        configs.append((name_of(settings), dataclasses.replace(config, imports=tuple(imports) or config.imports)))
    return begin(
        words[0], configs, seeds=given.seeds, seed=given.seed, held_out=given.held_out, match=given.match,
        primary=given.primary, threshold=given.threshold, parallel=given.parallel, name=given.name,
        runs_dir=given.runs_dir, imports=imports, say=say, command=own_command(),
    )  # fmt: skip


def _leading(args: list[str]) -> tuple[list[str], list[str]]:
    """The words before the first flag."""
    count = next((i for i, arg in enumerate(args) if arg.startswith("-")), len(args))
    return args[:count], args[count:]


def _are_runs(words: list[str], runs_dir: str) -> bool:
    return any(os.path.isfile(Path(root) / words[0] / "config.json") for root in (runs_dir, "."))


def _own(args: list[str]) -> tuple[list[str], list[str]]:
    """The flags of `compare`, and those of the trainings."""
    own: list[str] = []
    for flag in flags_of(CompareArgs):
        value, args = take(args, flag)
        if value is not None:
            own += [flag, value]
    return own, args


def _pair(text: str) -> tuple[str, list[str]]:
    """An option and its values.

    >>> _pair("num-envs=64,256"), _pair("hidden=64,64;128,128")
    (('num_envs', ['64', '256']), ('hidden', ['64,64', '128,128']))
    """
    name, equals, values = text.partition("=")
    found = [value.strip() for value in values.split(";" if ";" in values else ",") if value.strip()]
    if not equals or not name or not found:
        raise ValueError(f"expected --vary as OPTION=A,B, got {text!r}")
    return name.strip().lstrip("-").replace("-", "_"), found


def _flag(name: str, value: str) -> list[str]:
    """An option as flags: a switch is there or its opposite is."""
    flag = name.replace("_", "-")
    if value.lower() in ("true", "on", "yes"):
        return [f"--{flag}"]
    if value.lower() in ("false", "off", "no") and _is_switch(f"--{flag}"):
        return [f"--no-{flag}"]
    return [f"--{flag}", value]


def _is_switch(flag: str) -> bool:
    from shoal.config import TrainConfig

    return flags_of(TrainConfig).get(flag, bool) is bool


def _short_form(task: str, args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """`--num-envs 64 256` varies the option; a flag that takes several values anyway does not."""
    from shoal.config import TrainConfig
    from shoal.tasks import task_or_default

    options = task_or_default(task).Options
    hints = flags_of(TrainConfig) | ({} if options is None else flags_of(options))
    vary: dict[str, list[str]] = {}
    rest: list[str] = []
    at = 0
    while at < len(args):
        flag, at = args[at], at + 1
        values = []
        while at < len(args) and not args[at].startswith("--"):
            values.append(args[at])
            at += 1
        if flag.startswith("--") and len(values) > 1 and "tuple" not in str(hints.get(flag, "tuple")):
            vary[flag[2:].replace("-", "_")] = values
        else:
            rest += [flag, *values]
    return vary, rest


def _lines(found: Any) -> list[str]:
    from shoal.runs.folder import shown_path

    places = [(name, place) for name in ("folder", "report") if (place := getattr(found, name)) is not None]
    return [*found.lines(), *([""] if places else []), *(f"{name:<9}{shown_path(place)}" for name, place in places)]
