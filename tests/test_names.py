"""The library names no application."""

from __future__ import annotations

import re
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "shoal"
LIBRARY = (
    "core", "compiled", "vector", "learn", "runs", "search", "environments", "tasks", "cli", "testing", "training.py",
    "evaluation.py", "held_out_curve.py", "origin.py",
           "evaluation_command.py", "held_out.py", "journal.py", "stopping.py", "report.py", "config.py",
    "callbacks.py", "comparison", "tuning", "doctor.py", "playing.py", "recording.py", "saved_run.py", "signals.py",
    "starting.py", "__init__.py",
    "__main__.py",
)  # fmt: skip
ALLOWED = {"tasks/aliases.py"}  # names in run folders of earlier versions


def test_the_library_names_no_application() -> None:
    """rides and cage2 are found as tasks of anybody's are: by entry points."""
    files = [path for part in LIBRARY for path in (SRC / part, *(SRC / part).rglob("*.py")) if path.is_file()]
    assert len(files) > 100
    named = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for path in files
        if str(path.relative_to(SRC)) not in ALLOWED
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"\b(shoal[./ ])?(rides|cage2)\b", line)
    ]
    assert not named


def test_every_package_is_looked_at() -> None:
    """What is neither of the library nor an application is a room that nobody has been told of."""
    there = {path.name for path in SRC.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - set(LIBRARY) == {"rides", "cage2", "extras.py"}  # extras are those of pyproject.toml
