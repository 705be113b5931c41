"""`shoal tune`."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from shoal.cli.parsing import named, parse, say
from shoal.runs.folder import check_folder, check_name


@dataclass(frozen=True)
class TuneArgs:
    """Measure which backend and how many environments are fastest on this machine, or search settings (--search)."""

    id: str
    """A Gymnasium id, or a task of `shoal tasks`."""
    env_kwargs: str = "{}"
    """Arguments of the environment, as a JSON object."""
    num_envs: tuple[int, ...] = (8, 32, 128)
    """Numbers of environments to try."""
    backends: tuple[str, ...] | None = None
    """Backends to try: serial, process, split; default: all that apply (compiled: one thread, and all)."""
    workers: int | None = None
    """Processes of the backends process and split; default: one per core."""
    start_method: str | None = None
    """How workers start: forkserver, spawn or fork."""
    seconds: float = 1.0
    """Seconds of stepping per candidate."""
    turns: int = 5
    """Rounds in which these seconds are spread over all candidates, so that a busy moment affects all alike."""
    search: bool = False
    """Search settings of PPO instead (docs/tuning.md): trials that learn slowly are stopped, the best and the task's
    own settings are trained with several seeds. The same command with the same --name continues a search."""
    trials: int = 20
    """With --search: trainings to choose from."""
    measure: Literal["steps", "cpu", "return"] | None = None
    """With --search: what to optimise: steps or CPU-seconds (cpu) to the task's target, or the return at the end.
    Default: steps if the task has a target, otherwise return. Results by CPU-seconds vary from search to search."""
    steps: int | None = None
    """With --search: budget of a training in steps; default: the task's."""
    seed: int = 0
    """With --search: seed of the trials and trainings."""
    finalists: int = 3
    """With --search: best trials that are trained with new seeds, beside the task's own settings."""
    seeds: int = 3
    """With --search: trainings of each finalist."""
    name: str | None = None
    """With --search: name of its folder; default: tune-ID."""
    runs_dir: str = "runs"
    """With --search: folder that holds the search."""

    def __post_init__(self) -> None:
        of_search = ("trials", "measure", "steps", "seed", "finalists", "seeds", "name", "runs_dir")
        of_measuring = ("num_envs", "backends", "workers", "start_method", "seconds", "turns")
        for one in fields(self):
            flag = "--" + one.name.replace("_", "-")
            if getattr(self, one.name) == one.default:
                continue
            if self.search and one.name in of_measuring:
                raise ValueError(f"{flag} is for measuring, --search for settings of PPO: leave one of them out")
            if not self.search and one.name in of_search:
                raise ValueError(f"{flag} is for --search: add that, or leave {flag} out")


def tune(args: list[str], as_json: bool) -> int:
    """Measure backends and numbers of environments."""
    given = parse(TuneArgs, named(args, "--id"), "shoal tune ID")
    if given.search:
        return _search(given, as_json)
    from shoal.tasks import environment
    from shoal.tasks.saved import parse_env_kwargs
    from shoal.vector import tune as tuning

    made, kwargs = environment(given.id, parse_env_kwargs(given.env_kwargs))
    found = tuning.tune(
        made,
        num_envs=given.num_envs,
        backends=given.backends,
        env_kwargs=kwargs,
        workers=given.workers,
        start_method=given.start_method,
        seconds=given.seconds,
        turns=given.turns,
        say=say,
    )
    if as_json:
        print(json.dumps({"env": given.id} | found.to_json(), allow_nan=False))
        return 0
    print(f"{'backend':<22}{'environments':>12}{'steps/s':>12}{'slowest to fastest turn':>28}{'CPU us a step':>16}")
    for trial in found.trials:
        cpu = "-" if trial.cpu_s_per_step is None else f"{1e6 * trial.cpu_s_per_step:,.2f}"
        spread = f"{trial.slowest:,.0f} to {trial.fastest:,.0f}"
        mark = "  <-" if trial is found.best else ""
        print(f"{trial.label:<22}{trial.num_envs:>12,}{trial.steps_per_s:>12,.0f}{spread:>28}{cpu:>16}{mark}")
    print(f"\nuse      shoal train {given.id} {found.best.flags}{_same(given, found.best.backend)}")
    print(
        "These are the environments alone: training adds the network's time. Of figures within 5 % of the fastest the\n"
        "least CPU time a step wins. The number of environments also sets how much one update sees (--rollout-steps)."
    )
    return 0


def _search(given: TuneArgs, as_json: bool) -> int:
    from shoal.tuning.loop import SearchPlan, search
    from shoal.tuning.page import write_page

    names = ("trials", "measure", "steps", "seed", "finalists", "seeds", "env_kwargs")
    plan = SearchPlan(given.id, **{name: getattr(given, name) for name in names})
    name = given.name if given.name is not None else "tune-" + re.sub(r"[^A-Za-z0-9._-]+", "-", given.id)[:75]
    check_name(name)
    folder = check_folder(Path(given.runs_dir)) / name
    say(f"search {folder}")
    try:
        found = search(plan, folder, say)
    except KeyboardInterrupt:
        say("stopped; every finished trial is kept: the same command goes on")
        return 130
    report = write_page(folder)
    lines = [*found.lines(), f"folder   {folder}", f"report   {report}"]
    print(json.dumps({**found.to_json(), "report": str(report)}, allow_nan=False) if as_json else "\n".join(lines))
    return 0


def _same(given: TuneArgs, backend: str) -> str:
    """Flags under which it was measured, and under which it has to be trained to be as fast."""
    from shoal.tasks import task_or_default

    flags = ""
    if backend in ("process", "split"):
        flags += f" --workers {given.workers}" if given.workers else ""
        flags += f" --start-method {given.start_method}" if given.start_method else ""
    if json.loads(given.env_kwargs) and task_or_default(given.id).Options is None:  # else the task has flags of its own
        flags += f" --env-kwargs {shlex.quote(given.env_kwargs)}"
    return flags
