"""`shoal train TASK --seeds 5`: the same training with several seeds, and what it comes to on average."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.comparison.facts import RunFacts, source_digest
from shoal.comparison.folder import ComparisonFolder, is_of_seeds
from shoal.comparison.loop import check_named, check_parallel, default_parallel, go_on
from shoal.comparison.page import settings_of
from shoal.comparison.plan import Arm, Plan, one_thread
from shoal.config import TrainConfig, to_dict
from shoal.core.statistics import interval
from shoal.origin import located
from shoal.runs.charts import Line, chart
from shoal.runs.curves import on_one_axis
from shoal.runs.disk import replace_atomically
from shoal.runs.folder import Run, shown_path
from shoal.runs.kinds import told_for
from shoal.runs.page import Card, Part, number, page, table, text
from shoal.runs.words import decimals, figure
from shoal.starting import check_used
from shoal.tasks import environment
from shoal.tasks.saved import parse_env_kwargs
from shoal.vector.foreign import find_spec, import_all

Say = Callable[[str], None]


@dataclass(frozen=True)
class Seeds:
    """What came of one training with several seeds."""

    task: str
    folder: str
    report: str
    runs: list[RunFacts]

    @property
    def finals(self) -> list[float]:
        """Held-out mean returns of those that came to their end: one run is one value."""
        return [run.final for run in self.runs if run.whole and run.final is not None]

    def mean(self) -> dict[str, float | None]:
        """Over seeds, with its 95 % interval; one seed has none."""
        if not self.finals:
            return {"mean": None, "low": None, "high": None}
        values = np.array(self.finals)
        low, high = interval(values) or (None, None)
        return {"mean": float(values.mean()), "low": low, "high": high}

    def to_json(self) -> dict[str, Any]:
        names = ("seed", "run", "status", "reason", "final", "sampled", "training", "steps", "seconds")
        rows = [{name: getattr(run, name) for name in names} for run in self.runs]
        return {"task": self.task, **self.mean(), "runs": rows, "folder": self.folder, "report": self.report}

    def lines(self) -> list[str]:
        """For people."""
        found = self.mean()
        places = decimals(*self.finals, *(found[end] for end in ("low", "high")))
        lines = [f"{'seed':>4}  {'held-out return':>16}{'training':>12}{'steps':>14}  run"]
        for run in self.runs:
            steps, value = f"{run.steps:,}", figure(run.final, places)
            end = "" if run.whole else f"  {run.status}: {run.reason}"
            lines.append(f"{run.seed:>4}  {value:>16}{figure(run.training, places):>12}{steps:>14}  {run.run}{end}")
        return [*lines, self.sentence()]

    def sentence(self) -> str:
        """The figure to quote."""
        found, count = self.mean(), len(self.finals)
        if found["mean"] is None:
            return f"none of {len(self.runs)} trainings came to its end"
        low, high = found["low"], found["high"]
        between = "" if low is None else f", 95 % interval {figure(low)} to {figure(high)}"
        over = f"{count} seeds" if count == len(self.runs) else f"the {count} of {len(self.runs)} seeds that finished"
        return f"held-out return {figure(found['mean'])} on average over {over}{between}"


def train_seeds(
    config: TrainConfig,
    seeds: int,
    *,
    parallel: int | None = None,
    held_out: int = 100,
    imports: Sequence[str] = (),
    command: str | None = None,
    say: Say = lambda text: None,
) -> Seeds:
    """Train `seeds` times, each in a process of its own, and score each on held-out episodes.

    Seeds descend from that of `config`. Everything is kept in one folder; `go_on_with` finishes what was stopped.
    """
    if seeds < 2:
        raise ValueError(f"expected --seeds of at least 2, got {seeds}: one training has --seed")
    check_parallel(parallel)
    import_all(imports)
    for line in check_used(config):
        say(line)
    made, _ = environment(config.task, parse_env_kwargs(config.env_kwargs))
    if isinstance(made, str):
        find_spec(made)  # an id that does not exist is told at once, not by a worker
    safe = config.task.rpartition(":")[2]
    arm = Arm(safe, to_dict(located(one_thread(config)).replace(name=None)))
    plan = Plan(
        task=config.task, arms=(arm,), seeds=seeds, seed=config.run.seed, held_out=held_out, match="samples",
        primary="final", threshold=None, code=source_digest(), imports=tuple(imports), alone=True,
    )  # fmt: skip
    command = command or "python: shoal, " + shlex.join(sys.argv)
    return _finish(ComparisonFolder.create(plan, config.run.runs_dir, config.run.name, command), parallel, say)


def go_on_with(
    folder: str | Path, *, runs_dir: str = "runs", parallel: int | None = None, imports: Sequence[str] = (), say: Say
) -> Seeds:
    """Train what is not trained yet of a folder of seeds."""
    check_parallel(parallel)
    run = Run.open(folder, Path(runs_dir))
    if not is_of_seeds(run):
        raise ValueError(told_for(run, "seeds"))
    found = ComparisonFolder(run)
    check_named(found, imports, "shoal train --resume")
    return _finish(found, parallel, say)


def read_again(folder: str | Path, runs_dir: str = "runs") -> Seeds:
    """What is there, and its page once more."""
    return _read(ComparisonFolder(Run.open(folder, Path(runs_dir))))


def _finish(folder: ComparisonFolder, parallel: int | None, say: Say) -> Seeds:
    plan = folder.plan
    count = default_parallel(plan) if parallel is None else parallel
    with folder.run.at_work(folder.has_begun):
        say(f"folder {folder.run.shown}: {plan.task} with {plan.seeds} seeds, {min(count, plan.seeds)} at once")
        go_on(folder, plan, count, say)
        found = _read(folder)
        folder.run.set_status("finished", found.sentence())
    return found


def _read(folder: ComparisonFolder) -> Seeds:
    plan = folder.plan
    (runs,) = folder.found(plan).values()
    path = folder.path / "report.html"
    found = Seeds(plan.task, str(folder.path), str(path), runs)
    folder.write_summary(found.to_json())
    replace_atomically(path, _page(folder, plan, found).encode())
    return found


def _page(folder: ComparisonFolder, plan: Plan, found: Seeds) -> str:
    rows = [
        [run.seed, number(run.final), number(run.sampled), number(run.training), number(run.steps), run.run,
         run.status if run.whole else f"{run.status}: {run.reason}"]
        for run in found.runs
    ]  # fmt: skip
    head = ["seed", "held-out return", "sampled", "training", "steps", "run", "status"]
    marks = ["" if run.whole else "bad" for run in found.runs]
    links = "".join(f"<li><a href='runs/{text(run.run)}/report.html'>{text(run.run)}</a></li>" for run in found.runs)
    return page(
        folder.run.name,
        plan.task,
        f"{text(folder.run.name)} &middot; <code>{text((folder.path / 'command.txt').read_text().strip())}</code>",
        text(found.sentence()) + ".",
        [
            f"{len(found.runs)} of {plan.seeds} trainings are over",
            f"each scored on {plan.held_out} held-out episodes; one training is one value",
        ],
        [
            Part("Seeds", table(head, rows, marks, wide=(6,)) + f"<ul>{links}</ul>"),
            Part("Training", _curves(found)),
            Part("Settings", settings_of(plan.arms[0].config), True),
        ],
        cards=_cards(found),
    )


def _cards(found: Seeds) -> list[Card]:
    mean = found.mean()
    if mean["mean"] is None:
        return []
    between = "" if mean["low"] is None else f"95 % interval {figure(mean['low'])} to {figure(mean['high'])}"
    cards = [Card("held-out return", figure(mean["mean"]), between)]
    lowest, highest = min(found.finals), max(found.finals)
    return [*cards, Card("worst seed", figure(lowest)), Card("best seed", figure(highest))]


def _curves(found: Seeds) -> str:
    """Every seed's curve, quietly, and their mean where all of them have gone."""
    curves = [run.curve for run in found.runs if run.curve.steps]
    if not curves:
        return ""
    at, each = on_one_axis([(curve.steps, curve.returns) for curve in curves])
    mean = [sum(values) / len(values) for values in zip(*each, strict=True)]
    lines = [Line(f"seed {place + 1}", values, thin=True, colour=7) for place, values in enumerate(each)]
    label = f"mean return, last 100 episodes: {len(curves)} runs and their mean"
    drawn = chart(at, [*lines, Line("mean of the seeds", mean)], label=label, unit="environment steps")
    return f"<div class='middle'>{drawn}</div>"


def shown(found: Seeds) -> list[str]:
    """Lines for people, with where everything is."""
    return [*found.lines(), f"folder   {shown_path(found.folder)}", f"report   {shown_path(found.report)}"]
