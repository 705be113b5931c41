"""`shoal TASK VERB ...`: the verbs that tasks bring."""

from __future__ import annotations

import json

from shoal.cli.parsing import named, parse, say
from shoal.tasks import Shown, Task

_COLUMN = 36  # where the explanations begin


def run_command(task: Task, args: list[str], as_json: bool) -> int:
    """One verb of a task, or the list of them."""
    if not args or args[0] in ("-h", "--help"):
        print(_usage(task))
        return 0 if args else 2
    verb, rest = args[0], args[1:]
    command = task.commands.get(verb)
    if command is None:
        raise ValueError(f"expected shoal {task.name} {' | '.join(task.commands)}, got {verb!r}\n\n{_usage(task)}")
    rest = named(rest, "--" + command.first.replace("_", "-")) if command.first else rest
    prog = f"shoal {task.name} {verb} {command.usage}".rstrip()
    return show(command.run(parse(command.Options, rest, prog), say), as_json)


def show(shown: Shown, as_json: bool) -> int:
    """Print what a command found."""
    print(json.dumps(shown.data, allow_nan=False) if as_json else "\n".join(shown.lines))
    return shown.code


def verbs_of(task: Task) -> str:
    return "|".join(task.commands)


def _usage(task: Task) -> str:
    lines = []
    for verb, command in task.commands.items():
        head = f"shoal {task.name} {verb} {command.usage}".rstrip()
        lines.append(f"{head:<{_COLUMN - 1}} {command.about}")
    return "\n".join(lines)
