"""The folder of a search: settings, and a folder per pull. A crash leaves whole pulls and at most unfinished ones."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from shoal.core.records import damaged, expect, record
from shoal.runs.disk import read_json, replace_atomically, sync_folder, to_json
from shoal.runs.folder import Run
from shoal.runs.kinds import kind_of, told_for
from shoal.runs.lock import ORPHAN_S, Lock
from shoal.search.domain import Domain, Fresh, Pull, Ranking, domain_class
from shoal.search.options import SearchConfig

REQUEST, PULL, RANKING, LOG = "request.json", "pull.json", "ranking.json", "worker.log"
FRESH = "fresh.json"
UNIVERSAL = "universal"
SHARES = ("compliance", "believed_compliance", "coverage", "wasted")  # of a pull's details: mean, low, high

_README = """\
This folder is one search of shoal: a bandit whose every pull is a training run.

config.json     the settings ("search": common ones, "options": the domain's own)
pulls/NNN-*/    one folder per pull: request.json (what was asked), pull.json (what came of it), the trained weights,
                fresh.json (the best one's score on fresh episodes); where each is a run: shoal evaluate FOLDER
base/           what the first pulls start from
universal/      with --universal: one policy for all orders, and all orders ranked by it
report.html     the posterior, the pulls, the regret, the best order
events.jsonl    pulls, resumes, failures
status.json     running, finished, interrupted or failed
lock            held by the process that writes here

Go on with it:  shoal search {domain} --resume {name}
"""


@dataclass(frozen=True)
class Request:
    """What a pull was asked to do; the same search asks the same again after a crash."""

    number: int  # from 0
    item: int
    name: str
    seed: int
    start: str | None  # folder of weights below the search's folder; None: a fresh network


@dataclass(frozen=True)
class _Stored:
    """pull.json."""

    request: Request
    pull: Pull
    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Record:
    """A finished pull."""

    request: Request
    pull: Pull
    wall_s: float
    cpu_s: float
    fresh: Fresh | None = None  # of the pull that was found the best


class SearchFolder:
    """Paths and records of one search."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @staticmethod
    def create(config: SearchConfig, options: dict[str, Any], command: str) -> SearchFolder:
        """A new one, named after the domain and the time unless it has a name."""
        stored = {"search": asdict(config), "options": options}
        safe = config.domain.rpartition(":")[2].lower()
        run = Run.create(Path(config.runs_dir), config.name, stored, command, f"search-{safe}")
        readme = _README.format(domain=config.domain, name=run.name).encode()
        replace_atomically(run.path / "README.txt", readme)
        run.checkpoints.rmdir()  # of training runs; here each pull has its own
        return SearchFolder(run)

    @staticmethod
    def open(path_or_name: str | Path, root: Path, named: str | None = None) -> SearchFolder:
        """An existing one, by name or path. `named` is the domain if the user names it: a folder may come from
        anybody, so a module that only its config.json names is not imported."""
        run = Run.open(path_or_name, root)
        if kind_of(run) != "search":
            raise ValueError(told_for(run, "search"))
        folder = SearchFolder(run)
        module, colon, _ = (domain := folder.config.domain).partition(":")
        if colon and module not in sys.modules and domain != named:
            raise ValueError(
                f"{run.shown}: config.json names a module to import: {module}. To import a module is to run its code, "
                "and a search may come from anybody, so shoal imports only what you name yourself. If you trust it, "
                f"type\n  shoal search {domain} --resume {run.shown}\nto go on with it, or\n  shoal report {run.shown} "
                f"--import {module}\nfor its page, or import {module} first, from Python"
            )
        return folder

    @property
    def path(self) -> Path:
        return self.run.path

    @property
    def config(self) -> SearchConfig:
        return record(SearchConfig, self.run.config.get("search"), f"search in {self.run.path / 'config.json'}")

    @property
    def options(self) -> dict[str, Any]:
        """The domain's own."""
        options = self.run.config.get("options")
        where = f"options in {self.run.path / 'config.json'}"
        return asdict(record(domain_class(self.config.domain).Options, options, where))

    def set_workflows(self, workflows: int) -> None:
        """A resumed search may go on for longer."""
        config = self.run.config
        self.run.set_config({**config, "search": {**config["search"], "workflows": workflows}})

    def of(self, request: Request) -> Path:
        """A pull's folder."""
        slug = re.sub(r"[^a-z0-9]+", "-", request.name.lower()).strip("-")[:60]
        return self.path / "pulls" / f"{request.number:03d}-{slug}"

    def record(self, request: Request) -> Record | None:
        """The finished pull of this request, or None; one that was asked otherwise is refused."""
        folder = self.of(request)
        if not (folder / PULL).exists():
            return None
        found = self._read(folder / PULL)
        if found.request != request:
            raise ValueError(
                f"{folder} was asked for {found.request}, this search asks for {request}: the folder is of another "
                "version of shoal or was changed by hand. Start a new search"
            )
        return found

    def records(self) -> list[Record]:
        """All finished pulls, by number, as they stand on the disk."""
        found = map(self._read, self.path.glob(f"pulls/[0-9]*/{PULL}"))
        return sorted(found, key=lambda record: record.request.number)

    def check_fit(self, domain: Domain, records: Sequence[Record], ranking: Ranking | None) -> None:
        """ValueError where pulls or values are of orders that the domain does not have."""
        count = len(domain.points)
        for one in records:
            if not 0 <= one.request.item < count:
                what = f"expected request.item as one of {count} orders, 0 to {count - 1}, got {one.request.item}"
                raise damaged(str(self.of(one.request) / PULL), what)
        for name in ("means", "errors", "details") if ranking is not None else ():
            values = getattr(ranking, name)
            if len(values) != count and (values or name != "details"):
                where = str(self.path / UNIVERSAL / RANKING)
                raise damaged(where, f"expected {name} of {count} orders, got {len(values)}")

    def _read(self, file: Path) -> Record:
        found = record(_Stored, read_json(file), str(file))
        request, pull = found.request, found.pull
        if request.number < 0 or pull.se < 0:
            what = f"expected request.number and pull.se of at least 0, got {request.number} and {pull.se}"
            raise damaged(str(file), what)
        for name in SHARES:
            _check_share(pull.details.get(name), f"pull.details.{name}", str(file))
        return Record(request, pull, found.wall_s, found.cpu_s, self.fresh(request))

    def fresh(self, request: Request) -> Fresh | None:
        """The score of this pull on fresh episodes, if it was made."""
        file = self.of(request) / FRESH
        if not file.exists():
            return None
        found = record(Fresh, read_json(file), str(file))
        _check_share(found.compliance, "compliance", str(file))
        return found

    def store_fresh(self, request: Request, fresh: Fresh) -> None:
        """Keep it beside the pull."""
        replace_atomically(self.of(request) / FRESH, to_json(asdict(fresh)))

    def ranking(self) -> Ranking | None:
        """The values of all items that the search is measured against, once they have been made."""
        file = self.path / UNIVERSAL / RANKING
        if not file.exists():
            return None
        found = record(Ranking, read_json(file), str(file))
        for place, details in enumerate(found.details):
            _check_share(details.get("compliance"), f"details[{place}].compliance", str(file))
        return found

    def ask(self, request: Request) -> Path:
        """Make the pull's folder and write the request down."""
        folder = self.of(request)
        folder.mkdir(parents=True, exist_ok=True)
        replace_atomically(folder / REQUEST, to_json(asdict(request)))
        sync_folder(folder.parent)
        return folder

    def store(self, record: Record) -> None:
        """The last write of a pull: with it, the pull counts."""
        data = asdict(record)
        del data["fresh"]
        replace_atomically(self.of(record.request) / PULL, to_json(data))


def _check_share(share: Any, name: str, where: str) -> None:
    """A share has a mean, and both ends of an interval or neither."""
    expect(share, dict[str, Any] | None, name, where)
    ends = share or {}
    for end in ("mean", "low", "high"):
        expect(ends.get(end), float | None, f"{name}.{end}", where)
    if (ends.get("low") is None) is not (ends.get("high") is None):
        raise damaged(where, f"expected {name} with both low and high, or neither")


def claim(folder: Path) -> Lock:
    """Become the only process that pulls here, and clear what an unfinished attempt left."""
    lock = Lock(folder / "lock")
    lock.acquire(ORPHAN_S)
    for entry in folder.iterdir():
        if entry.name not in (REQUEST, LOG, "lock"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return lock
