"""Checkpoints under attack: kills, full disks, flipped bits, hostile files (FAULTS.md rows 14-16, 19)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal.runs
from clock import within
from shoal.runs import manifest
from shoal.runs import tensors as arrays
from shoal.runs.checkpoint import Checkpoint, CheckpointError, load_latest, save
from shoal.runs.disk import to_json

FILES = ("state.safetensors", "state.json", "manifest.json")
SOURCE = str(Path(shoal.runs.__file__).parents[2])

# Saves for ever, each epoch twice, so that a kill also lands while an epoch is being replaced.
SAVER = """
import sys
from pathlib import Path
import numpy as np
from shoal.runs.checkpoint import save
folder, count = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
while True:
    save(folder, count // 2, {"w": np.full(40_000, count, np.int64), "n": np.array(count)}, {"count": count})
    print(count, flush=True)
    count += 1
"""


def start_saver(folder: Path, count: int, fault_point: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": SOURCE, "SHOAL_FAULT_POINT": fault_point}
    command = [sys.executable, "-c", SAVER, str(folder), str(count)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def consistent(found: Checkpoint) -> int:
    """The save this checkpoint came from, after checking that all its parts came from that one."""
    count = found.meta["count"]
    assert found.epoch == count // 2
    assert found.tensors["n"] == count
    assert (found.tensors["w"] == count).all()
    assert found.skipped == []
    return int(count)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


POINTS = (
    "after-write",
    "before-manifest",
    "after-manifest",
    "before-rename",
    "between-renames",
    "before-prune",
)


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_fault_point(tmp_path: Path, point: str) -> None:
    """A process that dies at this point leaves a valid checkpoint, and the next save sweeps up."""
    for count in (2, 3, 4):
        save(tmp_path, count // 2, {"w": np.full(9, count), "n": np.array(count)}, {"count": count})
    process = start_saver(tmp_path, 5, f"checkpoint:{point}")
    process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL
    assert consistent(load_latest(tmp_path)) == (5 if point == "before-prune" else 4)
    save(tmp_path, 3, {"w": np.full(9, 6), "n": np.array(6)}, {"count": 6})
    assert consistent(load_latest(tmp_path)) == 6
    assert leftovers(tmp_path) == []


def test_fault_point_at_one_epoch(tmp_path: Path) -> None:
    """`point@epoch` dies at that epoch's save only."""
    process = start_saver(tmp_path, 2, "checkpoint:before-rename@4")
    output, _ = process.communicate(timeout=200)
    assert output.split()[-1] == "7"
    assert consistent(load_latest(tmp_path)) == 7


def kill_at_random_instants(folder: Path, kills: int) -> None:
    pause = random.Random(kills)
    count = 0
    for _ in range(kills):
        process = start_saver(folder, count)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        reported = [int(process.stdout.readline())] if count == 0 else []  # so that there is something to find
        time.sleep(pause.uniform(0.0, 0.05))
        process.kill()
        reported += [int(line) for line in process.stdout.read().split()]
        process.wait()
        process.stdout.close()
        found = consistent(load_latest(folder))
        last = reported[-1] if reported else count - 1
        # What `save` reported done is there; at most the one after it had got as far as its rename.
        assert found in (last, last + 1), (found, last)
        count = found + 1
    save(folder, count, {}, {})
    assert leftovers(folder) == []


def test_ten_kills_around_save(tmp_path: Path) -> None:
    """kill -9 at ten random instants: every time the newest reported checkpoint loads whole."""
    kill_at_random_instants(tmp_path, 10)


@pytest.mark.slow
def test_hundred_kills_around_save(tmp_path: Path) -> None:
    """kill -9 at a hundred random instants: every time the newest reported checkpoint loads whole."""
    kill_at_random_instants(tmp_path, 100)


CODES = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO)


