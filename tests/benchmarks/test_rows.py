"""A row says what it is, and whether its target is met."""

from __future__ import annotations

import json

import pytest

from benchmarks import __main__ as bench
from benchmarks.harness.rows import Row, rounded


def test_a_row_has_the_five_keys_of_the_schema() -> None:
    """name, value, unit, target, met; the last two null without a target."""
    row = Row("speed", 12.345678, "steps/s").to_json()
    assert {"name", "value", "unit", "target", "met"} <= set(row)
    assert (row["target"], row["met"], row["value"], row["measured"]) == (None, None, 12.35, "now")


@pytest.mark.parametrize(
    ("value", "better", "met"),
    [(2.0, "higher", True), (1.99999, "higher", False), (2.0, "lower", True), (2.00001, "lower", False)],
)
def test_a_target_is_met_by_the_whole_number_not_by_the_rounded_one(value: float, better: str, met: bool) -> None:
    """1.99999 is shown as 2 and does not reach 2."""
    row = Row("r", value, "x", 2.0, better).to_json()  # type: ignore[arg-type]
    assert row["met"] is met
    assert row["value"] == 2.0


def test_what_could_not_be_measured_is_null_with_a_note() -> None:
    """Neither met nor missed."""
    row = Row("r", None, "x", 2.0, note="why").to_json()
    assert (row["value"], row["met"], row["note"]) == (None, None, "why")


def test_a_stored_row_carries_where_it_is_from() -> None:
    """commit, date and seeds."""
    row = Row("r", 1.0, "x", measured="stored", commit="abc", date="2026-01-01", seeds=[1, 2]).to_json()
    assert (row["measured"], row["commit"], row["date"], row["seeds"]) == ("stored", "abc", "2026-01-01", [1, 2])
    json.dumps(row, allow_nan=False)


def test_rows_stored_under_the_old_words_are_read() -> None:
    """bar and holds became target and met; a row that was written comes back as it was."""
    old = {"name": "r", "value": 2.0, "unit": "s", "bar": 3.0, "holds": True, "better": "lower", "seeds": [1]}
    assert Row.from_json(old) == Row("r", 2.0, "s", 3.0, "lower", seeds=[1])
    new = Row("r", 2.0, "s", 3.0, "lower", "why", {"low": 1.0})
    assert Row.from_json(new.to_json()) == new


def test_the_table_says_met_or_not_met() -> None:
    """And nothing of either without a value."""
    assert "target 2: not met  (why; stored 2026-01-01)" in str(
        Row("r", 1.0, "x", 2.0, note="why", measured="stored", date="2026-01-01")
    )
    assert "target 2: met" in str(Row("r", 2.0, "x", 2.0))
    assert "met" not in str(Row("r", None, "x", 2.0))


def test_rounding_keeps_whole_numbers_whole() -> None:
    """Large numbers lose no digit before the point."""
    assert (rounded(123456.7), rounded(-99.876), rounded(None)) == (123457.0, -99.88, None)


def test_an_unknown_group_is_refused_by_name() -> None:
    """The message lists the groups."""
    with pytest.raises(ValueError, match=r"vector, ppo.*'speed'"):
        bench.run("speed")
