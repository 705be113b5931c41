"""Are the values of options what their fields say they are? Types from annotations, bounds, and how both are told."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from numbers import Integral, Real
from typing import Any, Literal


class FromPython(str):
    """Text that only Python sets: the command line makes no flag of a type it does not know."""


def check_types(config: Any) -> None:
    """A misspelt choice must not mean "something else": every field has the type that it declares."""
    for name, hint in typing.get_type_hints(type(config)).items():
        value = _plain(getattr(config, name), hint, whole=name in ("steps", "episodes"))
        object.__setattr__(config, name, value)
        if not is_of(value, hint):
            raise ValueError(f"expected {flag(name)} as {spelled(hint)}, got {shown(value)}")


def _plain(value: Any, hint: Any, whole: bool) -> Any:
    """NumPy's numbers as Python's, which JSON can hold, and a list where a tuple is meant. With `whole` also 1e6."""
    if isinstance(value, list) and typing.get_origin(hint) is tuple:
        return tuple(_plain(part, typing.get_args(hint)[0], whole) for part in value)
    if hint is FromPython and type(value) is str:
        return FromPython(value)
    if isinstance(value, bool | int) or not isinstance(value, Real):
        return value
    number = int(value) if isinstance(value, Integral) else float(value)
    return int(number) if whole and isinstance(number, float) and number.is_integer() else number


def is_of(value: Any, hint: Any) -> bool:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return isinstance(value, str) and value in typing.get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(is_of(part, typing.get_args(hint)[0]) for part in value)
    if origin in (typing.Union, types.UnionType):
        return any(is_of(value, part) for part in typing.get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def spelled(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " | ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return f"a list of {'whole numbers' if typing.get_args(hint)[0] is int else 'texts'}"
    if typing.get_args(hint):
        return " or ".join(spelled(part) for part in typing.get_args(hint))
    if dataclasses.is_dataclass(hint):
        return "an object"
    if hint is FromPython:
        return "text"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(hint, "nothing")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def shown(value: Any) -> str:
    text = "a whole number of very many digits" if is_of(value, int) and abs(value) >> 4096 else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    if not is_of(value, int) or value < least or (most is not None and value > most):
        bounds = f"of at least {least}" + (f" and at most {most}" if most is not None else "")
        raise ValueError(f"expected {flag(name)} as a whole number {bounds}, got {shown(value)}")


def check_wholes(config: Any, least: int, *names: str) -> None:
    """Options that are whole numbers where they are numbers: None and "auto" say what they mean."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value != "auto":
            check_whole(name, value, least)


def check_numbers(config: Any, *names: str, **bounds: float) -> None:
    """The same for other numbers; the bounds are those of `check_number`."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value != "auto":
            check_number(name, value, **bounds)


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> None:
    fine = is_of(value, float) and -sys.float_info.max <= value <= sys.float_info.max  # of an int too, NaN never
    fine = fine and (above is None or value > above) and (least is None or value >= least)
    if not fine or (most is not None and value > most):
        bounds = [f"above {above:g}"] if above is not None else []
        bounds += [f"at least {least:g}"] if least is not None else []
        bounds += [f"at most {most:g}"] if most is not None else []
        wish = "a finite number" + (" " + " and ".join(bounds) if bounds else "")
        raise ValueError(f"expected {flag(name)} as {wish}, got {shown(value)}")
