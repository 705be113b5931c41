"""The search's target can be missed: what was shipped is no find of the search."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.ppo.tune_search import summarise


def found(*others: list[float]) -> dict[str, Any]:
    """A search whose shipped settings took 2 s, and other finalists."""
    shipped = {"number": 0, "own": True, "values": [2.0, 1.0, 2.0, 3.0, 2.5], "settings": {"learning_rate": 1e-3}}
    finals = [shipped] + [
        {"number": 1 + place, "own": False, "values": values, "settings": {"learning_rate": 2e-3}}
        for place, values in enumerate(others)
    ]
    return {"finals": finals, "wall_s": 700.0, "cpu_s": 600.0, "load_before": 0.1, "in_one_go": True, "flags": ""}


@pytest.mark.parametrize(
    ("others", "ratio", "met", "said"),
    [
        ([[4.0] * 5, [3.0] * 5], 1.5, False, "not as good as the shipped settings: --learning-rate 0.002"),
        ([[4.0] * 5, [1.0] * 5], 0.5, True, "at least as good as the shipped settings: --learning-rate 0.002"),
        ([], None, None, "no trial but the shipped settings came to the finals"),
    ],
)
def test_only_what_the_search_found_is_compared(
    others: list[list[float]], ratio: float | None, met: bool | None, said: str
) -> None:
    quality, wall = summarise(found(*others))
    assert (quality.value, quality.met) == (ratio, met)
    assert said in quality.note
    assert (wall.target, wall.met) == (600.0, False)
