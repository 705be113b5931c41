"""Whatever is in a file, a parser of shoal gives a value or refuses it in words; nothing in it runs.

Files that somebody made to do harm are in tests/data/hostile. Others are made by hypothesis: bytes of no sense, and
sound files with a few bytes changed; for seconds here, for minutes with `make test-slow`. Whole folders with one value
changed are in test_folders.py.
"""

from __future__ import annotations

import functools
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from benchmarks.rides.li_lim import load_li_lim
from shoal.cage2.traces import STEP
from shoal.cage2.traces import load as load_recording
from shoal.comparison.facts import Curve, RunFacts, read_facts
from shoal.comparison.plan import Arm, Plan
from shoal.config import TrainConfig, from_dict, to_dict
from shoal.core.spaces import space_from_data, space_to_data
from shoal.rides.desk.calls import load_booked, parse_call
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.weights import KIND, load_network, save_network
from shoal.rides.world.city import san_francisco
from shoal.rides.world.city_files import load_city
from shoal.rides.world.files import load_requests, load_riders
from shoal.rides.world.riders import Riders
from shoal.rides.world.tables import read_cells
from shoal.runs import checkpoint, jsonl, manifest, tensors
from shoal.runs.disk import from_json
from shoal.runs.folder import Run
from shoal.search.folder import SearchFolder
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


def _folder_of_search(data: bytes, folder: Path, file: str) -> SearchFolder:
    (folder / "config.json").write_bytes(_SEARCH)
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data)
    return SearchFolder(Run.open(folder, folder))


def _search(data: bytes, folder: Path) -> Any:
    found = _folder_of_search(data, folder, "config.json")
    return found.config, found.options


def _saved(name: str) -> bytes:
    """A file of a checkpoint like the one that it takes the place of."""
    with tempfile.TemporaryDirectory() as folder:
        saved = checkpoint.save(Path(folder), 3, {"w": np.ones(4)}, {"epoch": 3})
        return (saved / name).read_bytes()


def _network() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        save_network(RoutingNetwork(4, 2, 1, 4), Path(folder, "weights"))
        return Path(folder, "weights").read_bytes()


def _recording() -> bytes:
    steps, out = np.zeros((1, 2), STEP), io.BytesIO()
    np.savez(out, **{name: steps[name] for name in STEP.names or ()})
    return out.getvalue()


def _zones(data: bytes, folder: Path) -> Any:
    (folder / "matrix.csv").write_bytes(b"zone,a,b\na,0,600\nb,750,0\n")
    return _file(lambda path: load_city(folder / "matrix.csv", path), "zones.csv")(data, folder)


def _trips(data: bytes, folder: Path) -> Any:
    (folder / "riders.csv").write_bytes(_RIDERS)
    return _file(lambda path: load_riders(folder / "riders.csv", san_francisco(), path), "trips.csv")(data, folder)


@functools.cache
def _people() -> Riders:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "riders.csv").write_bytes(_RIDERS)
        return load_riders(Path(folder, "riders.csv"), san_francisco())


