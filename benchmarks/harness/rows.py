"""One measured figure, beside the target it has to reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Row:
    """A line of a table of figures.

    >>> Row("start-up", 1.234567, "s", target=3.0, better="lower").to_json()["met"]
    True
    """

    name: str
    value: float | None  # None: could not be measured, `note` says why
    unit: str
    target: float | None = None
    better: Literal["higher", "lower"] = "higher"  # on which side of the target it is met
    note: str = ""
    detail: dict[str, Any] = field(default_factory=dict)  # what the value was made of, e.g. every round's
    measured: Literal["now", "stored"] = "now"
    commit: str | None = None  # of a stored row
    date: str | None = None
    seeds: Sequence[int] = ()

    @property
    def met(self) -> bool | None:
        """Whether the value reaches the target; None without a target or a value."""
        if self.target is None or self.value is None:
            return None
        return bool(self.value >= self.target if self.better == "higher" else self.value <= self.target)

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it; the value keeps four significant digits, `met` is of the whole number."""
        row: dict[str, Any] = {
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "target": self.target,
            "met": self.met,
            "measured": self.measured,
        }
        if self.target is not None:
            row["better"] = self.better
        if self.measured == "stored":
            row |= {"commit": self.commit, "date": self.date, "seeds": list(self.seeds)}
        elif self.seeds:
            row["seeds"] = list(self.seeds)
        return row | {name: value for name in ("note", "detail") if (value := getattr(self, name))}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Row:
        """A row as `to_json` wrote it, or as it was written before 2026-11-18, when a target was called a bar.

        >>> Row.from_json({"name": "r", "value": 2.0, "unit": "x", "bar": 3.0, "holds": False}).met
        False
        """
        words: dict[str, Any] = {key: row[key] for key in ("better", "note", "detail", "seeds") if key in row}
        return cls(row["name"], row["value"], row["unit"], row.get("target", row.get("bar")), **words)

    def __str__(self) -> str:
        """As the table shows it."""
        value = "-" if self.value is None else f"{self.value:,.4g}"
        target = "" if self.target is None else f"target {self.target:g}"
        if self.met is not None:
            target += ": met" if self.met else ": not met"
        said = [self.note] if self.note else []
        if self.measured == "stored":
            said.append(f"stored {self.date}")
        return f"{self.name:<64}{value:>12} {self.unit:<12}{target}" + (f"  ({'; '.join(said)})" if said else "")


def rounded(value: float | None) -> float | None:
    """Four significant digits, and never fewer than all digits before the point.

    >>> rounded(123456.7), rounded(1.23456), rounded(0.0)
    (123457.0, 1.235, 0.0)
    """
    if value is None:
        return None
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))
