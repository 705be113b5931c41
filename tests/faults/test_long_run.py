"""The short form of `python -m benchmarks.faults.long_run`: killed with its whole process group, the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults.long_run import CARTPOLE, RIDES, survive


def test_a_training_that_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    came = survive(CARTPOLE, 20, 0.5, tmp_path, most_kills=2)
    assert came.same
    assert came.epochs == 20


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("case", "epochs"), [(RIDES, 60), (CARTPOLE, 1500)], ids=["rides", "cartpole"])
def test_killed_again_and_again(tmp_path: Path, case: object, epochs: int) -> None:
    came = survive(case, epochs, 4.0, tmp_path, least_kills=3, most_kills=6)  # type: ignore[arg-type]
    assert came.same
