"""Checkpoints: what goes in comes out, and only the newest few stay."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shoal.runs import checkpoint, manifest
from shoal.runs import tensors as arrays
from shoal.runs.checkpoint import CheckpointError, NoCheckpoint, load_latest, save

DTYPES = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", ">f4", ">i8"]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal shape, equal kind and equal bits (NaN payloads included), whatever the byte order."""
    little = np.asarray(left, left.dtype.newbyteorder("<"), order="C")
    return little.dtype == right.dtype and left.shape == right.shape and little.tobytes() == right.tobytes()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip_of_every_kind(tmp_path: Path) -> None:
    """Mixed dtypes, 0-d, empty, transposed and strided arrays and odd meta come back bit for bit."""
    generator = np.random.default_rng(1)
    tensors = {
        "u8": np.arange(7, dtype=np.uint8),
        "i64": np.array([-(2**63), 2**63 - 1]),
        "u64": np.array([2**64 - 1, 0], np.uint64),
        "f32": generator.normal(size=(3, 4)).astype(np.float32),
        "f64": np.array([np.nan, -np.inf, -0.0, 5e-324]),
        "flag": np.array([[True], [False]]),
        "zero_d": np.array(3.5, np.float32),
        "zero_d_flag": np.array(True),
        "empty": np.zeros((0, 3), np.float32),
        "empty_u64": np.zeros((2, 0, 5), np.uint64),
        "transposed": np.arange(6).reshape(2, 3).T,
        "strided": np.arange(20)[::-3],
        "policy/actor.0.weight": np.ones((2, 2)),
        "names may have spaces, ü": np.ones(1),
    }
    meta = {
        "rng": {"state": 2**127 + 1, "inc": 3},
        "text": "ü\u0000\ud83d\ude00",
        "none": None,
        "list": [1.5, True],
    }
    path = save(tmp_path, 12, tensors, meta)
    loaded = load_latest(tmp_path)
    assert (loaded.epoch, loaded.path, loaded.skipped) == (12, path, [])
    assert path.name == "epoch-00000012"
    assert names(path) == ["manifest.json", "state.json", "state.safetensors"]
    assert loaded.meta == json.loads(json.dumps(meta))
    assert sorted(loaded.tensors) == sorted(tensors)
    for name, array in tensors.items():
        assert same(array, loaded.tensors[name]), name
        assert loaded.tensors[name].flags.writeable, name


@settings(max_examples=40, deadline=None)
@given(array=st.sampled_from(DTYPES).flatmap(lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=0, min_side=0))))
def test_any_array_survives_packing(array: np.ndarray) -> None:
    """Whatever the dtype, shape and byte order, packing and unpacking is the identity."""
    import io

    data = arrays.pack({"x": array})
    assert same(array, arrays.unpack(io.BytesIO(data), len(data))["x"])


@pytest.mark.parametrize(
    "array",
    [np.array([object()]), np.array(["text"]), np.zeros(2, [("a", "i4")]), np.zeros(2, np.complex128)],
    ids=["object", "text", "record", "complex"],
)
def test_arrays_that_cannot_be_kept_exactly_are_refused(tmp_path: Path, array: np.ndarray) -> None:
    """Objects and records are refused by name, with the way out, before anything is written."""
    with pytest.raises(TypeError, match=r"'x' has dtype .*view\(np\.uint8\)"):
        save(tmp_path, 1, {"x": array}, {})
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"a": {"b": float("nan")}}, r"a\.b is nan"),
        ({"a": [0, float("inf")]}, r"a\[1\] is inf"),
        ({"a": {1: 2}}, "the key 1 in a must be a string"),
        ({"a": np.int64(1)}, "a is a int64"),
        ({"a": "x" * (9 << 20)}, "use arrays"),
    ],
    ids=["nan", "inf", "int key", "numpy", "huge"],
)
def test_meta_that_json_cannot_keep_is_refused(tmp_path: Path, meta: dict[str, Any], message: str) -> None:
    """NaN, keys that are not text, NumPy scalars and megabytes of JSON are refused, naming the place."""
    with pytest.raises((TypeError, ValueError), match=message):
        save(tmp_path, 1, {}, meta)
    assert names(tmp_path) == []


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """After five saves with keep=2 the last two remain, in a folder without leftovers."""
    for epoch in (1, 2, 9, 10, 100_000_000):
        save(tmp_path, epoch, {"n": np.array(epoch)}, {}, keep=2)
    assert names(tmp_path) == ["epoch-00000010", "epoch-100000000"]
    assert load_latest(tmp_path).tensors["n"] == 100_000_000
    with pytest.raises(ValueError, match="keep >= 1"):
        save(tmp_path, 11, {}, {}, keep=0)


