"""What can be trained. A task is a Gymnasium (vector) environment that does not know it is being trained."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from shoal.extras import require


@dataclass(frozen=True)
class Task:
    """A name for `shoal train`: the environment behind it and, where it has any, its own flags."""

    name: str
    about: str
    make: str = (
        ""  # "module:function" from the environment's arguments to what make_vec takes; else the name is a Gymnasium id
    )
    options: str = ""  # "module:Dataclass" whose fields are flags and, as JSON, the environment's arguments
    settings: str = (
        ""  # "module:function" from those options to settings that follow from them, below flags given by hand
    )
    extra: str = ""  # of shoal, without which it cannot be made
    evaluations: tuple[tuple[str, str], ...] = (("", ""),)  # flags of `shoal evaluate RUN`, and what they are for


TASKS = {
    task.name: task
    for task in (
        Task(
            "rides",
            "negotiate time windows with riders of a dial-a-ride service",
            make="shoal.rides.options:environment",
            options="shoal.rides.options:RidesOptions",
            settings="shoal.rides.options:settings",
            extra="rides",
            evaluations=(
                ("--days 60 --reference-iterations 200 --reference-seeds 1", "a first look, some minutes"),
                ("--days 900", "a verdict: an hour and more"),
            ),
        ),
        Task(
            "cage2",
            "defend a network: CybORG's CAGE Challenge 2, compiled and exact",
            make="shoal.cage2.options:environment",
            options="shoal.cage2.options:Cage2Options",
            settings="shoal.cage2.options:settings",
            evaluations=(("--leaderboard", ""),),
        ),
        Task("CartPole-v1", "balance a pole; solved at a mean return of 475"),
        Task("Acrobot-v1", "swing a two-link arm up; good at -100"),
        Task("Pendulum-v1", "swing a pendulum up with limited torque; good at -300"),
        Task("MountainCarContinuous-v0", "rock a weak car out of a valley; good at 90"),
        Task("shoal/CartPole-v1", "CartPole's dynamics as a compiled environment, thousands at a time"),
        Task("shoal/GridWorld-v0", "a small compiled grid world with an action mask"),
    )
}


def environment(task: str, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """What `make_vec` takes for a task, and the arguments that are still to be given to it."""
    place = TASKS[task].make if task in TASKS else ""
    if place and TASKS[task].extra:
        require(TASKS[task].extra, task)
    return (_load(place)(**kwargs), {}) if place else (task, kwargs)


def evaluations(task: str) -> tuple[tuple[str, str], ...]:
    """How a run of this task may be evaluated, the quickest way first: flags, and what they are for."""
    return TASKS[task].evaluations if task in TASKS else Task.evaluations


def quickest(task: str) -> str:
    """The flags of the quickest evaluation."""
    return evaluations(task)[0][0]


def options_class(task: str) -> type[Any] | None:
    """The dataclass of a task's own flags, if it has any."""
    place = TASKS[task].options if task in TASKS else ""
    return _load(place) if place else None


def settings(task: str, options: Any) -> dict[str, Any]:
    """Settings of a run that follow from its task's options."""
    place = TASKS[task].settings if task in TASKS else ""
    found: dict[str, Any] = _load(place)(options) if place else {}
    return found


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def options_to_kwargs(options: Any) -> str:
    """A task's flags as the JSON of `--env-kwargs`."""
    return json.dumps(asdict(options))


def listing() -> list[dict[str, str]]:
    """The tasks that ship with settings of their own."""
    return [{"task": task.name, "about": task.about} for task in TASKS.values()]