def test_every_system_call_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever call of a save fails, and however: it is reported, swept up, and the old one still loads."""
    save(tmp_path, 1, {"w": np.arange(5)}, {"epoch": 1})
    fail_at = calls = 0

    def failing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fail_at:
                code = CODES[fail_at % len(CODES)]
                raise OSError(code, os.strerror(code))
            return function(*arguments, **keywords)

        return call

    messages = []
    for fail_at in range(1, 200):
        calls, message = 0, ""
        with monkeypatch.context() as patch:
            for name in ("write", "fsync", "rename", "mkdir", "open"):
                patch.setattr(os, name, failing(getattr(os, name)))
            try:
                save(tmp_path, 2, {"w": np.arange(9)}, {"epoch": 2})
            except CheckpointError as error:
                message = str(error)
        found = load_latest(tmp_path)
        assert found.skipped == []
        assert found.meta == {"epoch": found.epoch}
        assert leftovers(tmp_path) == []
        if calls < fail_at:
            break
        if message:
            messages.append(message)
            code = CODES[fail_at % len(CODES)]
            assert f"{os.strerror(code)} ({errno.errorcode[code]})" in message
            assert str(tmp_path) in message
            assert "What to do" in message
        if found.epoch == 2:  # the failure was harmless, or came after the rename
            shutil.rmtree(found.path)
    assert len(messages) >= 12
    assert load_latest(tmp_path).epoch == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB, where the tests run as root on Linux."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = (
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False)
        if shutil.which("mount")
        else None
    )
    if done is None or done.returncode != 0:
        pytest.skip("a small tmpfs cannot be mounted here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_disk_really_full(small_disk: Path) -> None:
    """On a full disk the save fails by name, leaves nothing behind, and the old checkpoint loads."""
    save(small_disk, 1, {"w": np.ones(20_000)}, {})
    with pytest.raises(CheckpointError, match=r"state\.safetensors: No space left on device \(ENOSPC\).*free"):
        save(small_disk, 2, {"w": np.ones(200_000)}, {})
    assert [path.name for path in small_disk.iterdir()] == ["epoch-00000001"]
    assert load_latest(small_disk).tensors["w"].sum() == 20_000
    save(small_disk, 3, {"w": np.ones(20_000)}, {})
    assert load_latest(small_disk).epoch == 3


def test_disk_really_read_only(small_disk: Path) -> None:
    """On a read-only disk saving says so, and loading works."""
    save(small_disk, 1, {}, {})
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(CheckpointError, match=r"Read-only file system \(EROFS\).*--checkpoint-dir"):
        save(small_disk, 2, {}, {})
    assert load_latest(small_disk).epoch == 1


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two valid checkpoints, epochs 1 and 2."""
    for epoch in (1, 2):
        save(tmp_path, epoch, {"w": np.full(4, epoch, np.float32)}, {"epoch": epoch, "lr": 0.5})
    return tmp_path


def falls_back(folder: Path, file: str) -> str:
    """Loading uses epoch 1 and says why epoch 2 was not; returns the reason."""
    found = load_latest(folder)
    assert (found.epoch, found.meta["epoch"]) == (1, 1)
    assert (found.tensors["w"] == 1).all()
    (reason,) = found.skipped
    assert reason.startswith("epoch-00000002: ")
    assert file in reason
    return reason


