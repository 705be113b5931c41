"""One pull, in this process or in one of its own: `python -m shoal.search.worker FOLDER REQUEST`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path

from shoal import launching
from shoal.runs.folder import Run
from shoal.runs.usage import Clock
from shoal.search.domain import Domain, Say, make_domain
from shoal.search.folder import LOG, Record, Request, SearchFolder, claim


def pull(folder: SearchFolder, domain: Domain, request: Request, say: Say) -> Record:
    """Do what a request asks and store what came of it; nothing is done that has been done already."""
    place = folder.ask(request)
    lock = claim(place)
    try:
        clock = Clock()
        start = None if request.start is None else folder.path / request.start
        result = domain.pull(request.item, start=start, seed=request.seed, folder=place, say=say)
        if result.weights:  # relative, so that the folder may be moved
            result = replace(result, weights=os.path.relpath(result.weights, folder.path))
        record = Record(request, result, clock.wall_s(), clock.cpu_s())
        folder.store(record)
        return record
    finally:
        lock.release()


def launch(folder: SearchFolder, request: Request) -> launching.Process:
    """Start a process that does one pull."""
    command = [sys.executable, "-m", "shoal.search.worker", str(folder.path), json.dumps(asdict(request))]
    return launching.launch(command, folder.ask(request) / LOG)


def main(arguments: list[str]) -> None:
    """Entry of the process."""
    path, request = Path(arguments[0]), Request(**json.loads(arguments[1]))
    launching.end_with_launcher()
    folder = SearchFolder(Run(path))
    pull(folder, make_domain(folder.config, folder.options), request, say=lambda text: None)


if __name__ == "__main__":
    main(sys.argv[1:])