def test_saving_an_epoch_again_replaces_it(tmp_path: Path) -> None:
    """A second save of the same epoch (Ctrl-C right after a save) takes the place of the first."""
    for number in (1, 2):
        save(tmp_path, 5, {}, {"number": number})
    assert names(tmp_path) == ["epoch-00000005"]
    assert load_latest(tmp_path).meta == {"number": 2}


def test_leftovers_of_a_crash_are_ignored_then_swept(tmp_path: Path) -> None:
    """Temporary folders and files neither load nor stay, and foreign files are left alone."""
    save(tmp_path, 1, {}, {})
    (tmp_path / ".tmp-epoch-00000002-1-ab").mkdir()
    (tmp_path / ".tmp-epoch-00000002-1-ab" / "state.json").write_text("{")
    (tmp_path / ".tmp-loose").write_text("x")
    (tmp_path / "notes.txt").write_text("mine")
    assert load_latest(tmp_path).epoch == 1
    save(tmp_path, 2, {}, {})
    assert names(tmp_path) == ["epoch-00000001", "epoch-00000002", "notes.txt"]


def test_no_checkpoint_at_all_is_told_apart(tmp_path: Path) -> None:
    """A missing or empty folder raises NoCheckpoint, which is a CheckpointError, not a fresh start."""
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NoCheckpoint, match="no checkpoint"):
            load_latest(folder)
    assert issubclass(NoCheckpoint, CheckpointError)


def test_failing_to_delete_old_ones_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new checkpoint is safe by then: the caller gets its path and a warning."""
    save(tmp_path, 1, {}, {})

    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    sweep = checkpoint._sweep
    monkeypatch.setattr(
        checkpoint, "_sweep", lambda folder: refuse(folder) if len(names(folder)) > 1 else sweep(folder)
    )
    with pytest.warns(UserWarning, match="could not be deleted"):
        assert save(tmp_path, 2, {}, {}, keep=1).is_dir()


def test_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a later shoal is not skipped in favour of an old one: it names its writer and stops."""
    save(tmp_path, 1, {}, {})
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "SCHEMA", 7)
        patch.setattr(manifest, "shoal_version", lambda: "9.8.7")
        save(tmp_path, 2, {}, {})
    with pytest.raises(CheckpointError, match=r"written by 'shoal 9\.8\.7' with checkpoint schema 7.*upgrade"):
        load_latest(tmp_path)


def test_saving_warns_about_nothing(tmp_path: Path) -> None:
    """An ordinary save and load is silent."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(tmp_path, 1, {"w": np.ones(3)}, {"a": 1})
        load_latest(tmp_path)


def test_a_checkpoint_pruned_while_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader lists the folder, then a training saves a newer one and deletes those: the newer one is found."""
    save(tmp_path, 1, {"w": np.ones(3)}, {"epoch": 1}, keep=1)
    read, saved = checkpoint._read, []

    def overtaken(path: Path, epoch: int) -> Any:
        if len(saved) < 3:
            saved.append(epoch)
            save(tmp_path, epoch + 1, {"w": np.ones(3)}, {"epoch": epoch + 1}, keep=1)
        return read(path, epoch)

    monkeypatch.setattr(checkpoint, "_read", overtaken)
    found = checkpoint.load_latest(tmp_path)
    assert (found.epoch, found.meta, found.skipped) == (4, {"epoch": 4}, [])
    assert saved == [1, 2, 3]
