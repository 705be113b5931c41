"""The study's tables: what is not known is said, not shown as a figure."""

from __future__ import annotations

import pytest

from benchmarks.study import tables


@pytest.mark.parametrize(
    ("reached", "shown"),
    [
        ([5, 0], ["1,850", "not reached"]),
        ([4, 5], ["1,850 or more (4 of 5 reached it)", "3,072"]),
        (None, ["1,850", "3,072"]),  # a claim that is no time, or a result of before
    ],
)
def test_a_training_that_never_came_to_the_threshold_has_no_time(reached: list[int] | None, shown: list[str]) -> None:
    assert tables._levels({"levels": [1850.0, 3072.0], "seeds": 5, "reached": reached}) == shown