@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit_is_noticed(two: Path, file: str) -> None:
    """Each single bit of each file, flipped: the previous checkpoint is used and the file is named."""
    path = two / "epoch-00000002" / file
    original = path.read_bytes()
    for position in range(len(original) * 8):
        data = bytearray(original)
        data[position // 8] ^= 1 << position % 8
        path.write_bytes(data)
        reason = falls_back(two, file)
        assert file == "manifest.json" or "sha256 mismatch" in reason
    path.write_bytes(original)
    assert load_latest(two).epoch == 2


@pytest.mark.parametrize("file", FILES)
def test_truncated_missing_or_linked(two: Path, file: str) -> None:
    """A file cut at any length, missing, replaced by a link, a pipe or a folder is noticed."""
    path = two / "epoch-00000002" / file
    original = path.read_bytes()
    for length in range(0, len(original), 7):
        path.write_bytes(original[:length])
        falls_back(two, file)
    path.unlink()
    assert "is missing" in falls_back(two, file)
    path.symlink_to(two / "epoch-00000001" / file)
    falls_back(two, file)
    path.unlink()
    os.mkfifo(path)
    falls_back(two, file)
    path.unlink()
    path.mkdir()
    falls_back(two, file)


@pytest.mark.parametrize("swapped", [FILES[:1], FILES[1:2], FILES[2:], FILES[:2], FILES], ids="+".join)
def test_files_swapped_between_checkpoints(two: Path, swapped: tuple[str, ...]) -> None:
    """Files of one epoch in another's folder are refused, even when all three of them moved together."""
    for file in swapped:
        shutil.copy(two / "epoch-00000001" / file, two / "epoch-00000002" / file)
    falls_back(two, "")


def test_all_bad_is_an_error_never_a_fresh_start(two: Path) -> None:
    """With every checkpoint damaged the error lists each with its reason."""
    (two / "epoch-00000001" / "state.json").write_text("{}")
    (two / "epoch-00000002" / "manifest.json").unlink()
    with pytest.raises(CheckpointError) as caught:
        load_latest(two)
    assert "epoch-00000001: state.json" in str(caught.value)
    assert "epoch-00000002: manifest.json is missing" in str(caught.value)


def test_replacing_a_damaged_checkpoint(two: Path) -> None:
    """After falling back, training passes the damaged epoch again and its new save counts."""
    (two / "epoch-00000002" / "state.json").write_text("{}")
    falls_back(two, "state.json")
    save(two, 2, {}, {"again": True})
    assert load_latest(two).meta == {"again": True}
    assert load_latest(two).skipped == []


def plant(path: Path, **files: bytes) -> None:
    """Put these bytes into a checkpoint and seal it with a manifest that fits them, as an attacker would."""
    contents = {name: (path / name).read_bytes() for name in FILES[:2]}
    contents |= {name.replace("_", "."): data for name, data in files.items()}
    for name, data in contents.items():
        (path / name).write_bytes(data)
    epoch = int(path.name.removeprefix("epoch-"))
    (path / "manifest.json").write_bytes(to_json(manifest.describe(epoch, contents)))


class Canary:
    """Unpickling this creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("protocol", [0, 5])
@pytest.mark.parametrize("file", FILES)
def test_pickles_are_never_run(two: Path, file: str, protocol: int) -> None:
    """A pickle in any of the three files, sealed or not, is refused without being run."""
    canary = two / "canary"
    payload = pickle.dumps(Canary(canary), protocol=protocol)
    path = two / "epoch-00000002"
    (path / file).write_bytes(payload)
    falls_back(two, file)
    if file != "manifest.json":
        plant(path, **{file.replace(".", "_"): payload})
        falls_back(two, "")
    assert not canary.exists()
    pickle.loads(payload)
    assert canary.exists(), "the payload must be a live one for this test to mean anything"


def header(spec: Any, *, claimed: int | None = None, data: bytes = b"") -> bytes:
    text = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
    return (len(text) if claimed is None else claimed).to_bytes(8, "little") + text + data


def tensor(shape: list[Any], end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}


BOMBS = {
    "huge header": header({}, claimed=2**62),
    "header over the limit": header(b" " * (arrays.MOST_HEADER_BYTES + 2)),
    "header longer than file": header({}, claimed=1000),
    "too short": b"\x02",
    "deep nesting": header(b'{"a":' + b"[" * 500_000),
    "nested just below the limit": header(b'{"w":' * 900 + b"1" + b"}" * 900),
    "huge tensor": header({"w": tensor([2**40], 2**42)}, data=bytes(16)),
    "shape beyond data": header({"w": tensor([2**40], 16)}, data=bytes(16)),
    "shape overflows": header({"w": tensor([2**62, 4], 0)}),
    "many dimensions": header({"w": tensor([1] * 10_000, 4)}, data=bytes(4)),
    "negative": header({"w": tensor([-1, -4], 16)}, data=bytes(16)),
    "fractions": header({"w": tensor([1.0], 4)}, data=bytes(4)),
    "no spec": header({"w": None}),
    "not a list": header({"w": {"dtype": "F32", "shape": 4, "data_offsets": 7}}),
    "unknown dtype": header({"w": tensor([1], 1, "PICKLE")}, data=bytes(1)),
    "hole in data": header({"w": tensor([1], 4)}, data=bytes(400)),
    "overlap": header({"v": tensor([1], 4), "w": tensor([1], 4)}, data=bytes(8)),
    "way up": header({"../../etc/passwd": tensor([1], 4)}, data=bytes(4)),
    "absolute": header({"/etc/passwd": tensor([1], 4)}, data=bytes(4)),
    "NUL": header({"w\0": tensor([1], 4)}, data=bytes(4)),
    "endless name": header({"w" * 100_000: tensor([1], 4)}, data=bytes(4)),
    "not utf-8": header(b'{"\xff": 1}'),
    "NaN": header(b'{"__metadata__": NaN}'),
    "a list": header([]),
}


@pytest.mark.parametrize("name", BOMBS)
def test_header_bombs(two: Path, name: str) -> None:
    """A malicious safetensors header under a valid seal is refused, in little memory."""
    plant(two / "epoch-00000002", state_safetensors=BOMBS[name])
    tracemalloc.start()
    try:
        falls_back(two, "")
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_files_too_large_to_read(two: Path, name: str) -> None:
    """A sparse terabyte file with a fitting manifest is refused before it is read."""
    path = two / "epoch-00000002"
    os.truncate(path / name, 1 << 42)
    body = json.loads((path / "manifest.json").read_bytes())
    body.pop("sha256")
    body["files"][name]["bytes"] = 1 << 42
    seal = hashlib.sha256(to_json(body)).hexdigest()
    (path / "manifest.json").write_bytes(to_json({**body, "sha256": seal}))
    started = time.monotonic()
    assert "at most" in falls_back(two, name)
    assert within(1.0, started)


@pytest.mark.parametrize(
    "files",
    [{"../../secret": "0"}, {"/etc/passwd": "0"}, {}, {"state.json": 5, "state.safetensors": 5}, [1], None],
    ids=str,
)
def test_manifests_that_name_other_files(two: Path, files: Any) -> None:
    """A sealed manifest may name exactly the two files of a checkpoint; anything else is refused."""
    path = two / "epoch-00000002" / "manifest.json"
    body = {"schema": 1, "written_by": "x", "epoch": 2, "files": files}
    path.write_bytes(to_json({**body, "sha256": hashlib.sha256(to_json(body)).hexdigest()}))
    falls_back(two, "")
    path.write_bytes(to_json({"schema": 0, "files": files}))
    falls_back(two, "")


def test_oversized_or_odd_manifests(two: Path) -> None:
    """A manifest of megabytes, of lists without end or of no schema is refused."""
    path = two / "epoch-00000002" / "manifest.json"
    for data in (
        b" " * (1 << 20),
        b"[" * 60_000,
        b"[]",
        b"{}",
        b'{"schema": true}',
        b'{"schema": -1}',
        b"\xff",
    ):
        path.write_bytes(data)
        falls_back(two, "manifest.json" if data not in (b"[]",) else "")


@pytest.mark.parametrize("name", ["../up", "a/../b", "/abs", "a\\b", "", "x" * 300, "nul\0", "__metadata__"])
def test_hostile_tensor_names_are_not_saved(tmp_path: Path, name: str) -> None:
    """What loading would refuse, saving refuses first."""
    with pytest.raises(ValueError, match="tensor name"):
        save(tmp_path, 1, {name: np.ones(1)}, {})
