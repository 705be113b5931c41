"""The folder of a training under an order, as a run that `shoal evaluate`, `cage2 play` and `report` read."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.cage2.options import Cage2Options
from shoal.config import TrainConfig, to_dict
from shoal.core.spaces import space_to_data
from shoal.runs import provenance
from shoal.runs.disk import replace_atomically, to_json
from shoal.runs.folder import Run
from shoal.runs.lock import Lock
from shoal.tasks import options_to_kwargs

_README = """\
This folder is one training of shoal under an order of unit types (docs/workflows.md). It is a run like others:

  shoal evaluate {path} --leaderboard
  shoal cage2 play {path}
  shoal report {path}

result.json     the score and the verdict on held-out episodes
metrics.jsonl   one JSON object per update
checkpoints/    the weights that were kept; train_order(..., start=this folder) trains on from them
"""


@contextlib.contextmanager
def order_run(folder: Path, config: TrainConfig, **options: Any) -> Iterator[Run]:
    """A run in `folder`, begun anew; finished when the block ends, failed if it raises. `options` are cage2's."""
    folder.mkdir(parents=True, exist_ok=True)
    run, lock = Run(folder), Lock(folder / "lock")
    if not lock.is_held():  # a search has claimed its pull's folder already
        lock.acquire()
    try:
        shutil.rmtree(run.checkpoints, ignore_errors=True)  # a pull that was killed begins again
        run.figures.mkdir(exist_ok=True)
        config = config.replace(env_kwargs=options_to_kwargs(Cage2Options(**options)))
        files = {
            "config.json": to_json(to_dict(config)),
            "command.txt": f"python: shoal.cage2.workflows, {shlex.join(sys.argv)}".encode("utf-8", "backslashreplace"),
            "machine.json": to_json(provenance.machine()),
            "code.json": to_json(provenance.code()),
            "metrics.jsonl": b"",
            "events.jsonl": b"",
            "README.txt": _README.format(path=folder).encode(),
        }
        for name, data in files.items():
            replace_atomically(folder / name, data)
        _status(folder, "running", "")
        try:
            yield run
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            _status(folder, "interrupted" if stopped else "failed", f"{type(error).__name__}: {error}"[:2000])
            raise
    finally:
        lock.release()


def finish(run: Run, reason: str) -> None:
    """All is written."""
    _status(run.path, "finished", reason)


def policy_meta(env: Any, epoch: int, steps: int, **more: Any) -> dict[str, Any]:
    """What a checkpoint of weights alone says of itself."""
    return {
        "epoch": epoch,
        "steps": steps,
        "spaces": [space_to_data(env.observation_space), space_to_data(env.action_space)],
        "features": env.features,
        "network": None,
        "not_resumable": (
            "expected a run of shoal train, got a training under an order, which ends by itself and keeps its best "
            "weights only: train on from them with shoal.cage2.workflows.train.train_order(..., "
            "start=its folder of checkpoints)"
        ),
        **more,
    }


def _status(folder: Path, status: str, message: str) -> None:
    replace_atomically(folder / "status.json", to_json({"status": status, "message": message}))
