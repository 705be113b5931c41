"""Held-out scores kept with a run: `evaluation.json` has the newest of each kind, `evaluations.jsonl` a line for every
evaluation there was."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from shoal.runs import jsonl
from shoal.runs.disk import from_json, replace_atomically, to_json
from shoal.runs.folder import Run

EVALUATION, LINES = "evaluation.json", "evaluations.jsonl"
HELD_OUT = "held_out"  # a kind; a task may have others


def keep(run: Run, kind: str, result: dict[str, Any], but: Sequence[str] = ()) -> None:
    """Keep a result with its run, in `evaluations.jsonl` without the parts `but`.

    Needs no lock: a reader sees the old file or the new one."""
    stamped = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **result}
    replace_atomically(run.path / EVALUATION, to_json({**kept(run), "run": run.name, kind: stamped}))
    jsonl.append(run.path / LINES, {"kind": kind, **_line(stamped, but)})


def kept(run: Run) -> dict[str, Any]:
    """The newest result of each kind; of a file that is not readable, nothing."""
    try:
        return from_json((run.path / EVALUATION).read_bytes())
    except (OSError, ValueError):
        return {}


def part(values: Any, name: str) -> dict[str, Any]:
    """A part of a file that anybody may have written: an object, or as if it was not there."""
    found = values.get(name) if isinstance(values, dict) else None
    return found if isinstance(found, dict) else {}


def _line(result: dict[str, Any], but: Sequence[str]) -> dict[str, Any]:
    """Without the return of every single episode."""
    return {
        name: {key: part for key, part in value.items() if key != "returns"} if isinstance(value, dict) else value
        for name, value in result.items()
        if name not in but
    }
