"""Train what is not trained yet, several at once. Killed at any moment, it goes on: no run is lost or repeated."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence

from shoal import launching
from shoal.comparison import worker
from shoal.comparison.facts import facts_of, source_digest
from shoal.comparison.folder import ComparisonFolder, Job, jobs_of
from shoal.comparison.plan import Plan
from shoal.config import TrainConfig, from_dict
from shoal.runs.folder import Run
from shoal.runs.pace import clock_text
from shoal.runs.words import figure
from shoal.tasks.saved import check_environment

Say = Callable[[str], None]
POLL_S = 0.05
ATTEMPTS = 2  # a training that the system killed is gone on with once
FAREWELL_S = 20.0


def go_on(folder: ComparisonFolder, plan: Plan, parallel: int, say: Say) -> None:
    """Do all trainings that are not done."""
    jobs = [job for job in jobs_of(plan) if folder.facts(job, plan) is None]
    total = len(plan.arms) * plan.seeds
    if jobs and source_digest() != plan.code:
        raise ValueError(
            f"{folder.run.shown} was begun with other code or other versions of its libraries: runs of different code "
            "are never pooled. Go back to the code that it was begun with, or begin a new comparison"
        )
    crew, times, began = _Crew(folder, plan), [], {}
    if len(jobs) < total:
        say(f"{total - len(jobs)} of {total} trainings are done already")
    try:
        while jobs or crew.at_work:
            while jobs and len(crew.at_work) < parallel:
                crew.begin(job := jobs.pop(0))
                began[job] = time.monotonic()
            for job in crew.finished():
                facts = folder.facts(job, plan)
                assert facts is not None
                times.append(time.monotonic() - began[job])
                left = len(jobs) + len(crew.at_work)
                came = f"held-out return {figure(facts.final)}" if facts.whole else f"{facts.status}: {facts.reason}"
                eta = f", about {clock_text(left * sum(times) / len(times) / parallel)} left" if left else ""
                say(f"training {total - left} of {total}: {facts.arm}, seed {job.place}: {came}{eta}")
            time.sleep(POLL_S)
    finally:
        crew.close()


def check_named(folder: ComparisonFolder, imports: Sequence[str], command: str) -> None:
    """Refuse to go on with trainings whose modules only the folder names: whoever wrote it would choose the code that
    runs. `imports` is what the user names; `command` is what was typed."""
    plan = folder.plan
    if all(folder.facts(job, plan) is not None for job in jobs_of(plan)):
        return  # nothing is trained, so nothing is imported
    for arm in plan.arms:
        config: TrainConfig = from_dict(arm.config)
        config = config.replace(imports=(*plan.imports, *config.imports))
        check_environment(config, None, imports, f"{command} {folder.run.shown}", "go on with it", training=True)


class _Crew:
    """Trainings under way, each in a process of its own."""

    def __init__(self, folder: ComparisonFolder, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.at_work: dict[Job, launching.Process] = {}
        self.attempts: dict[Job, int] = {}

    def begin(self, job: Job) -> None:
        """Start a training."""
        self.attempts[job] = self.attempts.get(job, 0) + 1
        self.at_work[job] = worker.launch(self.folder, self.plan, job)

    def finished(self) -> list[Job]:
        """Those that have ended since it was asked last."""
        ended = []
        for job, process in list(self.at_work.items()):
            if process.poll() is None:
                continue
            self._forget(job)
            if self.folder.facts(job, self.plan) is not None:
                ended.append(job)
            elif process.returncode == worker.UNFIT:
                raise ValueError(f"{self._arm(job)} cannot be trained: {self._last_words(job)}")
            elif self.attempts[job] < ATTEMPTS:
                self.begin(job)
            else:
                self._give_up(job, process.returncode or 0)
                ended.append(job)
        return ended

    def close(self) -> None:
        """End what is under way: asked first, so that each writes a checkpoint to go on from."""
        for process in self.at_work.values():
            process.terminate()
        end = time.monotonic() + FAREWELL_S
        for job, process in list(self.at_work.items()):
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._forget(job)

    def _give_up(self, job: Job, code: int) -> None:
        """A training that dies without a word is listed with the others, as crashed."""
        path = self.folder.runs / job.name(self.plan)
        why = f"the process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}, {ATTEMPTS} times"
        if not path.is_dir():
            raise RuntimeError(f"{self._arm(job)}: {why}, before its first epoch. {self._last_words(job)}")
        facts = facts_of(Run.open(path, path.parent), self._arm(job), job.place, self.plan.code, why)
        self.folder.keep(job, self.plan, facts)

    def _arm(self, job: Job) -> str:
        return self.plan.arms[job.arm].name

    def _last_words(self, job: Job) -> str:
        log = self.folder.logs / f"{job.name(self.plan)}.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return lines[-1][:1000] if lines else "it said nothing"

    def _forget(self, job: Job) -> None:
        process = self.at_work.pop(job)
        if process.stdin is not None:
            process.stdin.close()


def check_parallel(count: int | None) -> None:
    """Refuse a number of trainings at once that is none."""
    if count is not None and count < 1:
        raise ValueError(f"expected --parallel of at least 1, got {count}")


def default_parallel(plan: Plan) -> int:
    """As many trainings at once as cores allow; one where its environments take all cores, or seconds are matched."""
    if "wall" in plan.match:
        return 1
    config: TrainConfig = from_dict(plan.arms[0].config)
    cores = launching.cores()
    if config.vector.backend in ("process", "split"):
        return max(1, cores // (config.vector.workers or cores))
    threads = config.vector.env_threads
    return max(1, cores // (threads if isinstance(threads, int) else cores))
