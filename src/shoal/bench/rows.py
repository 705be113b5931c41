"""One measured figure, beside the bar it has to reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Row:
    """A line of a bench.

    >>> Row("start-up", 1.234567, "s", bar=3.0, better="lower").to_json()["holds"]
    True
    """

    name: str
    value: float | None  # None: could not be measured, `note` says why
    unit: str
    bar: float | None = None
    better: Literal["higher", "lower"] = "higher"  # on which side of the bar it holds
    note: str = ""
    detail: dict[str, Any] = field(default_factory=dict)  # what the value was made of, e.g. every round's
    measured: Literal["now", "stored"] = "now"
    commit: str | None = None  # of a stored row
    date: str | None = None
    seeds: Sequence[int] = ()

    @property
    def holds(self) -> bool | None:
        """Whether the value reaches the bar; None without a bar or a value."""
        if self.bar is None or self.value is None:
            return None
        return bool(self.value >= self.bar if self.better == "higher" else self.value <= self.bar)

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it; the value keeps four significant digits, `holds` is of the whole number."""
        row: dict[str, Any] = {
            "name": self.name,
            "value": rounded(self.value),
            "unit": self.unit,
            "bar": self.bar,
            "holds": self.holds,
            "measured": self.measured,
        }
        if self.bar is not None:
            row["better"] = self.better
        if self.measured == "stored":
            row |= {"commit": self.commit, "date": self.date, "seeds": list(self.seeds)}
        elif self.seeds:
            row["seeds"] = list(self.seeds)
        return row | {name: value for name in ("note", "detail") if (value := getattr(self, name))}


def rounded(value: float | None) -> float | None:
    """Four significant digits, and never fewer than all digits before the point.

    >>> rounded(123456.7), rounded(1.23456), rounded(0.0)
    (123457.0, 1.235, 0.0)
    """
    if value is None:
        return None
    return float(f"{value:.4g}") if abs(value) < 1000 else float(round(value))
