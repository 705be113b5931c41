"""What can be trained. A task is a Gymnasium (vector) environment that does not know it is being trained."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Task:
    """A name for `shoal train`: the environment behind it and, where it has any, its own flags."""

    name: str
    about: str
    env_id: str = ""  # Gymnasium id, where it is not the name itself
    options: str = ""  # "module:Dataclass" whose fields are flags and, as JSON, the environment's arguments


TASKS = {
    task.name: task
    for task in (
        Task("CartPole-v1", "balance a pole; solved at a mean return of 475"),
        Task("Acrobot-v1", "swing a two-link arm up; good at -100"),
        Task("Pendulum-v1", "swing a pendulum up with limited torque; good at -300"),
        Task("MountainCarContinuous-v0", "rock a weak car out of a valley; good at 90"),
        Task("shoal/CartPole-v1", "CartPole's dynamics as a compiled environment, thousands at a time"),
        Task("shoal/GridWorld-v0", "a small compiled grid world with an action mask"),
    )
}


def env_id(task: str) -> str:
    """The Gymnasium id that a task stands for; any other name is taken for an id itself."""
    return (TASKS[task].env_id or task) if task in TASKS else task


def options_class(task: str) -> type[Any] | None:
    """The dataclass of a task's own flags, if it has any."""
    place = TASKS[task].options if task in TASKS else ""
    if not place:
        return None
    module, _, name = place.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def options_to_kwargs(options: Any) -> str:
    """A task's flags as the JSON of `--env-kwargs`."""
    return json.dumps(asdict(options))


def listing() -> list[dict[str, str]]:
    """The tasks that ship with settings of their own."""
    return [{"task": task.name, "about": task.about} for task in TASKS.values()]
