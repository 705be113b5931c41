"""Flags in, dataclasses out. Numbers may be written as people write them; tyro does the rest."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import types
import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from decimal import Decimal
from typing import Any, Literal, TypeVar

from shoal.cli.help import page
from shoal.core import spelling

ALIASES = {"--" + name.replace("_", "-"): "--" + own.replace("_", "-") for name, own in spelling.ALIASES.items()}
ALIASES |= {"--imports": "--import", "--wrappers": "--wrapper", "--callbacks": "--callback"}  # the options' own names
ALIASES |= {
    "--parallel-start-method": "--start-method",
    # Stable-Baselines3's names
    "--total-timesteps": "--steps",
    "--n-steps": "--rollout-steps",
    "--n-epochs": "--update-epochs",
    "--batch-size": "--minibatch-size",
    "--ent-coef": "--entropy-coef",
    "--vf-coef": "--value-coef",
    "--clip-range": "--clip",
    "--clip-range-vf": "--value-clip",
    # CleanRL's, where they differ from both
    "--num-steps": "--rollout-steps",
    "--clip-coef": "--clip",
    "--wandb-project-name": "--wandb-project",
}
BUDGETS = ("--steps", "--epochs", "--episodes")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
T = TypeVar("T")


def parse(
    kind: type[T],
    args: list[str],
    prog: str,
    default: T | None = None,
    *,
    about: str = "",
    extra: Sequence[tuple[str, str]] = (),
) -> T:
    """Arguments as a dataclass; wrong ones are a ValueError of one sentence. `about` and `extra` flags are for --help.

    >>> import dataclasses
    >>> Args = dataclasses.make_dataclass("Args", [("steps", int), ("hidden", tuple[int, ...], (64,))])
    >>> parse(Args, ["--steps", "1e6", "--hidden", "128,64"], "shoal train")
    Args(steps=1000000, hidden=(128, 64))
    """
    if "--help" in args or "-h" in args:
        print(page(kind, prog, default, about, extra))
        raise SystemExit(0)
    import tyro

    options: dict[str, Any] = {} if default is None else {"default": default}
    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.SuppressFixed)
    said, args = io.StringIO(), spelled_out(kind, args)
    try:
        with contextlib.redirect_stderr(said), _wide():
            parsed: T = tyro.cli(kind, args=args, prog=prog, config=config, **options)
    except SystemExit:
        raise ValueError(_sentence(said.getvalue(), prog, flags_of(kind))) from None
    return parsed


def unalias(args: list[str]) -> list[str]:
    """The other familiar spelling of a flag: `--lr 1e-3` is `--learning-rate 1e-3`, `--num_envs` is `--num-envs`."""
    out = []
    for arg in args:
        flag, equals, value = arg.partition("=")
        flag = flag.replace("_", "-").replace("normalize", "normalise") if flag.startswith("--") else flag
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


def say(text: str) -> None:
    """Progress and warnings, beside the results."""
    print(f"shoal: {text}" if text.startswith("WARNING") else text, file=sys.stderr, flush=True)


def own_command() -> str:
    """What was typed, for whoever reads a run folder."""
    return shlex.join(["shoal", *sys.argv[1:]])


def parse_both(
    first: Any, second: Any, args: list[str], prog: str, *, about: str = "", extra: Sequence[tuple[str, str]] = ()
) -> tuple[Any, Any]:
    """Flags of two dataclasses on one command line; the objects given are their defaults."""
    kinds = [("first", type(first)), ("second", type(second))]
    Both = make_dataclass("Both", kinds, frozen=True, namespace={"__doc__": type(first).__doc__})
    both: Any = parse(Both, args, prog, Both(first, second), about=about, extra=extra)
    return both.first, both.second


def gives_budget(args: list[str]) -> bool:
    """Does the user say how long the run shall be?"""
    return any(arg.partition("=")[0] in BUDGETS for arg in args)


def spelled_out(kind: Any, args: list[str]) -> list[str]:
    """Numbers as tyro reads them: 1e6 and 2M as whole numbers, 64,64 as two values; what is no number is named."""
    hints, out, at = flags_of(kind), [], 0
    while at < len(args):
        flag, equals, value = args[at].partition("=")
        at += 1
        hint = hints.get(flag)
        number, many = _number_kind(hint)
        if number is None:
            out.append(flag + equals + value)
            continue
        values = [value] if equals else []
        while not equals and at < len(args) and (many or not values) and not _is_flag(args[at]):
            values.append(args[at])
            at += 1
        if many:
            values = [part for value in values for part in value.split(",") if part]
        out += [flag, *(_spelled(flag, value, number, _words(hint), many) for value in values)]
    return out


def whole(text: str) -> int | None:
    """A whole number as people write it, or None if it is none.

    >>> [whole(text) for text in ("500_000", "1e6", "100k", "2.5M", "200,704", "-5")]
    [500000, 1000000, 100000, 2500000, 200704, -5]
    >>> whole("1.5"), whole("many"), whole("1e99"), whole("1,5")
    (None, None, None, None)
    """
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text):  # as the console prints it
        return int(text.replace(",", ""))
    found = re.fullmatch(r"([+-]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)([kKmMgGbB]?)", text)
    if found is None:
        return None
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text) if len(text) < 100 else None
    value = Decimal(found[1].replace("_", "")) * _UNITS[found[2].lower()]
    return int(value) if value.adjusted() < 30 and value == value.to_integral_value() else None


def _spelled(flag: str, text: str, number: type, words: tuple[str, ...], many: bool) -> str:
    if text in words:
        return text
    if number is int:
        value = whole(text)
        if value is not None:
            return str(value)
        if many:
            raise ValueError(f"expected {flag} as whole numbers separated by commas, like 64,64, got {text!r}")
        others = "".join(f" or {word}" for word in words if word != "None")
        raise ValueError(f"expected {flag} as a whole number{others} (500000, 1e6, 100k and 2M will do), got {text!r}")
    try:
        float(text)
    except ValueError:
        hint = f": write {text.replace(',', '.')}, with a point" if re.fullmatch(r"-?\d+,\d+", text) else ""
        raise ValueError(f"expected {flag} as a number, got {text!r}{hint}") from None
    return text


def _is_flag(arg: str) -> bool:
    return arg.startswith("-") and not re.match(r"-\.?\d", arg)


def flags_of(kind: Any) -> dict[str, Any]:
    """The type of each flag, those of nested dataclasses included."""
    found: dict[str, Any] = {}
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        if is_dataclass(hint):
            found |= flags_of(hint)
        else:
            found["--" + field.name.replace("_", "-")] = hint
    return found


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _number_kind(hint: Any) -> tuple[type | None, bool]:
    """int or float if it takes numbers, and whether it takes several."""
    for part in _parts(hint):
        many = typing.get_origin(part) is tuple
        inner = typing.get_args(part)[0] if many else part
        if inner in (int, float):
            return inner, many
    return None, False


def _words(hint: Any) -> tuple[str, ...]:
    """What a flag takes beside numbers."""
    words: list[str] = []
    for part in _parts(hint):
        words += ["None"] if part is type(None) else typing.get_args(part) if typing.get_origin(part) is Literal else []
    return tuple(words)


@contextlib.contextmanager
def _wide() -> typing.Iterator[None]:
    """tyro wraps its sentences at the width of the terminal; here they are to come in one piece."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "10000"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def _sentence(boxed: str, prog: str, known: Collection[str]) -> str:
    """What tyro says in a box, as a sentence: what is wrong, and the flags that may have been meant."""
    lines = [re.sub(r"\s{2,}", " ", line.strip("│ ")) for line in boxed.strip().splitlines()[1:]]  # less the title
    lines = [line for line in lines if line.strip("╭╮╰╯─- ")]
    lines = [line for line in lines if not line.startswith("For full helptext")]
    said = lines[0] if lines else "these flags were not understood"
    said = re.sub(r"^Error parsing [^:]*: (?=expected |--)", "", said)
    if choice := re.match(r"invalid choice (.*) for argument '([^']*)'. Expected one of (.*)", said):
        choices = sorted(set(re.findall(r"'([^']*)'", choice[3])) - {"None"})
        said = f"expected {choice[2]} as one of {', '.join(choices)}, got {choice[1]}"
    begin = dict.fromkeys(line.split()[0] for line in lines[1:])  # a line may also go on with an explanation
    near = [word for word in begin if word in known or word.replace("--no-", "--", 1) in known]
    if said.startswith("Missing from") and near:
        said = f"expected {_missing(near, prog)}"
    elif said.startswith("Unrecognized options") and "--" not in said:
        said = f"expected flags, like --name VALUE, got {said.partition(': ')[2]}"
    elif said.startswith("Unrecognized options") and near:
        said += f". Did you mean {' or '.join(near[:3])}?"
    return f"{said}\nSee {prog} --help"


def _missing(flags: Sequence[str], prog: str) -> str:
    """What has to be given, as the command's usage has it: its names in capitals stand for the one flag."""
    places = " ".join(word for word in prog.split() if word.isupper())
    return f"{places}, got none: {prog}" if len(flags) == 1 and places and "--" not in prog else " and ".join(flags)