_RIDERS = b"rider,age,occupation,income,home\nann,35,office,low,0\n"
CHECKPOINT = {"manifest": "manifest.json", "arrays": "state.safetensors", "the rest": "state.json"}
_BOX = gym.spaces.Box(-1, 1, (2,))
_PLAN = Plan(
    task="CartPole-v1", arms=(Arm("a", to_dict(TrainConfig())), Arm("b", to_dict(TrainConfig()))), seeds=5, seed=0,
    held_out=100, match="samples", primary="final", threshold=None, code="c",
)  # fmt: skip
_FACTS = RunFacts(
    arm="a", seed=1, run="a-s01", status="finished", reason="", settings="s", code="c", machine="m", num_envs=8,
    final=1.5, sampled=1.0, training=1.2, steps=200, updates=8.0, seconds=2.5, noise=30.0,
    curve=Curve([100, 200], [4.0, 8.0], [1.0, 2.5], [0.5, 1.2]),
)  # fmt: skip
PARSERS: dict[str, Parser] = {
    "json": lambda data, folder: from_json(data),
    "json lines": _file(jsonl.parse, "rows.jsonl"),
    "last line": _file(jsonl.last, "rows.jsonl"),
    "tensors": lambda data, folder: tensors.unpack(io.BytesIO(data), len(data)),
    **{f"checkpoint: {name}": functools.partial(_checkpoint, name=file) for name, file in CHECKPOINT.items()},
    "settings": lambda data, folder: from_dict(from_json(data)),
    "run folder": _run,
    "settings of a search": _search,
    "pull of a search": lambda data, folder: _folder_of_search(data, folder, "pulls/000-a/pull.json").records(),
    "plan of a comparison": lambda data, folder: Plan.from_json(from_json(data)),
    "run of a comparison": _file(read_facts, "facts.json"),
    "spaces": lambda data, folder: space_from_data(from_json(data)),
    "arguments of an environment": lambda data, folder: parse_env_kwargs(data.decode()),
    "table": _file(read_cells, "table.csv"),
    "city": _file(load_city, "matrix.csv"),
    "zones": _zones,
    "riders": _file(lambda path: load_riders(path, san_francisco()), "riders.csv"),
    "trips": _trips,
    "requests": _file(lambda path: load_requests(path, san_francisco(), _people()), "requests.csv"),
    "bookings": _file(lambda path: load_booked(path, san_francisco(), _people(), 6), "bookings.csv"),
    "call": lambda data, folder: parse_call(data.decode(), san_francisco(), _people(), 6),
    "routing instance": _file(load_li_lim, "lc101.txt"),
    "routing network": _file(load_network, "weights.safetensors"),
    "recording": _file(load_recording, "recording.npz"),
}
_TIMES = "pickup_open,pickup_close,dropoff_open,dropoff_close"
_SETTINGS = json.dumps(to_dict(TrainConfig())).encode()
_SEARCH = json.dumps({"search": asdict(SearchConfig()), "options": {}}).encode()
_SHARE = {"mean": 0.9, "low": 0.8, "high": 1.0}
_PULL = {
    "request": {"number": 0, "item": 3, "name": "a b", "seed": 5, "start": None},
    "pull": {"mean": 1.5, "se": 0.1, "passed": True, "weights": "w", "details": {"compliance": _SHARE}},
    "wall_s": 2.0,
    "cpu_s": 1.5,
}
SOUND: dict[str, bytes] = {
    "json": b'{"a": [1, 2.5, null], "b": {"c": "\\u00e9"}}',
    "json lines": b'{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "loss": null}\n',
    "last line": b'{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "loss": null}\n',
    "tensors": tensors.pack({"w": np.arange(6.0).reshape(2, 3), "n": np.array(3)}),
    **{f"checkpoint: {name}": _saved(file) for name, file in CHECKPOINT.items()},
    "settings": _SETTINGS,
    "run folder": _SETTINGS,
    "settings of a search": _SEARCH,
    "pull of a search": json.dumps(_PULL).encode(),
    "plan of a comparison": json.dumps(_PLAN.to_json()).encode(),
    "run of a comparison": json.dumps(_FACTS.to_json()).encode(),
    "spaces": json.dumps(space_to_data(gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": _BOX}))).encode(),
    "arguments of an environment": b'{"g": 9.81, "names": ["a", "b"]}',
    "table": b"name;x;y\na;0;1,5\nb;2;3\n",
    "city": b"zone,a,b\na,0,600\nb,750,0\n",
    "zones": b"name,x_km,y_km,depot,home\na,0,0.5,1,2\nb,1,1,0,3\n",
    "riders": _RIDERS,
    "trips": b"rider,pickup,dropoff,purpose,pickup_open\nann,1,2,medical,9:00\nann,2,1,medical,10:30\n",
    "requests": f"rider,pickup,dropoff,purpose,{_TIMES},size,seed\nann,1,2,medical,9:00,9:30,9:00,12:00,1,7\n".encode(),
    "bookings": f"rider,pickup,dropoff,purpose,{_TIMES},later_min\nann,1,2,medical,9:00,9:30,9:00,12:00,0\n".encode(),
    "call": b"pickup=1, dropoff=2, purpose=medical, pickup_open=9:00",
    "routing instance": b"2 10 1\n0 40 50 0 0 1236 0 0 0\n1 45 68 10 912 967 90 0 2\n2 45 70 -10 825 870 90 1 0\n",
    "routing network": _network(),
    "recording": _recording(),
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


SLOWER = {*(f"checkpoint: {name}" for name in CHECKPOINT), "riders", "trips", "routing network"}
_BYTE = st.tuples(st.integers(0, 10_000), st.integers(0, 255))


def _fuzz(name: str, folder: Path, examples: int, fixed: bool) -> None:
    """`fixed`: the same examples every time, as a test of every commit must have; the long form draws its own."""
    chosen = settings(
        max_examples=examples, deadline=None, derandomize=fixed, database=None, suppress_health_check=list(HealthCheck)
    )

    @chosen
    @given(st.one_of(st.binary(max_size=300), st.text(max_size=200).map(lambda text: text.encode(errors="replace"))))
    def any_bytes(data: bytes) -> None:
        try_it(name, data, folder)

    @chosen
    @given(st.lists(_BYTE, max_size=4), st.integers(0, 40) | st.just(0))
    def nearly_sound(changes: list[tuple[int, int]], cut: int) -> None:
        try_it(name, _changed(SOUND[name], changes, cut), folder)

    any_bytes()
    nearly_sound()


@pytest.mark.parametrize("name", list(PARSERS))
def test_what_is_sound_is_taken(name: str, tmp_path: Path) -> None:
    """Refusing everything is no way to pass; and no parser goes without a sound file to change."""
    PARSERS[name](SOUND[name], tmp_path)


@pytest.mark.parametrize("name", list(PARSERS))
def test_bytes_of_any_kind(name: str, tmp_path: Path) -> None:
    _fuzz(name, tmp_path, 12 if name in SLOWER else 25, True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", list(PARSERS))
def test_bytes_of_any_kind_for_minutes(name: str, tmp_path: Path) -> None:
    _fuzz(name, tmp_path, 300 if name in SLOWER else 3000, False)


def test_a_network_larger_than_its_file_is_refused_before_it_is_made(tmp_path: Path) -> None:
    """Its first matrix alone would take 40 GB."""
    save_file({"w": torch.zeros(4)}, tmp_path / "w", metadata={"about": f"{KIND} 99999 1 1 99999"})
    with pytest.raises(ValueError, match="4 weights do not fit a network of shape"):
        load_network(tmp_path / "w")


def test_spaces_come_back_from_what_is_saved_of_them() -> None:
    """The sound case, so that refusing everything is no way to pass."""
    space = gym.spaces.Dict({"a": gym.spaces.Discrete(3), "b": gym.spaces.Box(-1, 1, (2,))})
    assert space_from_data(space_to_data(space)) == space
    assert from_dict(json.loads(SOUND["settings"])) == TrainConfig()
    assert sorted(tensors.unpack_bytes(SOUND["tensors"])) == ["n", "w"]
