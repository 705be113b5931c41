"""Whatever is in a file, a parser of shoal gives a value or refuses it in words; nothing in it runs.

Files that somebody made to do harm are in tests/data/hostile. Others are made by hypothesis: bytes of no sense, and
sound files with a few bytes changed; for seconds here, for minutes with `make test-slow`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.rides.li_lim import load_li_lim
from shoal.cage2.traces import load as load_recording
from shoal.config import TrainConfig, from_dict, to_dict
from shoal.core import plain
from shoal.core.spaces import space_from_data, space_to_data
from shoal.rides.world.city import san_francisco
from shoal.rides.world.city_files import load_city
from shoal.rides.world.files import load_riders
from shoal.rides.world.tables import read_cells
from shoal.runs import checkpoint, jsonl, manifest, tensors
from shoal.runs.disk import from_json
from shoal.runs.folder import Run
from shoal.search.options import SearchConfig
from shoal.tasks.saved import parse_env_kwargs

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
REFUSED = (ValueError, OSError, checkpoint.CheckpointError, manifest.Damaged)  # in words; UnicodeError is a ValueError
Parser = Callable[[bytes, Path], Any]


def _file(read: Callable[[Path], Any], name: str) -> Parser:
    def parse(data: bytes, folder: Path) -> Any:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return parse


def _checkpoint(data: bytes, folder: Path, name: str) -> Any:
    """A checkpoint one file of which is this."""
    saved = checkpoint.save(folder / "checkpoints", 3, {"w": np.ones(4)}, {"epoch": 3})
    (saved / name).write_bytes(data)
    return checkpoint.load_latest(folder / "checkpoints")


def _run(data: bytes, folder: Path) -> Any:
    (folder / "config.json").write_bytes(data)
    return from_dict(Run.open(folder, folder).config)


PARSERS: dict[str, Parser] = {
    "json": lambda data, folder: from_json(data),
    "json lines": _file(jsonl.parse, "rows.jsonl"),
    "last line": _file(jsonl.last, "rows.jsonl"),
    "tensors": lambda data, folder: tensors.unpack(io.BytesIO(data), len(data)),
    "checkpoint: manifest": lambda data, folder: _checkpoint(data, folder, "manifest.json"),
    "checkpoint: arrays": lambda data, folder: _checkpoint(data, folder, "state.safetensors"),
    "checkpoint: the rest": lambda data, folder: _checkpoint(data, folder, "state.json"),
    "settings": lambda data, folder: from_dict(from_json(data)),
    "run folder": _run,
    "settings of a search": lambda data, folder: plain.from_dict(from_json(data), SearchConfig),
    "spaces": lambda data, folder: space_from_data(from_json(data)),
    "arguments of an environment": lambda data, folder: parse_env_kwargs(data.decode()),
    "table": _file(read_cells, "table.csv"),
    "city": _file(load_city, "matrix.csv"),
    "riders": _file(lambda path: load_riders(path, san_francisco()), "riders.csv"),
    "routing instance": _file(load_li_lim, "lc101.txt"),
    "recording": _file(load_recording, "recording.npz"),
}
SOUND: dict[str, bytes] = {
    "settings": json.dumps(to_dict(TrainConfig())).encode(),
    "run folder": json.dumps(to_dict(TrainConfig())).encode(),
    "tensors": tensors.pack({"w": np.arange(6.0).reshape(2, 3), "n": np.array(3)}),
    "json lines": b'{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "loss": null}\n',
    "city": b"zone,a,b\na,0,60\nb,75,0\n",
    "riders": b"rider,age,occupation,income,home\nann,35,working,low,0\n",
    "routing instance": b"2 10 1\n0 40 50 0 0 1236 0 0 0\n1 45 68 10 912 967 90 0 2\n2 45 70 -10 825 870 90 1 0\n",
}


def try_it(name: str, data: bytes, folder: Path) -> None:
    """A value, or a refusal of readable length."""
    said = "a value"
    try:
        PARSERS[name](data, folder)
    except REFUSED as error:
        said = str(error)
    assert 0 < len(said) < 4000


@pytest.mark.parametrize("path", sorted(HOSTILE.iterdir()), ids=lambda path: path.name)
@pytest.mark.parametrize("name", list(PARSERS))
def test_hostile_files_are_refused_or_harmless(
    name: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where the planted code would leave its mark
    try_it(name, path.read_bytes(), tmp_path)
    assert not (tmp_path / "shoal-canary").exists()


def test_the_planted_code_would_leave_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the test above could not fail."""
    import pickle

    monkeypatch.chdir(tmp_path)
    pickle.loads((HOSTILE / "pickle.bin").read_bytes())
    assert (tmp_path / "shoal-canary").exists()


def _changed(data: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    found = bytearray(data)
    for place, value in changes:
        found[place % len(found)] = value
    return bytes(found[: max(len(found) - cut, 0)])


_BYTE = st.tuples(st.integers(0, 10_000), st.integers(0, 255))


def _fuzz(name: str, folder: Path, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(lambda text: text.encode(errors="replace"))))
    def any_bytes(data: bytes) -> None:
        try_it(name, data, folder)

    any_bytes()
    if name in SOUND:

        @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(st.lists(_BYTE, max_size=4), st.integers(0, 40))
        def nearly_sound(changes: list[tuple[int, int]], cut: int) -> None:
            try_it(name, _changed(SOUND[name], changes, cut), folder)

        nearly_sound()


@pytest.mark.parametrize("name", list(PARSERS))
def test_bytes_of_any_kind(name: str, tmp_path: Path) -> None:
    _fuzz(name, tmp_path, 12 if name.startswith("checkpoint") else 25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(PARSERS))
def test_bytes_of_any_kind_for_minutes(name: str, tmp_path: Path) -> None:
    _fuzz(name, tmp_path, 300 if name.startswith("checkpoint") else 3000)


def test_spaces_come_back_from_what_is_saved_of_them() -> None:
    """The sound case, so that refusing everything is no way to pass."""
    import gymnasium as gym

    space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2,))})
    assert space_from_data(space_to_data(space)) == space
    assert from_dict(json.loads(SOUND["settings"])) == TrainConfig()
    assert sorted(tensors.unpack_bytes(SOUND["tensors"])) == ["n", "w"]
