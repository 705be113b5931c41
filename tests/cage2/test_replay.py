"""Replay of the recordings, and what happens to bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.cage2.commands import replay as replay_command
from shoal.cage2.commands import replay_lines
from shoal.cage2.replay import replay
from shoal.cage2.traces import COMPARED, TraceError, load
from shoal.cli import main


def test_all_ten_recordings_replay_without_a_mismatch(traces: list[Path]) -> None:
    """110,000 steps of the real CybORG: every compared field is met."""
    report = replay(traces)
    assert report.by_field == {}
    assert (report.steps, report.mismatches, report.first) == (110_000, 0, None)
    assert sorted({found["red"] for found in report.files.values()}) == [
        "bline",
        "meander",
        "scripted",
        "sleep",
    ]


def altered(source: Path, folder: Path, **changes: Any) -> Path:
    """A copy of a recording with some arrays replaced, or removed (None)."""
    with np.load(source, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    for name, change in changes.items():
        if change is None:
            del arrays[name]
        else:
            arrays[name] = change(arrays[name])
    path = folder / "altered.npz"
    np.savez_compressed(path, **arrays)
    return path


@pytest.fixture
def meander(data: Path) -> Path:
    return data / "traces_Meander_heuristic.npz"


@pytest.mark.parametrize("name", [*COMPARED, "red_exploit", "red_target", "blue_action"])
def test_a_change_in_any_field_is_found(name: str, meander: Path, tmp_path: Path) -> None:
    """One altered number in one step is reported, at that step, under a name."""

    def change(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        spot = values[7, 40] if values.ndim > 2 else values[7, 40:41]
        spot[5 % len(spot)] = {"blue_action": 144, "red_target": 8}.get(name, 1 - spot[5 % len(spot)] % 2)
        return values

    if name == "red_exploit":
        kinds = load(meander)["red_type"][7]
        step = int(np.flatnonzero(kinds == 3)[5])

        def change(values: np.ndarray) -> np.ndarray:  # type: ignore[no-redef]
            values = values.copy()
            values[7, step] = 0 if values[7, step] != 0 else 1
            return values

    report = replay([altered(meander, tmp_path, **{name: change})])
    assert report.mismatches > 0
    assert report.first is not None
    assert report.first.episode == 7
    if name in COMPARED and name != "detected":
        assert report.first.step == 40
        assert name in report.first.fields
    found = replay_command([tmp_path / "altered.npz"])
    assert json.loads(json.dumps(found, allow_nan=False))["mismatches"] == report.mismatches
    text = "\n".join(replay_lines(found))
    assert "first mismatch" in text
    assert "recorded" in text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"red_ports": None}, "field 'red_ports' is missing"),
        (
            {"obs": lambda a: a[:, :, :51]},
            r"field 'obs' has shape \(100, 100, 51\), expected \(100, 100, 52\)",
        ),
        ({"reward": lambda a: a.astype(str)}, "field 'reward' has dtype <U"),
        ({"reward": lambda a: a * np.nan}, "field 'reward' holds NaN"),
        ({"access": lambda a: a.astype(float)}, "field 'access' has dtype float64, expected uint8"),
        ({"blue_action": lambda a: a + 100}, r"field 'blue_action' holds \d+\.\.\d+, expected 0\.\.144"),
        ({"blue_action": lambda a: a.ravel()}, r"field 'blue_action' has shape \(10000,\)"),
        ({"red_target": lambda a: np.where(a >= 0, -1, a).astype(a.dtype)}, "field 'red_target' is -1"),
        ({"red_type": lambda a: np.ones_like(a)}, "field 'red_target' is .* for DiscoverRemoteSystems"),
        ({"obs0": lambda a: a + 1}, "field 'obs0'"),
    ],
)
def test_a_bad_file_names_the_field_and_the_cure(
    changes: dict[str, Any], named: str, meander: Path, tmp_path: Path
) -> None:
    """Missing fields, wrong shapes, types and values are errors that say what was expected."""
    with pytest.raises(TraceError, match=named) as error:
        replay([altered(meander, tmp_path, **changes)])
    assert "Record it again" in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The path is in the message."""
    with pytest.raises(TraceError, match="no such file"):
        replay([tmp_path / "nothing.npz"])


def test_a_file_of_another_kind_is_refused_in_our_words(tmp_path: Path) -> None:
    """Nobody is told to load it unsafely."""
    (tmp_path / "README.md").write_text("# not a recording")
    np.savez(tmp_path / "objects.npz", blue_action=np.array([{}], object))
    for name in ("README.md", "objects.npz"):
        with pytest.raises(TraceError) as error:
            load(tmp_path / name)
        assert "pickle" not in str(error.value)
    with pytest.raises(TraceError, match=r"expected a recording \(.npz, docs/cage2-recordings.md\)"):
        load(tmp_path / "README.md")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    """An object array is refused, not unpickled."""
    path = tmp_path / "evil.npz"
    np.savez(path, blue_action=np.array([object()], dtype=object))
    with pytest.raises(TraceError, match="not a readable"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"hello"])
def test_a_file_of_something_else(content: bytes, tmp_path: Path) -> None:
    """Garbage is named as such."""
    path = tmp_path / "garbage.npz"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"garbage\.npz"):
        load(path)


def test_the_final_rules_replay_their_recordings(data: Path) -> None:
    """17,200 steps of the CybORG of the published leaderboard: not one differs; under the other rules many do, both
    ways, and first in what red remembers of ports."""
    files = sorted(data.glob("final_*.npz"))
    report = replay(files, "final")
    assert (len(files), report.steps, report.mismatches) == (6, 17_200, 0)
    other = replay(files)
    assert other.mismatches > 500
    assert other.first is not None
    assert other.first.fields == ("red_ports",)
    assert replay([data / "traces_B_line_random.npz"], "final").mismatches > 100


def test_the_rules_of_a_replay_are_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And wrong ones refused."""
    for rules, code, said in (
        ("final", 0, "0 mismatches under the rules cage-challenge-2@606813b"),
        ("older", 2, "expected --rules as one of final, present, got 'older'"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["cage2", "replay", str(data / "final_Sleep_random.npz"), "--rules", rules])
        assert ended.value.code == code
        out = capsys.readouterr()
        assert said in out.out + out.err
