"""The folder of a comparison: its plan, a run folder for each training, and what came of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.comparison.facts import RunFacts, read_facts
from shoal.comparison.plan import Plan
from shoal.core.checks import shown
from shoal.core.records import damaged
from shoal.runs.disk import replace_atomically, to_json
from shoal.runs.folder import Run
from shoal.runs.kinds import told_for

SUMMARY = "summary.json"
COMPARISON, SEEDS = "comparison", "seeds"  # in config.json: what the folder is, with its plan

_README = """\
This folder is one comparison of shoal: the same seeds trained in several arms.

config.json     the plan: arms, seeds, how budgets are matched, the one claim that was declared
runs/           one run folder per training
done/           one file per training that is over: its figures and learning curve
logs/           what each training said
summary.json    all of these, the frame that they are read in, and the verdicts
report.html     the page
lock            held by the process that writes here

Go on with it, or show it again:  shoal compare {name}
"""
_README_OF_SEEDS = """\
This folder is one training of shoal with several seeds.

config.json     the plan: settings, seeds
runs/           one run folder per seed
done/           one file per training that is over: its figures and learning curve
logs/           what each training said
summary.json    all of these, with the mean and its interval
report.html     the page
lock            held by the process that writes here

Go on with it:  shoal train --resume {name}
"""


@dataclass(frozen=True)
class Job:
    """One training of a comparison."""

    arm: int
    place: int  # of its seed

    def name(self, plan: Plan) -> str:
        """Of its run folder and files."""
        return ("" if plan.alone else f"{self.arm}-") + f"{plan.arms[self.arm].slug}-s{self.place:02d}"


class ComparisonFolder:
    """Paths and records of one comparison."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @staticmethod
    def create(plan: Plan, runs_dir: str, name: str | None, command: str) -> ComparisonFolder:
        """A new one, named after the task and the time unless it has a name."""
        safe = plan.task.rpartition(":")[2]
        kind, prefix, readme = (SEEDS, "seeds", _README_OF_SEEDS) if plan.alone else (COMPARISON, "compare", _README)
        run = Run.create(Path(runs_dir), name, {kind: plan.to_json()}, command, f"{prefix}-{safe}")
        replace_atomically(run.path / "README.txt", readme.format(name=run.name).encode())
        run.checkpoints.rmdir()
        folder = ComparisonFolder(run)
        for path in (folder.runs, folder.done, folder.logs):
            path.mkdir()
        return folder

    @staticmethod
    def open(path_or_name: str | Path, root: Path) -> ComparisonFolder:
        """An existing one, by name or path."""
        run = Run.open(path_or_name, root)
        if not is_comparison(run):
            raise ValueError(told_for(run, "comparison"))
        return ComparisonFolder(run)

    def has_begun(self) -> bool:
        """Whether any training has."""
        return any(self.runs.iterdir()) or any(self.done.iterdir())

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def runs(self) -> Path:
        return self.path / "runs"

    @property
    def done(self) -> Path:
        return self.path / "done"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def plan(self) -> Plan:
        config = self.run.config
        kind, where = SEEDS if SEEDS in config else COMPARISON, f"{self.path / 'config.json'}"
        plan = Plan.from_json(config[kind], f"{kind} in {where}")
        if plan.alone is not (kind == SEEDS):
            raise damaged(where, f"expected {kind}.alone as {str(kind == SEEDS).lower()}, got the other")
        return plan

    def facts(self, job: Job, plan: Plan) -> RunFacts | None:
        """What came of a training, or None where it is not over."""
        path, arm = self.done / f"{job.name(plan)}.json", plan.arms[job.arm].name
        facts = read_facts(path)
        if facts is not None and facts.arm != arm:
            raise damaged(str(path), f"expected arm as {shown(arm)}, got {shown(facts.arm)}")
        return facts

    def keep(self, job: Job, plan: Plan, facts: RunFacts) -> None:
        """The last write of a training: with it, it counts and is never repeated."""
        replace_atomically(self.done / f"{job.name(plan)}.json", to_json(facts.to_json(), indent=None))

    def found(self, plan: Plan) -> dict[str, list[RunFacts]]:
        """All trainings that are over, by arm."""
        arms: dict[str, list[RunFacts]] = {}
        for number, arm in enumerate(plan.arms):
            every = (self.facts(Job(number, place), plan) for place in range(plan.seeds))
            arms[arm.name] = [facts for facts in every if facts is not None]
        return arms

    def write_summary(self, summary: dict[str, Any]) -> None:
        """For whoever reads the figures without the runs."""
        replace_atomically(self.path / SUMMARY, to_json(summary, indent=None))


def is_comparison(run: Run) -> bool:
    """Whether a run folder is that of a comparison."""
    return COMPARISON in run.config


def is_of_seeds(run: Run) -> bool:
    """Whether it is that of one training with several seeds."""
    return SEEDS in run.config


def jobs_of(plan: Plan) -> list[Job]:
    """All trainings, a seed of every arm before the next seed: a comparison that is stopped has its pairs."""
    return [Job(arm, place) for place in range(plan.seeds) for arm in range(len(plan.arms))]
