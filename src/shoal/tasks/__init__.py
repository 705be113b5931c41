"""What can be trained: Gymnasium ids, and the tasks that installed packages bring (`shoal.tasks.Task`)."""

from __future__ import annotations

import json
from typing import Any

from shoal.tasks.registry import BrokenTask, environment, find, load_all, names
from shoal.tasks.task import Check, Command, Say, Shown, Spaces, Task, plain

__all__ = [
    "BrokenTask", "Check", "Command", "Say", "Shown", "Spaces", "Task", "environment", "find", "load_all", "names",
    "options_to_kwargs", "plain", "task_or_default",
]  # fmt: skip

_ANY = Task()


def task_or_default(name: str) -> Task:
    """The task of that name; of any other Gymnasium id, one in which every part is the default."""
    return find(name) or _ANY


def options_to_kwargs(options: Any) -> str:
    """A task's flags as the JSON of `--env-kwargs`."""
    return json.dumps(plain(options))
