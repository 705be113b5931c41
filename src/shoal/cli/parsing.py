"""Flags in, dataclasses out. tyro prints help and wrong flags, with the nearest ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from shoal import spelling

ALIASES = {"--" + name.replace("_", "-"): "--" + own.replace("_", "-") for name, own in spelling.ALIASES.items()}
ALIASES |= {"--imports": "--import", "--wrappers": "--wrapper"}  # as --help spells them
BUDGETS = ("--steps", "--epochs", "--episodes")
T = TypeVar("T")


def parse(kind: type[T], args: list[str], prog: str, default: T | None = None) -> T:
    """Arguments as a dataclass; values out of range are refused by the dataclass itself."""
    import tyro

    options: dict[str, Any] = {} if default is None else {"default": default}
    style = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.SuppressFixed)
    parsed: T = tyro.cli(kind, args=args, prog=prog, config=style, **options)
    return parsed


def unalias(args: list[str]) -> list[str]:
    """The other familiar spelling of a flag: `--lr 1e-3` is `--learning-rate 1e-3`, `--num_envs` is `--num-envs`."""
    out = []
    for arg in args:
        flag, equals, value = arg.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        out.append(ALIASES.get(flag, flag) + equals + value)
    return out


def take(args: list[str], flag: str) -> tuple[str | None, list[str]]:
    """The value of a flag, and the arguments without it."""
    for i, arg in enumerate(args):
        if arg == flag:
            if i + 1 >= len(args):
                raise ValueError(f"expected a value after {flag}")
            return args[i + 1], args[:i] + args[i + 2 :]
        if arg.startswith(flag + "="):
            return arg.partition("=")[2], args[:i] + args[i + 1 :]
    return None, args


def take_all(args: list[str], flag: str) -> tuple[list[str], list[str]]:
    """The values of a flag that may be there several times, and the arguments without it."""
    values: list[str] = []
    value, args = take(args, flag)
    while value is not None:
        values.append(value)
        value, args = take(args, flag)
    return values, args


def find_here(modules: Sequence[str]) -> None:
    """Modules that the user names may lie in the folder they are in, as `python -m` has it; what is installed wins.
    Nothing else is ever looked for there."""
    if modules and os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())


def switch(args: list[str], flag: str) -> tuple[bool, list[str]]:
    """Whether a flag without a value is there, and the arguments without it."""
    return flag in args, [arg for arg in args if arg != flag]


def named(args: list[str], flag: str) -> list[str]:
    """A first argument without a flag gets one: `evaluate RUN` is `evaluate --run RUN`."""
    return [flag, *args] if args and not args[0].startswith("-") else args


def plain_warnings() -> Callable[..., None]:
    """`warnings.showwarning` of the command line: one plain line, once, in place of a line of source code."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            print(f"shoal: note: {message}", file=sys.stderr, flush=True)

    return show


def gives_budget(args: list[str]) -> bool:
    """Does the user say how long the run shall be?"""
    return any(arg.partition("=")[0] in BUDGETS for arg in args)
