"""What can be trained: Gymnasium ids, and the tasks that installed packages bring (`shoal.tasks.Task`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from shoal.tasks.registry import BrokenTask, environment, find, load_all, names
from shoal.tasks.task import Check, Command, Say, Shown, Spaces, Task, plain

__all__ = [
    "BrokenTask", "Check", "Command", "Say", "Shown", "Spaces", "Task", "environment", "evaluations", "find",
    "load_all", "names", "options_class", "options_to_kwargs", "plain", "quickest", "settings", "task_or_default",
]  # fmt: skip

_ANY = Task()


def task_or_default(name: str) -> Task:
    """The task of that name; of any other Gymnasium id, one in which every part is the default."""
    return find(name) or _ANY


def evaluations(name: str) -> Sequence[tuple[str, str]]:
    """How a run of this task may be evaluated, the quickest way first: flags, and what they are for."""
    return task_or_default(name).evaluations


def quickest(name: str) -> str:
    """The flags of the quickest evaluation."""
    return evaluations(name)[0][0]


def options_class(name: str) -> type[Any] | None:
    """The dataclass of a task's own flags, if it has any."""
    return task_or_default(name).Options


def settings(name: str, options: Any) -> dict[str, Any]:
    """Settings of a run that follow from its task's options."""
    return task_or_default(name).settings(options)


def options_to_kwargs(options: Any) -> str:
    """A task's flags as the JSON of `--env-kwargs`."""
    return json.dumps(plain(options))
