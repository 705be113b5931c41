"""Held-out scores kept with a run: `evaluation.json` has the newest of each kind, `evaluations.jsonl` a line for every
evaluation there was."""

from __future__ import annotations

import time
from typing import Any

from shoal.runs import jsonl
from shoal.runs.disk import from_json, replace_atomically, to_json
from shoal.runs.folder import Run

EVALUATION, LINES = "evaluation.json", "evaluations.jsonl"
HELD_OUT, LEADERBOARD = "held_out", "leaderboard"  # kinds


def keep(run: Run, kind: str, result: dict[str, Any]) -> None:
    """Keep a result with its run. Needs no lock: a reader sees the old file or the new one."""
    stamped = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **result}
    replace_atomically(run.path / EVALUATION, to_json({**kept(run), "run": run.name, kind: stamped}))
    jsonl.append(run.path / LINES, {"kind": kind, **_line(stamped)})


def kept(run: Run) -> dict[str, Any]:
    """The newest result of each kind; of a file that is not readable, nothing."""
    try:
        return from_json((run.path / EVALUATION).read_bytes())
    except (OSError, ValueError):
        return {}


def _line(result: dict[str, Any]) -> dict[str, Any]:
    """Without the return of every single episode."""
    return {
        name: {key: part for key, part in value.items() if key != "returns"} if isinstance(value, dict) else value
        for name, value in result.items()
        if name not in ("cells", "published", "cited")
    }
