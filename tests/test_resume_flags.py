"""A flag of the task's own beside --resume is answered by what the run keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli import main

OLD = Path(__file__).parent / "data" / "runs-0.1.0"


@pytest.mark.parametrize(
    ("run", "flags", "said"),
    [
        ("cage2", ["--red", "bline"], "expected none of cage2's own flags beside --resume, got --red: "),
        ("cage2", ["--red=bline"], "shoal train cage2"),
        ("rides", ["--start", "none"], "expected none of rides's own flags beside --resume, got --start: "),
        ("cartpole", ["--red", "bline"], "Unrecognized options: --red"),
    ],
)
def test_a_run_keeps_what_its_task_was_asked_for(
    run: str, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--resume", str(OLD / run), *flags])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
