"""One training of a comparison, in a process of its own: `python -m shoal.comparison.worker FOLDER ARM PLACE`."""

from __future__ import annotations

import sys
from pathlib import Path

from shoal import launching
from shoal.comparison.facts import facts_of, source_digest
from shoal.comparison.folder import ComparisonFolder, Job
from shoal.comparison.plan import Plan
from shoal.runs.checkpoint import CheckpointError
from shoal.runs.folder import Run
from shoal.runs.lock import ORPHAN_S

UNFIT = 3  # exit code: refused before its first epoch, as every run of the arm would be


def launch(folder: ComparisonFolder, plan: Plan, job: Job) -> launching.Process:
    """Start a process that trains and evaluates."""
    command = [sys.executable, "-m", "shoal.comparison.worker", str(folder.path), str(job.arm), str(job.place)]
    return launching.launch(command, folder.logs / f"{job.name(plan)}.log", append=True)


def train_and_evaluate(folder: ComparisonFolder, plan: Plan, job: Job) -> int:
    """Do one training, or go on with it; returns the exit code."""
    from shoal.evaluation import evaluate
    from shoal.training import train

    name, seed = job.name(plan), plan.run_seed(job.place)
    config = plan.arms[job.arm].settings(seed, str(folder.runs), name, plan.alone)
    failure = None
    try:
        if not is_over(folder.runs / name):
            resume = resumable(folder.runs / name)
            if resume is None:
                result = train(config=config, imports=plan.imports, command=command_of(folder))
            else:
                result = train(resume=resume, imports=plan.imports, command=command_of(folder))
            if result.status != "finished":
                return 1
        evaluate(folder.runs / name, episodes=plan.held_out, imports=plan.imports, say=tell)
    except Exception as error:  # an environment may raise anything
        failure = f"{type(error).__name__}: {error}"[:2000]
        tell(failure)
        if not (folder.runs / name).is_dir():
            return UNFIT
    run = Run.open(folder.runs / name, Path())
    folder.keep(job, plan, facts_of(run, plan.arms[job.arm].name, job.place, plan.code, failure))
    return 0


def is_over(path: Path) -> bool:
    """Whether a training came to its end, though its evaluation may not have."""
    return path.is_dir() and Run(path).status == "finished"


def resumable(path: Path) -> Path | None:
    """The run to go on with; one that has no checkpoint that is whole is begun anew."""
    from shoal.runs.checkpoint import load_latest

    if not path.is_dir():
        return None
    run = Run(path)
    run.lock(ORPHAN_S)
    try:
        load_latest(run.checkpoints)
        return path
    except (CheckpointError, OSError, ValueError):
        run.remove()
        return None
    finally:
        run.close()


def command_of(folder: ComparisonFolder) -> str:
    """What a run's folder says of how it was started."""
    return f"shoal {'train --resume' if folder.plan.alone else 'compare'} {folder.run.name}"


def tell(text: str) -> None:
    """Into the training's log."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(arguments: list[str]) -> None:
    """Entry of the process."""
    launching.end_with_launcher()
    folder = ComparisonFolder(Run(Path(arguments[0])))
    if source_digest() != folder.plan.code:
        tell("the code or the versions of its libraries have changed since it began; runs of different code do not mix")
        sys.exit(UNFIT)
    sys.exit(train_and_evaluate(folder, folder.plan, Job(int(arguments[1]), int(arguments[2]))))


if __name__ == "__main__":
    main(sys.argv[1:])
