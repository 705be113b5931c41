"""Folders that look alike: a training run, a search, a comparison, a training with several seeds."""

from __future__ import annotations

from pathlib import Path

from shoal.runs.folder import Run

TRAINING = "training"
# By what their config.json holds: what they are, the command that goes on with them, and what they hold.
_KINDS = {
    "search": ("a search", "shoal search --resume", "each of its pulls trained a policy, below {}/pulls"),
    "comparison": ("a comparison", "shoal compare", "its trainings are runs, in {}/runs"),
    "seeds": ("a training with several seeds", "shoal train --resume", "each of them is a run, in {}/runs"),
    TRAINING: ("a training run", "shoal train --resume", ""),
}


def open_training(path_or_name: str | Path, root: Path) -> Run:
    """An existing run that is one training; of another folder it is said what it is, and which command takes it."""
    run = Run.open(path_or_name, root)
    if kind_of(run) != TRAINING:
        raise ValueError(told_for(run, TRAINING))
    return run


def kind_of(run: Run) -> str:
    """training, search, comparison or seeds; nothing for a folder that is none of them."""
    config = run.config
    return TRAINING if "task" in config else next((kind for kind in _KINDS if kind in config), "")


def told_for(run: Run, wanted: str) -> str:
    """What to say to somebody who took this folder for one of another kind."""
    expected, kind = _KINDS[wanted][0], kind_of(run)
    if not kind:
        return f"{run.shown}: expected the folder of {expected}, got neither a run nor a search nor a comparison"
    what, command, holds = _KINDS[kind]
    inside = f"\n{holds.format(run.shown)}" if holds else ""
    return f"{run.shown} is the folder of {what}, not of {expected}. To go on with it:\n  {command} {run.shown}{inside}"
