"""The search itself: ask, pull, tell; killed at any moment, it goes on with the same pulls."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal import launching
from shoal.core.seeds import derived_seed
from shoal.core.statistics import HALF
from shoal.runs.disk import replace_atomically, to_json
from shoal.runs.usage import Clock
from shoal.search import worker
from shoal.search.bandit import strategies
from shoal.search.bandit.orders import kendall
from shoal.search.domain import Domain, Ranking, Say, complete_options, default_config, make_domain
from shoal.search.folder import LOG, RANKING, UNIVERSAL, Record, Request, SearchFolder
from shoal.search.options import SearchConfig, check_resumed
from shoal.search.summary import Summary, best_of, posterior_of, summarise

_ATTEMPTS = 3  # of a pull that is lost with its node


@dataclass(frozen=True)
class SearchResult:
    """How a search ended."""

    folder: str
    report: str
    summary: Summary
    policy: str | None  # folder of the best policy, where the domain's pulls are runs
    wall_s: float  # of this process; a resumed search counts from its resuming
    cpu_s: float  # of this process and its workers

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def search(
    config: SearchConfig | None = None,
    options: dict[str, Any] | None = None,
    *,
    resume: str | Path | None = None,
    say: Say = lambda text: None,
    command: str | None = None,
) -> SearchResult:
    """Search, or with `resume` go on with a search; returns when all pulls are done and the report is written."""
    clock = Clock()
    folder = _open(config, options or {}, resume, command)
    with folder.run.at_work(has_begun=lambda: True):
        say(f"search {folder.path}")
        records, ranking, domain = _go_on(folder, say)
        records = _score_best(folder, domain, records, say)
        summary = summarise(domain, folder.config, records, ranking)
        from shoal.search.sections import write_page

        page = write_page(folder, domain, records, ranking, summary)
        folder.run.set_status("finished", f"{len(records)} pulls")
    policy = _policy(folder, summary)
    return SearchResult(str(folder.path), str(page), summary, policy, clock.wall_s(), clock.cpu_s())


def _policy(folder: SearchFolder, summary: Summary) -> str | None:
    if summary.best is None or not summary.best["weights"]:
        return None
    run = (folder.path / summary.best["weights"]).parent
    return str(run) if (run / "config.json").is_file() else None


def _open(
    config: SearchConfig | None, options: dict[str, Any], resume: str | Path | None, command: str | None
) -> SearchFolder:
    if resume is None:
        config = config or default_config(SearchConfig.domain)
        options = complete_options(config.domain, options)
        make_domain(config, options)  # refuses wrong options before there is a folder
        return SearchFolder.create(config, options, command or "python: shoal.search, " + shlex.join(sys.argv))
    runs_dir, named = ("runs", None) if config is None else (config.runs_dir, config.domain)
    folder = SearchFolder.open(resume, Path(runs_dir), named)
    folder.run.lock()
    if config is not None:
        check_resumed(folder.config, config)
        if options and complete_options(config.domain, options) != folder.options:
            raise ValueError(f"the search to resume has {folder.options}, {options} were asked for: start a new one")
        folder.set_workflows(config.workflows)
    folder.run.note({"event": "resumed"})
    return folder


def _go_on(folder: SearchFolder, say: Say) -> tuple[list[Record], Ranking | None, Domain]:
    config = folder.config
    domain = make_domain(config, folder.options)
    base = domain.prepare(folder.path / "base", say) if config.start != "scratch" else None
    ranking = _ranking(folder, domain, say) if config.universal else None
    strategy = strategies.make(config.strategy, domain.points, budget=config.workflows, seed=config.seed)
    told: list[Record] = []
    with _crew(folder, domain, say) as crew:
        for number in range(config.workflows):
            # Pull k is asked for with exactly the pulls up to k - parallel told: not fewer, and not more when some
            # happen to be done, so neither speed nor a crash changes what follows.
            while len(told) <= number - config.parallel:
                _tell(strategy, told, crew.finished(len(told)), config.workflows, say)
            item = strategy.ask()
            start = _start(config, domain, told, item, None if base is None else os.path.relpath(base, folder.path))
            crew.begin(Request(number, item, domain.names[item], derived_seed(config.seed, number), start))
        while len(told) < config.workflows:
            _tell(strategy, told, crew.finished(len(told)), config.workflows, say)
    return told, ranking, domain


def _score_best(folder: SearchFolder, domain: Domain, told: list[Record], say: Say) -> list[Record]:
    """The best score is the highest of several, on the episodes that chose it: its policy is scored anew."""
    best = best_of(told, posterior_of(domain, told))
    if best is None or best.fresh is not None or not domain.scores_again:
        return told
    say("scoring the best order's policy on fresh episodes")
    fresh = domain.score_again(best.request.item, folder.path / best.pull.weights, best.request.seed)
    folder.store_fresh(best.request, fresh)
    return [replace(record, fresh=fresh) if record is best else record for record in told]


def _tell(strategy: strategies.Strategy, told: list[Record], record: Record, total: int, say: Say) -> None:
    pull = record.pull
    strategy.tell(record.request.item, pull.mean, pull.se, pull.passed)
    told.append(record)
    gate = "passed" if pull.passed else "failed the gate"
    say(f"pull {len(told)}/{total}: {record.request.name}: {pull.mean:.2f} +- {HALF * pull.se:.2f}, {gate}")


def _start(config: SearchConfig, domain: Domain, told: list[Record], item: int, base: str | None) -> str | None:
    """The weights of the nearest order told that passed, of these the best; else the domain's own start."""
    if config.start == "scratch":
        return None
    trained = [record for record in told if record.pull.passed and record.pull.weights]
    if config.start == "base" or not trained:
        return base
    others = np.array([record.request.item for record in trained])
    distances = kendall(domain.points[[item]], domain.points[others])[0]
    best = min(range(len(trained)), key=lambda i: (distances[i], -trained[i].pull.mean, i))
    return trained[best].pull.weights


