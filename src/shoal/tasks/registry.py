"""The tasks by name: Gymnasium ids with settings that work, and what installed packages bring by entry points.

Names are looked up without loading anything else: a broken package costs a line, not the command line.
"""

from __future__ import annotations

import functools
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from shoal.extras import require
from shoal.tasks.task import Task

GROUP = "shoal.tasks"


class GymnasiumTask(Task):
    """A Gymnasium id that has a line of its own in `shoal tasks`."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, about


IDS = {
    name: GymnasiumTask(name, about)
    for name, about in (
        ("CartPole-v1", "balance a pole; solved at a mean return of 475"),
        ("Acrobot-v1", "swing a two-link arm up; good at -100"),
        ("Pendulum-v1", "swing a pendulum up with limited torque; good at -300"),
        ("MountainCarContinuous-v0", "rock a weak car out of a valley; good at 90"),
        ("shoal/CartPole-v1", "CartPole's dynamics as a compiled environment, thousands at a time"),
        ("shoal/GridWorld-v0", "a small compiled grid world with an action mask"),
    )
}


class BrokenTask(ValueError):
    """A task that is installed and cannot be loaded."""


def installed() -> dict[str, tuple[EntryPoint, ...]]:
    """Entry points by name; nothing is loaded."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


def names() -> list[str]:
    """Names of all tasks."""
    return [*sorted(set(installed()) - set(IDS)), *IDS]


def find(name: str) -> Task | None:
    """The task of that name; None for any other Gymnasium id."""
    if name in IDS:
        return IDS[name]
    points = installed().get(name, ())
    if len(points) > 1:
        packages = " and ".join(sorted(_package(point) for point in points))
        raise BrokenTask(f"the task {name!r} is brought by {packages}: uninstall all but one")
    return _load(points[0]) if points else None


@functools.cache
def _load(point: EntryPoint) -> Task:
    where = f"the task {point.name!r} of the package {_package(point)} ({point.value})"
    try:
        kind = point.load()
        task = kind() if isinstance(kind, type) else kind
    except Exception as error:
        cure = "repair or uninstall the package"
        raise BrokenTask(f"{where} cannot be loaded: {type(error).__name__}: {error}; {cure}") from error
    if not isinstance(task, Task):
        raise BrokenTask(f"{where}: expected a subclass of shoal.tasks.Task, got {type(task).__name__}")
    if task.name != point.name:
        raise BrokenTask(f"{where}: expected its name as that of the entry point, got {task.name!r}")
    return task


def _package(point: EntryPoint) -> str:
    return "(unknown)" if point.dist is None else str(point.dist.name)


def load_all() -> tuple[list[Task], list[str]]:
    """Every task, and what is wrong with those that cannot be loaded."""
    tasks, broken = [], []
    for name in names():
        try:
            task = find(name)
        except BrokenTask as error:
            broken.append(str(error))
        else:
            assert task is not None
            tasks.append(task)
    return tasks, broken


def environment(name: str, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What `make_vec` takes for a task, and the arguments that are still to be given to it."""
    task = find(name)
    if task is None or isinstance(task, GymnasiumTask):
        return name, kwargs
    if task.extra:
        require(task.extra, name)
    return task.environment(task.options(kwargs)), {}
