"""Frozen dataclasses as plain data for JSON, and back."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import fields
from typing import Any

from shoal.core.checks import FromPython, is_of, shown, spelled


def to_dict(config: Any, *, full: bool = False) -> dict[str, Any]:
    """A config as plain data for JSON; later options that are at their defaults only if it is to be `full`."""
    return {
        f.name: to_dict(value, full=full)
        if dataclasses.is_dataclass(value)
        else list(value)
        if isinstance(value, tuple)
        else value
        for f in fields(config)
        for value in [getattr(config, f.name)]
        if full or "later" not in f.metadata or value != f.default
    }


def from_dict(data: Any, kind: type[Any], where: str = "config") -> Any:
    """The inverse of `to_dict`; unknown names, wrong types and values out of range are refused by name."""
    if not isinstance(data, dict):
        raise ValueError(f"expected {where} as an object, got {type(data).__name__}")
    hints = typing.get_type_hints(kind)
    unknown = sorted(str(name) for name in set(data) - set(hints))
    if unknown:
        raise ValueError(f"unknown option {where}.{unknown[0]}; known: {', '.join(sorted(hints))}")
    values = {}
    for name, value in data.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            values[name] = from_dict(value, typing.cast(type[Any], hint), f"{where}.{name}")
        else:
            value = tuple(value) if isinstance(value, list) else value
            value = FromPython(value) if hint is FromPython and isinstance(value, str) else value
            if not is_of(value, hint):
                raise ValueError(f"expected {where}.{name} as {spelled(hint)}, got {shown(value)}")
            values[name] = value
    return kind(**values)