def _ranking(folder: SearchFolder, domain: Domain, say: Say) -> Ranking | None:
    ranking = folder.ranking()
    if ranking is not None:
        folder.check_fit(domain, (), ranking)
        return ranking
    place = folder.path / UNIVERSAL
    place.mkdir(exist_ok=True)
    ranking = domain.ranking(place, say)
    if ranking is not None:
        replace_atomically(place / RANKING, to_json(asdict(ranking)))
    return ranking


class _Crew:
    """Does pulls: one after the other in this process, or each in a process of its own."""

    def __init__(self, folder: SearchFolder, domain: Domain, say: Say, apart: bool) -> None:
        self.folder, self.domain, self.say, self.apart = folder, domain, say, apart
        self.requests: list[Request] = []
        self.processes: dict[int, launching.Process] = {}
        self.lost: dict[int, int] = {}

    def begin(self, request: Request) -> None:
        """Start a pull, unless it has been done."""
        self.requests.append(request)
        if self.apart and self.folder.record(request) is None:
            self.processes[request.number] = worker.launch(self.folder, request)

    def finished(self, number: int) -> Record:
        """Wait for a pull."""
        request = self.requests[number]
        while (process := self.processes.get(number)) is not None:
            process.wait()
            self._forget(number)
            if not self._was_lost(process, request):
                break
            self.processes[number] = worker.launch(self.folder, request)
        if process is not None and process.returncode != 0 and self.folder.record(request) is None:
            log = (self.folder.of(request) / LOG).read_text(errors="replace")[-4000:]
            raise RuntimeError(
                f"pull {number + 1} ({request.name}) ended with exit code {process.returncode}; resume the search to "
                f"try again. Its last words:\n{log}"
            )
        record = self.folder.record(request)
        return record if record is not None else worker.pull(self.folder, self.domain, request, self.say)

    def _was_lost(self, process: launching.Process, request: Request) -> bool:
        """Did it end with a node of the cluster, before there was a result? Then it is to be done again."""
        if process.returncode != launching.LOST or not launching.elsewhere() or self.folder.record(request) is not None:
            return False
        self.lost[request.number] = self.lost.get(request.number, 0) + 1
        if self.lost[request.number] <= _ATTEMPTS:
            self.say(f"pull {request.number + 1} ({request.name}) was lost with its node, it is done again")
        return self.lost[request.number] <= _ATTEMPTS

    def close(self) -> None:
        """End pulls that are under way."""
        for number, process in list(self.processes.items()):
            process.kill()
            process.wait()
            self._forget(number)

    def _forget(self, number: int) -> None:
        process = self.processes.pop(number)
        if process.stdin is not None:
            process.stdin.close()


@contextmanager
def _crew(folder: SearchFolder, domain: Domain, say: Say) -> Iterator[_Crew]:
    crew = _Crew(folder, domain, say, apart=folder.config.parallel > 1 or launching.elsewhere())
    try:
        yield crew
    finally:
        crew.close()
