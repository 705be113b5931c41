"""The short form of `python -m benchmarks.faults.long_run`: killed with its whole process group, the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.faults import long_run
from benchmarks.faults.long_run import CARTPOLE, RIDES, Survived, survive


def test_a_training_that_is_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    came = survive(CARTPOLE, 20, 0.5, tmp_path, most_kills=2)
    assert came.same
    assert came.epochs == 20


def test_minutes_are_those_of_the_undisturbed_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """30 minutes at 2 s an epoch are 900 epochs and, killed every minute, up to 30 kills: for rides alone if asked."""
    asked: list[tuple[object, ...]] = []

    def remembered(case: object, epochs: int, every_s: float, folder: Path, *, most_kills: int) -> Survived:
        asked.append((case, epochs, every_s, most_kills))
        return Survived(most_kills, 2000.0, epochs, True, 1800.0)

    monkeypatch.setattr(long_run, "survive", remembered)
    monkeypatch.setattr(long_run, "_pilot", lambda case, folder: 2.0)
    assert long_run.main(["--cases", "rides"]) == 0
    assert asked == [(RIDES, 900, 60.0, 30)]
    with pytest.raises(SystemExit):
        long_run.main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "2 hours and 20 minutes in all" in said
    assert long_run.main(["--minutes", "10", "--every", "30"]) == 0
    assert asked[1:] == [(RIDES, 300, 30.0, 20), (CARTPOLE, 300, 30.0, 20)]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("case", "epochs"), [(RIDES, 60), (CARTPOLE, 1500)], ids=["rides", "cartpole"])
def test_killed_again_and_again(tmp_path: Path, case: object, epochs: int) -> None:
    came = survive(case, epochs, 4.0, tmp_path, least_kills=3, most_kills=6)  # type: ignore[arg-type]
    assert came.same
