"""The page of `--help`: what a command does, an example, and its flags in groups, made from the dataclasses."""

from __future__ import annotations

import ast
import inspect
import itertools
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal

from shoal.config import FromPython

_COLUMN = 30  # where the explanations begin
_TITLES = {
    "RunConfig": "The run: how long, what is kept, what is shown",
    "VectorConfig": "The environments: how many, where they step, what happens when one breaks",
    "PPOConfig": "The learning: PPO",
}
_EVERYWHERE = (
    ("--json", "Print the result as one JSON object on standard output."),
    ("-h, --help", "This page."),
)
_NO_DEFAULT = ("task", "env_kwargs")  # they are the command itself, or repeat the task's own flags
_ONCE_FOR_EACH = {
    "imports": "--import MODULE",
    "wrappers": "--wrapper MODULE:CLASS",
    "callbacks": "--callback MODULE:CLASS",
}
_LATER = tuple(_TITLES)  # what belongs to the task comes before what all tasks share


def page(kind: Any, prog: str, default: Any = None, about: str = "", extra: Sequence[tuple[str, str]] = ()) -> str:
    """The text of `--help`; `about` takes the place of the dataclass's own docstring."""
    groups = [("", [*extra])]
    for title, flags in _groups(kind, default):
        if title:
            groups.append((title, flags))
        else:
            groups[0] = ("", [*flags, *groups[0][1]])
    groups.sort(key=lambda group: _place(group[0]))
    groups[0][1].extend(_EVERYWHERE)
    width = min(shutil.get_terminal_size().columns, 110)
    lines = [f"usage: {prog} [flags]", ""]
    for line in (about or inspect.getdoc(kind) or "").splitlines():
        lines += [line] if line.startswith(" ") or not line else textwrap.wrap(line, width)
    for title, flags in groups:
        lines += ["", title or "Flags", *_table(flags, width)]
    return "\n".join(lines)


def _place(title: str) -> int:
    names = [_TITLES[name] for name in _LATER]
    return 0 if not title else 2 + names.index(title) if title in names else 1


def _table(flags: Sequence[tuple[str, str]], width: int) -> list[str]:
    lines = []
    for flag, text in flags:
        head, room = f"  {flag}", max(width - _COLUMN, 30)
        wrapped = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
        if len(head) >= _COLUMN:
            lines.append(head)
            head = ""
        lines += [f"{head:<{_COLUMN}}{wrapped[0]}", *(" " * _COLUMN + line for line in wrapped[1:])]
    return lines


def _groups(kind: Any, default: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(title, flags) of a dataclass and of those within it."""
    hints, docs, flags = typing.get_type_hints(kind), _docs(kind), []
    for field in fields(kind):
        value = getattr(default, field.name, field.default)
        if value is MISSING and field.default_factory is not MISSING:
            value = field.default_factory()
        hint: Any = hints[field.name]
        if hint is FromPython:  # no flag
            continue
        if not is_dataclass(hint):
            shown = None if field.name in _NO_DEFAULT else value
            flags.append((_flag(field.name, hint, value), _explained(docs.get(field.name, ""), shown)))
            continue
        title = _title(hint)
        for inner, those in _groups(hint, None if value is MISSING else value):
            # A dataclass that only holds others (TrainConfig) gives its own flags to the page's first group.
            yield (inner or (title if not _holds_others(hint) else "")), those
    yield "", flags


def _title(kind: Any) -> str:
    return _TITLES.get(kind.__name__, (inspect.getdoc(kind) or kind.__name__).splitlines()[0])


def _holds_others(kind: Any) -> bool:
    return any(is_dataclass(hint) for hint in typing.get_type_hints(kind).values())


def _docs(kind: Any) -> dict[str, str]:
    """The strings that follow the fields of a dataclass, and of those that it is derived from."""
    found = {name: text for base in reversed(kind.__mro__[1:-1]) for name, text in _docs(base).items()}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):  # made on the fly: its parts have the words
        return found
    statements = getattr(body, "body", [])
    for one, after in itertools.pairwise(statements):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr):
            text = after.value.value if isinstance(after.value, ast.Constant) else ""
            found[one.target.id] = " ".join(str(text).split())
    return found


def _flag(name: str, hint: Any, value: Any) -> str:
    flag = name.replace("_", "-")
    if name in _ONCE_FOR_EACH:
        return _ONCE_FOR_EACH[name]
    if hint is bool:
        return f"--no-{flag}" if value is True else f"--{flag}"
    return f"--{flag} {_metavar(hint)}"


def _metavar(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return "|".join(_metavar(part) for part in parts if part is not type(None))
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is tuple:
        inner = _metavar(parts[0])
        return f"{inner},{inner},..." if parts[-1] is Ellipsis else ",".join(_metavar(part) for part in parts)
    return {int: "N", float: "X", str: "TEXT"}.get(hint, "VALUE")


def _explained(text: str, value: Any) -> str:
    if value is MISSING or value is None or value in ("", ()) or isinstance(value, bool) or "default:" in text:
        return f"Switch off: {text}" if value is True else text
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
    return f"{text} (default: {shown})"
