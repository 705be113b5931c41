"""`shoal.compare`: train arms with the same seeds, or read runs that are there, and say what is better."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal import launching
from shoal.comparison.facts import BESIDE, RunFacts, facts_of, flat, source_digest
from shoal.comparison.folder import ComparisonFolder, is_comparison, is_of_seeds, jobs_of
from shoal.comparison.loop import check_named, check_parallel, default_parallel, go_on
from shoal.comparison.metrics import PRIMARY, Frame
from shoal.comparison.page import write_page
from shoal.comparison.pilot import speeds_of
from shoal.comparison.plan import Plan, arms_of, check_match, grid, name_of, one_thread, unequal
from shoal.comparison.verdicts import Verdict, judge
from shoal.comparison.words import data_of, lines_of
from shoal.config import TrainConfig
from shoal.runs import jsonl
from shoal.runs.folder import Run
from shoal.runs.kinds import kind_of, told_for
from shoal.runs.settings import settings
from shoal.starting import without_unused
from shoal.tasks.presets import config_for
from shoal.vector.foreign import import_all

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """What came of a comparison."""

    task: str
    arms: dict[str, list[RunFacts]]
    verdicts: list[Verdict]
    frame: Frame
    primary: str
    folder: str | None = None
    report: str | None = None

    def lines(self) -> list[str]:
        """For people."""
        return lines_of(self.task, self.arms, self.verdicts, self.frame, self.primary)

    def to_json(self) -> dict[str, Any]:
        data = data_of(self.task, self.arms, self.verdicts, self.frame, self.primary)
        found: dict[str, Any] = jsonl.plain({**data, "folder": self.folder, "report": self.report}, "", [])
        return found


def compare(
    task: str | Sequence[str],
    *more: str,
    vary: Mapping[str, Sequence[Any]] | None = None,
    seeds: int = 20,
    seed: int = 0,
    held_out: int = 100,
    match: str = "samples",
    primary: str = PRIMARY,
    threshold: float | None = None,
    parallel: int | None = None,
    name: str | None = None,
    runs_dir: str = "runs",
    imports: Sequence[str] = (),
    on: str = "here",
    ray_address: str | None = None,
    say: Say = lambda text: None,
    **options: Any,
) -> Comparison:
    """Compare ways to train a task: `vary` maps options to the values to try (several options: every combination), and
    `options` hold for all arms. The same `seeds` seeds are trained in every arm.

    Or, given folders of runs or of several seeds, compare these; or, given the folder of a comparison, go on with it.
    """
    given = [task] if isinstance(task, str) else list(task)
    given += more
    if vary is None:
        return compare_existing(
            given, runs_dir=runs_dir, primary=primary, threshold=threshold, say=say, parallel=parallel
        )
    if len(given) != 1:
        raise ValueError(f"expected one task to vary options of, got {len(given)}: {', '.join(given)}")
    configs = [(name_of(settings), config_for(given[0], **{**options, **settings})) for settings in grid(vary)]
    with launching.on(on, ray_address):
        return begin(
            given[0], configs, seeds=seeds, seed=seed, held_out=held_out, match=match, primary=primary,
            threshold=threshold, parallel=parallel, name=name, runs_dir=runs_dir, imports=imports, say=say,
        )  # fmt: skip


def begin(
    task: str,
    configs: Sequence[tuple[str, TrainConfig]],
    *,
    seeds: int,
    seed: int,
    held_out: int,
    match: str,
    primary: str,
    threshold: float | None,
    parallel: int | None,
    name: str | None,
    runs_dir: str,
    imports: Sequence[str],
    say: Say,
    command: str | None = None,
) -> Comparison:
    """A new comparison, trained to its end."""
    ways = check_match(match)
    if threshold is None:
        threshold = configs[0][1].run.target_return
    if len({json.dumps(repr(config)) for _, config in configs}) < len(configs):
        raise ValueError(f"expected arms that differ, got some twice: {', '.join(arm for arm, _ in configs)}")
    check_parallel(parallel)
    import_all(imports)
    configs = [(arm, _of_use(arm, one_thread(config), say)) for arm, config in configs]
    speeds = speeds_of(configs, imports, say) if "wall" in ways else {}
    plan = Plan(
        task=task, arms=tuple(arms_of(configs, ways, speeds)), seeds=seeds, seed=seed, held_out=held_out, match=match,
        primary=primary, threshold=threshold, code=source_digest(), imports=tuple(imports),
    )  # fmt: skip
    if ways == ["samples"] and (warning := unequal(plan.arms)):
        say(warning)
    folder = ComparisonFolder.create(plan, runs_dir, name, command or "python: shoal.compare, " + shlex.join(sys.argv))
    return finish(folder, parallel, say)


def _of_use(arm: str, config: TrainConfig, say: Say) -> TrainConfig:
    """An arm without the options that mean something to others alone: --workers, where the backend varies."""
    config, told = without_unused(config)
    for line in told:
        say(f"{arm}: {line}")
    return config


def finish(folder: ComparisonFolder, parallel: int | None, say: Say) -> Comparison:
    """Train what is not trained, and judge."""
    plan = folder.plan
    check_parallel(parallel)
    count = default_parallel(plan) if parallel is None else parallel
    with folder.run.at_work(folder.has_begun):
        say(f"comparison {folder.run.shown}: {len(plan.arms)} arms, {plan.seeds} seeds each, {count} at once")
        go_on(folder, plan, count, say)
        found = read(folder)
        folder.run.set_status("finished", f"{len(jobs_of(plan))} trainings")
    return found


def read(folder: ComparisonFolder) -> Comparison:
    """Judge what is there, and write the summary and the page."""
    plan = folder.plan
    arms = folder.found(plan)
    check_poolable(arms)
    report = folder.path / "report.html"
    found = judged(plan.task, arms, plan.primary, plan.threshold, str(folder.path), str(report))
    folder.write_summary(found.to_json())
    write_page(folder, found)
    return found


def judged(
    task: str,
    arms: dict[str, list[RunFacts]],
    primary: str,
    threshold: float | None,
    folder: str | None = None,
    report: str | None = None,
) -> Comparison:
    """Verdicts on facts."""
    frame = Frame.of([run for runs in arms.values() for run in runs], threshold)
    verdicts = judge(arms, frame.threshold, primary)
    return Comparison(task, arms, verdicts, frame, primary, folder, report)


def compare_existing(
    given: Sequence[str],
    *,
    runs_dir: str,
    primary: str,
    threshold: float | None,
    say: Say,
    parallel: int | None = None,
    report_only: bool = False,
    imports: Sequence[str] = (),
) -> Comparison:
    """Runs that are there, in arms by what they were trained with; or a comparison, gone on with."""
    opened = [Run.open(one, Path(runs_dir)) for one in given]
    if len(opened) == 1 and is_comparison(opened[0]):
        folder = ComparisonFolder(opened[0])
        declared = {
            "primary": (folder.plan.primary, primary, PRIMARY),
            "threshold": (folder.plan.threshold, threshold, None),
        }
        for name, (before, now, default) in declared.items():
            if now not in (before, default):
                raise ValueError(f"--{name} {now}: {opened[0].shown} declared {before} when it began, and keeps to it")
        if report_only:
            return read(folder)
        check_named(folder, imports, "shoal compare")
        return finish(folder, parallel, say)
    if report_only:
        raise ValueError("--report is for a comparison: shoal compare COMPARISON --report")
    runs = [run for one in opened for run in _runs_of(one)]
    for run in runs:
        if kind_of(run) != "training":
            raise ValueError(told_for(run, "training"))
    if len(runs) < 2:
        raise ValueError("expected two runs or more, a comparison, or a task with --vary: shoal compare --help")
    tasks = {settings(run)["task"] for run in runs}
    if len(tasks) > 1:
        raise ValueError(
            f"expected runs of one task, got {', '.join(sorted(tasks))}: returns of two tasks do not compare"
        )
    _evaluated(runs, say)
    arms = arms_of_runs(runs)
    if (versions := len({run.code for group in arms.values() for run in group})) > 1:
        say(f"{versions} versions of the code made these runs, and each has arms of its own: they are never pooled")
    return judged(tasks.pop(), arms, primary, threshold)


def _runs_of(run: Run) -> list[Run]:
    """A run itself; of a training with several seeds, all of them."""
    if not is_of_seeds(run):
        return [run]
    return [Run.open(path, path.parent) for path in sorted(ComparisonFolder(run).runs.iterdir())]


def arms_of_runs(runs: Sequence[Run]) -> dict[str, list[RunFacts]]:
    """Runs of the same settings and the same code are an arm; no others are pooled."""
    groups: dict[tuple[str, str], list[tuple[Run, RunFacts]]] = {}
    for run in runs:
        facts = facts_of(run, "", settings(run)["run"]["seed"])
        groups.setdefault((facts.settings, facts.code), []).append((run, facts))
    if len(groups) < 2:
        raise ValueError("expected runs that differ in their settings or their code, got runs of one kind alone")
    flats = [flat(members[0][0].config, BESIDE) for members in groups.values()]
    codes = {code for _, code in groups}
    arms: dict[str, list[RunFacts]] = {}
    for (_, code), members, own in zip(groups, groups.values(), flats, strict=True):
        differing = {key: value for key, value in own.items() if any(other.get(key) != value for other in flats)}
        label = name_of(differing) + (f" [{code}]" if len(codes) > 1 else "")
        label = label if label and label not in arms else f"{label} ({len(arms) + 1})".strip()
        arms[label] = [RunFacts.from_json({**facts.to_json(), "arm": label}) for _, facts in members]
        seeds = [facts.seed for facts in arms[label]]
        if len(set(seeds)) < len(seeds):
            raise ValueError(
                f"expected runs of different seeds in {label}, got seed {max(seeds, key=seeds.count)} twice"
            )
    return arms


def check_poolable(arms: Mapping[str, Sequence[RunFacts]]) -> None:
    """Runs of one arm have the same settings and all runs the same code; anything else was changed by hand."""
    for name, runs in arms.items():
        if len({run.settings for run in runs}) > 1 or len({run.code for run in runs}) > 1:
            raise ValueError(
                f"the runs of {name} differ in settings or code, and are never pooled: begin a new comparison"
            )


def _evaluated(runs: Sequence[Run], say: Say) -> None:
    """Held-out scores for those that have none."""
    from shoal.evaluation import evaluate
    from shoal.runs import scores

    for run in runs:
        if not scores.part(scores.kept(run), scores.HELD_OUT) and run.status == "finished":
            say(f"{run.shown} has no held-out score yet: 100 episodes")
            evaluate(run.path, say=say)
