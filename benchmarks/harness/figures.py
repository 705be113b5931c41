"""Stored figures as the words of a page: what a template of benchmarks/pages may call (see pages.py).

Everything comes from the result's own file: value, unit, target, machine, date, commit, and how busy the machine was.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.harness.rows import Row

# The label says what is counted, or the figure is a ratio.
_UNITS_NOT_SHOWN = {
    "x",
    "ratio",
    "share",
    "return",
    "reward",
    "sum",
    "seeds",
    "cells",
    "pulls",
    "steps",
    "workers",
    "|z|",
}
_QUIET = 0.25  # of the cores: a load up to this is not worth a word


class PageError(Exception):
    """A page asks for a figure that is not stored; the text says which, and what to do."""


class Results:
    """The files of a folder of results, as one page asks for them; it remembers what it was asked for.

    `links` leads from the page to the root of the repository.
    """

    def __init__(self, root: Path, links: str = "") -> None:
        self.root, self._links = root, links
        self.named: set[str] = set()  # results with a section
        self.shown: set[tuple[str, str, float | None]] = set()  # (result, row, value)
        self._read: dict[str, dict[str, Any]] = {}

    @property
    def folder(self) -> Path:
        """benchmarks/results."""
        return self.root / "benchmarks" / "results"

    def stored(self, name: str) -> bool:
        """Whether there is such a result; its section may be written before it is."""
        self.named.add(name)
        return (self.folder / f"{name}.json").exists()

    def data(self, name: str) -> dict[str, Any]:
        """All that a file holds."""
        if name not in self._read:
            if not self.stored(name):
                raise PageError(
                    f"expected benchmarks/results/{name}.json, there is none: store it, take its section out, or put "
                    f'the section between {{% if stored("{name}") %}} and {{% endif %}} until it is stored'
                )
            self._read[name] = json.loads((self.folder / f"{name}.json").read_text())
        return self._read[name]

    def rows(self, name: str) -> list[Row]:
        """The rows of a file; all of them count as shown."""
        found = [_row(row) for row in self.data(name)["rows"]]
        self.shown |= {(name, row.name, row.value) for row in found}
        return found

    def row(self, name: str, which: str) -> Row:
        """The row of that name, or the only one whose name contains `which`."""
        rows = [_row(row) for row in self.data(name)["rows"]]
        found = [row for row in rows if row.name == which] or [row for row in rows if which in row.name]
        if len(found) != 1:
            names = "\n".join(f"    {row.name}" for row in found or rows)
            raise PageError(
                f"expected one row of benchmarks/results/{name}.json with {which!r} in its name, got {len(found)} of "
                f"these:\n{names}"
            )
        self.shown.add((name, found[0].name, found[0].value))
        return found[0]

    # -- what stands in a page ----------------------------------------------------------------------

    def link(self, name: str, text: str = "") -> str:
        """A link to a result's file."""
        self.data(name)
        return f"[{text or name + '.json'}]({self._links}benchmarks/results/{name}.json)"

    def about(self, name: str) -> str:
        """Where the figures of a file are from: its command, machine, day and commit, the load, and the file."""
        stamp = Stamp(self.data(name))
        told = [f"`{self.command(name)}`", stamp.machine, stamp.load, stamp.date, stamp.version, stamp.commit]
        return "; ".join(filter(None, [self.link(name), *told])) + "."

    def machine(self, name: str) -> str:
        """The machine alone."""
        return Stamp(self.data(name)).machine

    def command(self, name: str) -> str:
        """What measures it again: results of before 2026-11-19 hold the module's former place."""

        def present(found: re.Match[str]) -> str:
            places = sorted((self.root / "benchmarks").glob(f"*/{found[1]}.py"))
            return f"python -m benchmarks.{places[0].parent.name}.{found[1]}" if places else found[0]

        data = self.data(name)
        command = data.get("command") or next(iter(data["machines"].values()))["command"]
        return re.sub(r"python benchmarks/(\w+)\.py", present, command.partition(" --store")[0])

    def figure(self, name: str, which: str, digits: int | None = None, sign: bool = False) -> str:
        """The value of a row in words, with its interval."""
        return value_of(self.row(name, which), digits, sign)

    def line(
        self, name: str, which: str, label: str = "", *, digits: int | None = None, note: bool = False, **judged: Any
    ) -> str:
        """A line of a table: label, value, target. `note` adds what the row says beside its value; `target` and
        `better` judge a row that has no target of its own.
        """
        row = replace(self.row(name, which), **judged)
        return _line(row, label or row.name, digits, note)

    def every(self, name: str) -> str:
        """A table of all rows of a file."""
        lines = [_line(row, row.name, None, True) for row in self.rows(name)]
        return "\n".join(["| figure | value | target |", "|---|---|---|", *lines])


