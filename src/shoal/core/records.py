"""JSON that anybody may have written as a dataclass: every value has its type, or an error says which one has not.

Where files are read is the one place that checks: whoever has a record may trust its values.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from shoal.core.checks import shown, spelled

Kind = TypeVar("Kind")
MISSING: Any = dataclasses.MISSING
MOST, MOST_WHOLE = 1e60, 2**63 - 1  # larger ones overflow in what is computed from them


def record(kind: type[Kind], data: Any, where: str) -> Kind:
    """A dataclass from JSON, and those inside it. `where` is the file, for the error.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Score:
    ...     mean: float
    ...     episodes: int = 100
    >>> record(Score, {"mean": 2}, "score.json")
    Score(mean=2, episodes=100)
    >>> record(Score, {"mean": "2"}, "score.json")
    Traceback (most recent call last):
    ValueError: score.json is damaged: expected mean as a number, got '2'. Restore it from a backup, or start anew
    """
    try:
        return typing.cast(Kind, _made(kind, data, ""))
    except ValueError as error:
        raise damaged(where, str(error)) from None


def expect(value: Any, hint: Any, name: str, where: str) -> None:
    """One value of a file that is no record as a whole; `name` is its place in the file, MISSING what is not there."""
    try:
        _value(value, hint, name)
    except ValueError as error:
        raise damaged(where, str(error)) from None


def damaged(where: str, what: str) -> ValueError:
    """The error of a file that says what cannot be."""
    return ValueError(f"{where} is damaged: {what}. Restore it from a backup, or start anew")


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _made(kind: Any, data: Any, at: str) -> Any:
    values = _object(data, at)
    fields = {field.name: field for field in dataclasses.fields(kind)}
    inside = f"{at}." if at else ""
    for name in sorted(set(values) - set(fields)):
        raise ValueError(f"expected {at or 'it'} with {', '.join(fields)}, got also {shown(name)}")
    for name, field in fields.items():
        if name not in values and field.default is field.default_factory is MISSING:
            _value(MISSING, _hints(kind)[name], inside + name)
    return kind(**{name: _value(value, _hints(kind)[name], inside + name) for name, value in values.items()})


def _object(data: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise _wrong(data, "an object", at or "it")
    return data


def _wrong(value: Any, meant: str, at: str) -> ValueError:
    got = "it is missing" if value is MISSING else f"got {shown(value)}"
    return ValueError(f"expected {at} as {meant}, {got}")


def _value(value: Any, hint: Any, at: str) -> Any:
    """The value, with lists as tuples and objects as dataclasses where those are meant."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inner:
            return None
        meant = [part for part in inner if part is not type(None)]
        if len(meant) == 1 and (dataclasses.is_dataclass(meant[0]) or typing.get_args(meant[0])):
            return _value(value, meant[0], at)
        for part in meant:
            if _is(value, part):
                return value
    elif dataclasses.is_dataclass(hint):
        return _made(hint, value, at)
    elif origin in (list, tuple):
        if isinstance(value, list):
            return origin(_value(part, inner[0], f"{at}[{place}]") for place, part in enumerate(value))
    elif origin is dict:
        return {name: _value(part, inner[1], f"{at}.{name}") for name, part in _object(value, at).items()}
    elif _is(value, hint):
        return value
    raise _wrong(value, _spelled(hint), at)


def _is(value: Any, hint: Any) -> bool:
    if typing.get_origin(hint) is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST  # NaN is not
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and -MOST_WHOLE <= value <= MOST_WHOLE
    return isinstance(value, hint) if hint in (str, bool, dict, list) else value is not MISSING


def _spelled(hint: Any) -> str:
    if typing.get_origin(hint) in (list, tuple):
        return "a list"
    if typing.get_origin(hint) is dict or dataclasses.is_dataclass(hint):
        return "an object"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_spelled(part) for part in typing.get_args(hint))
    return spelled(hint)
