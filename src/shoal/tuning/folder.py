"""The folder of a search of settings: what is where."""

from __future__ import annotations

import os
from pathlib import Path

PLAN, STUDY, FINALS, FOUND = "search.json", "study.journal", "finals.json", "found.json"
REACHED = "reached"  # attribute of a trial in the study: whether it came to the target


def find_search(path_or_name: str, runs_dir: str | Path = "runs") -> Path | None:
    """The folder of a search by its name or path, or None where it is something else."""
    for place in (Path(runs_dir) / path_or_name, Path(path_or_name)):
        if os.path.isfile(place / PLAN) and os.path.isfile(place / STUDY):
            return place
    return None
