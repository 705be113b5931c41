"""`shoal cage2 record`, against a stand-in whose state is laid out as CybORG's and follows what CybORG once did."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cage2 import cyborg_record
from shoal.cage2.cyborg import CyborgMissing
from shoal.cage2.simulator.network import FINAL_RULES, RULES
from shoal.cage2.traces import STEP, load
from shoal.cli import main

from .standin import install

AGENTS = {"bline": "B_lineAgent", "meander": "RedMeanderAgent", "sleep": "SleepAgent"}


def as_recorded(recorded: np.ndarray) -> Callable[[Any, np.ndarray], np.ndarray]:
    """A Blue that acts as it did in a recording, episode by episode."""
    actions = iter(recorded["blue_action"].ravel())
    return lambda observation, begun: np.array([next(actions)])


@pytest.mark.parametrize(
    ("red", "file", "commit", "rules"),
    [
        ("bline", "traces_B_line_random", "26ce1c1", RULES),
        ("meander", "traces_Meander_heuristic", "26ce1c1", RULES),
        ("sleep", "traces_Sleep_sleep", "26ce1c1", RULES),
        ("bline", "final_B_line_heuristic", "606813b", FINAL_RULES),
        ("meander", "final_Meander_random", "606813b", FINAL_RULES),
    ],
)
def test_every_field_is_read_from_the_state(
    red: str, file: str, commit: str, rules: str, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What CybORG did is read back from a state that says so, field by field, over several episodes."""
    path, episodes = data / f"{file}.npz", 6
    recorded = load(path)[:episodes]
    install(monkeypatch, {AGENTS[red]: path}, tmp_path, rules=commit)
    heard: list[int] = []
    steps = recorded.shape[1]
    arrays = cyborg_record.record(as_recorded(recorded), red, episodes, steps, played=heard.append)
    for name in STEP.names or ():
        np.testing.assert_array_equal(arrays[name], recorded[name], err_msg=name)
    assert recorded["decoys"].any() or red == "sleep"
    assert str(arrays["rules"]) == rules
    assert len(set(arrays["seed"])) == episodes == sum(heard)
    cyborg_record.write(tmp_path / "again.npz", arrays)
    assert (load(tmp_path / "again.npz") == recorded).all()


def test_a_recording_made_by_the_command_replays(
    data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the command line, and `shoal cage2 replay` accepts the file."""
    install(monkeypatch, {"B_lineAgent": data / "traces_B_line_sleep.npz"}, tmp_path)
    file = str(tmp_path / "sleep.npz")
    asked = ["cage2", "record", file, "--defender", "sleep", "--red", "bline", "--episodes", "3", "--seed", "5"]
    for words in (asked, ["cage2", "replay", file]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        assert "300 steps, red bline, 0 mismatches" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 2
    assert "a new file" in capsys.readouterr().err


def test_without_cyborg_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And leaves no file."""
    monkeypatch.setitem(sys.modules, "CybORG", None)
    with pytest.raises(SystemExit) as ended:
        main(["cage2", "record", str(tmp_path / "any.npz")])
    assert ended.value.code == 2
    assert 'pip install -e "git+https://github.com/cage-challenge/cage-challenge-2@26ce1c1' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["x.npz", "--episodes", "0"], "--episodes of at least 1"),
        (["x.npz", "--steps", "0"], "--steps of at least 1"),
        (["x.txt"], "ends in .npz"),
        (["nowhere/x.npz"], "a folder that exists"),
    ],
)
def test_wrong_options_are_refused(
    asked: list[str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is played."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["cage2", "record", *asked])
    assert said in capsys.readouterr().err


def test_a_state_laid_out_otherwise_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another version keeps its state in other places: an error, not a recording with holes."""
    path = data / "traces_B_line_sleep.npz"
    install(monkeypatch, {"B_lineAgent": path}, tmp_path)
    monkeypatch.delattr(sys.modules["CybORG"].CybORG, "get_action_space")
    with pytest.raises(CyborgMissing, match=r"keeps its state otherwise.*get_action_space"):
        cyborg_record.record(as_recorded(load(path)), "bline")