class Stamp:
    """Machine, date and commit of a result: those of its runs where it has runs with a stamp of their own."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data
        own = [
            part
            for value in data.values()
            for part in (value if isinstance(value, list) else value.values() if isinstance(value, dict) else ())
            if isinstance(part, dict) and "commit" in part and "machine" in part
        ]
        self._stamps = own or [data]

    @cached_property
    def machine(self) -> str:
        """In words; several where runs were made on several."""
        plain = (found.replace("(R)", "").removesuffix(" Processor") for found in self._each("machine"))
        return " and ".join(plain) or " and ".join(self._data.get("machines", {}))

    @cached_property
    def date(self) -> str:
        """The day, or the first and the last."""
        days = self._each("date") or sorted({one["date"] for one in self._data.get("machines", {}).values()})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    @cached_property
    def commit(self) -> str:
        """Of the code that measured."""
        commits = [commit[:7] for commit in self._each("commit")]
        if not commits:
            return "commit not recorded"
        dirty = [stamp["dirty"] for stamp in self._stamps]
        changed = (
            " with uncommitted changes" if all(dirty) else " in part with uncommitted changes" if any(dirty) else ""
        )
        return f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}{changed}"

    @cached_property
    def version(self) -> str:
        """Of shoal."""
        version = self._data.get("versions", {}).get("shoal")
        return f"shoal {version}" if version else ""

    @cached_property
    def load(self) -> str:
        """How many programs wanted a core in the minute before, where that was more than hardly any."""
        load, cores = self._data.get("load_before"), re.match(r"(\d+)-core", self._data.get("machine") or "")
        if load is None or load <= _QUIET * (int(cores[1]) if cores else 1):
            return ""
        return f"load {load:.1f} before it began"

    def _each(self, key: str) -> list[str]:
        return sorted({stamp[key] for stamp in self._stamps if stamp.get(key)})


def number(value: float, digits: int | None = None, sign: bool = False) -> str:
    """A measured number: with so many decimals, or as many as make three significant digits.

    >>> number(0.3516), number(96.41), number(84004.0), number(19331597.0), number(5.0), number(3.2, 1, sign=True)
    ('0.352', '96.4', '84,004', '19.3 million', '5', '+3.2')
    """
    plus = "+" if sign else ""
    if digits is None and abs(value) >= 1e6:
        return f"{value / 1e6:{plus}.3g} million"
    if digits is None and float(value).is_integer():
        return f"{value:{plus},.0f}"
    return f"{value:{plus},.{_decimals(value) if digits is None else digits}f}"


def _decimals(value: float) -> int:
    return max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0


def interval_of(row: Row) -> tuple[float, float, float] | None:
    """Middle, low and high of a row: from its detail, or from its note where there is no detail."""
    detail = row.detail
    if "low" in detail and "high" in detail:
        middle: Any = detail.get("mean", detail.get("median", row.value))
        return middle, detail["low"], detail["high"]
    if "interval" in detail and row.value is not None:
        return row.value, *detail["interval"]
    real = r"(-?[\d.]+\d)"
    if row.value is not None and (found := re.match(rf"\[{real}, {real}\]", row.note)):
        return row.value, float(found[1]), float(found[2])
    if row.value is not None and (found := re.match(rf"lower end .*?; mean {real}, upper {real}", row.note)):
        return float(found[1]), row.value, float(found[2])
    return None


def value_of(row: Row, digits: int | None = None, sign: bool = False) -> str:
    """`1.70 [1.63, 1.72]`, or why there is no value."""
    if row.value is None:
        return f"not measured ({row.note})" if row.note else "not measured"
    unit = _unit(row)
    if (found := interval_of(row)) is None:
        return number(row.value, digits, sign) + unit
    middle, low, high = found
    digits = _decimals(middle) if digits is None else digits
    return f"{number(middle, digits, sign)}{unit} [{number(low, digits)}, {number(high, digits)}]"


def target_of(row: Row) -> str:
    """`at least 85 %, not met`; nothing where a row has no target."""
    if row.target is None:
        return ""
    side = "at most" if row.better == "lower" else "at least"
    told = f"{row.target / 1e6:g} million" if abs(row.target) >= 1e6 else f"{row.target:,.10g}"
    return f"{side} {told}{_unit(row)}" + (", not met" if row.met is False else "")


def _unit(row: Row) -> str:
    return "" if row.unit in _UNITS_NOT_SHOWN else f" {row.unit}"


def _row(found: dict[str, Any]) -> Row:
    kept = {key: found[key] for key in ("measured", "date") if found.get("measured") == "stored"}
    return replace(Row.from_json(found), **kept)


def _line(row: Row, label: str, digits: int | None, note: bool) -> str:
    return cells(label + "".join(f" ({mark})" for mark in _marks(row, note)), value_of(row, digits), target_of(row))


def _marks(row: Row, note: bool) -> Iterator[str]:
    if row.note and (note or "other programs" in row.note):  # a busy machine is always told
        yield row.note
    if row.measured == "stored":
        yield f"stored {row.date}"


def cells(*texts: str) -> str:
    """A line of a Markdown table.

    >>> cells("speed", "2", "")
    '| speed | 2 | |'
    """
    return "|" + "|".join(f" {text} " if text else " " for text in (text.replace("|", "\\|") for text in texts)) + "|"
