"""Checkpoints that survive kill -9, a full disk, a flipped bit and a hostile file.

A checkpoint is a folder `epoch-00000012` with `state.safetensors` (arrays), `state.json` (everything
else) and `manifest.json` (sizes and sha256 of the two, and of itself). It is written under a temporary
name, forced to disk, read back and compared, and only then renamed; older ones are deleted last. So a
folder with the final name is whole, or something else damaged it, which loading notices. Nothing is
ever unpickled.

Fault points for tests, see `disk.fault_point`: checkpoint:after-write, checkpoint:before-manifest,
checkpoint:after-manifest, checkpoint:before-rename, checkpoint:between-renames, checkpoint:before-prune.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import sys
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.runs import manifest
from shoal.runs import tensors as arrays
from shoal.runs.disk import (
    TEMPORARY,
    fault_point,
    from_json,
    open_regular,
    read_bounded,
    sync_folder,
    temporary_beside,
    to_json,
    write_new,
)
from shoal.runs.manifest import (
    FOLDER_NAME,
    MANIFEST,
    META,
    SCHEMA,
    STATE,
    CheckpointError,
    Damaged,
    NoCheckpoint,
    verify,
)
from shoal.runs.provenance import memory_bytes

__all__ = ["SCHEMA", "Checkpoint", "CheckpointError", "NoCheckpoint", "load_latest", "save"]

MOST_JSON_BYTES = 8 << 20

_ADVICE = {
    errno.ENOSPC: "free some space, or choose another folder with --checkpoint-dir",
    errno.EDQUOT: "the disk quota is used up: free some space, or choose another --checkpoint-dir",
    errno.EROFS: "the file system is read-only: choose another folder with --checkpoint-dir",
    errno.EACCES: "this user may not write there: change the permissions or choose another --checkpoint-dir",
}


@dataclass(frozen=True)
class Checkpoint:
    """What `load_latest` found; `skipped` names each newer one that could not be used, and why."""

    epoch: int
    tensors: dict[str, np.ndarray[Any, Any]]
    meta: dict[str, Any]
    path: Path
    skipped: list[str] = field(default_factory=list)


def save(
    folder: Path,
    epoch: int,
    tensors: Mapping[str, np.ndarray[Any, Any]],
    meta: Mapping[str, Any],
    *,
    keep: int = 3,
    also: Collection[int] = (),
) -> Path:
    """Save one checkpoint and keep the newest `keep` and those of the epochs `also`; a failure leaves all older ones as
    they were.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> save(folder, 12, {"w": np.ones(3)}, {"lr": 0.1}).name
    'epoch-00000012'
    >>> load_latest(folder).meta
    {'lr': 0.1}
    """
    if epoch < 0 or keep < 1:
        raise ValueError(f"expected epoch >= 0 and keep >= 1, got epoch={epoch}, keep={keep}")
    files = {STATE: arrays.pack(tensors), META: to_json(dict(meta))}
    if len(files[META]) > MOST_JSON_BYTES:
        raise ValueError(f"meta is {len(files[META]):,} bytes of JSON, limit {MOST_JSON_BYTES:,}: use arrays")
    final = folder / f"epoch-{epoch:08d}"
    temporary = temporary_beside(final)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        temporary.mkdir()
        for name, data in files.items():
            write_new(temporary / name, data)
        fault_point("checkpoint:after-write", epoch)
        sealed = to_json(manifest.describe(epoch, files))
        fault_point("checkpoint:before-manifest", epoch)
        write_new(temporary / MANIFEST, sealed)
        sync_folder(temporary)
        fault_point("checkpoint:after-manifest", epoch)
        for name, data in {**files, MANIFEST: sealed}.items():
            verify(temporary / name, hashlib.sha256(data).hexdigest(), len(data))
        fault_point("checkpoint:before-rename", epoch)
        _publish(temporary, final, epoch)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "unknown")
        advice = _ADVICE.get(error.errno or 0, "see what this file system reports")
        raise CheckpointError(
            f"the checkpoint of epoch {epoch} was not saved: {error.filename or temporary}: "
            f"{error.strerror} ({code}). Older checkpoints are untouched. What to do: {advice}"
        ) from error
    except Damaged as error:
        raise CheckpointError(
            f"the checkpoint of epoch {epoch} was not saved: read back from {folder}, {error}. Older "
            "checkpoints are untouched. What to do: check this disk, or choose another --checkpoint-dir"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    fault_point("checkpoint:before-prune", epoch)
    _prune(folder, epoch, keep, also)
    return final


def load(folder: Path, epoch: int) -> Checkpoint:
    """The checkpoint of one epoch; CheckpointError names those that there are."""
    found = dict(_checkpoints(folder))
    if epoch not in found:
        there = ", ".join(str(number) for number in sorted(found)) or "none"
        raise CheckpointError(f"{folder} holds no checkpoint of epoch {epoch}; there are: {there}")
    try:
        tensors, meta = _read(found[epoch], epoch)
    except Damaged as error:
        raise CheckpointError(f"{found[epoch]}: {error}") from None
    return Checkpoint(epoch, tensors, meta, found[epoch], [])


def epochs(folder: Path) -> list[int]:
    """Epochs of which there is a checkpoint, oldest first; whether they are whole is not checked."""
    return sorted(number for number, _ in _checkpoints(folder))


def load_latest(folder: Path) -> Checkpoint:
    """The newest checkpoint whose every byte checks out. Print `skipped` loudly."""
    while True:
        skipped: list[str] = []
        try:
            found = _checkpoints(folder)
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be read: {error.strerror}") from error
        for epoch, path in found:
            try:
                tensors, meta = _read(path, epoch)
            except Damaged as error:
                skipped.append(f"{path.name}: {error}")
            else:
                return Checkpoint(epoch, tensors, meta, path, skipped)
        if not found:
            raise NoCheckpoint(f"{folder} holds no checkpoint: the run ended before its first save. Start a new run")
        if _checkpoints(folder) == found:
            break
        # Otherwise whoever is training saved a newer one and deleted those that we had listed: look again.
    reasons = "\n  ".join(skipped)
    raise CheckpointError(
        f"no checkpoint in {folder} can be used, and a run is never silently begun anew:\n  {reasons}\n"
        "What to do: restore one from a backup, or start another run"
    )


def _read(path: Path, epoch: int) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    try:
        claimed = manifest.read(path)
        if claimed["epoch"] != epoch:
            raise Damaged(f"{MANIFEST} belongs to epoch {claimed['epoch']}: files were swapped")
        if sorted(claimed["files"]) != [META, STATE]:
            raise Damaged(f"{MANIFEST} names {sorted(claimed['files'])}, expected {[META, STATE]}")
        for name, (most_bytes, entry) in {
            META: (MOST_JSON_BYTES, claimed["files"][META]),
            STATE: (memory_bytes() or sys.maxsize, claimed["files"][STATE]),  # a larger one cannot be loaded
        }.items():
            if entry["bytes"] > most_bytes:
                raise Damaged(f"{name} has {entry['bytes']:,} bytes, at most {most_bytes:,} are read here")
            verify(path / name, entry["sha256"], entry["bytes"])
        meta = from_json(read_bounded(path / META, MOST_JSON_BYTES))
        with open_regular(path / STATE) as (handle, size):
            return arrays.unpack(handle, size), meta
    except FileNotFoundError as error:
        raise Damaged(f"{Path(error.filename).name} is missing") from None
    except OSError as error:
        raise Damaged(f"{Path(error.filename or path).name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Everything that bears a checkpoint's name, newest first, a replaced one after its replacement."""
    found: list[tuple[int, bool, Path]] = []
    for path in folder.iterdir() if folder.is_dir() else ():
        if name := FOLDER_NAME.fullmatch(path.name):
            found.append((int(name["epoch"]), not name["replaced"], path))
    return [(epoch, path) for epoch, _, path in sorted(found, reverse=True)]


def _publish(temporary: Path, final: Path, epoch: int) -> None:
    replaced = final.with_name(f".replaced-{final.name}-{secrets.token_hex(4)}")
    if final.exists():
        os.rename(final, replaced)
        fault_point("checkpoint:between-renames", epoch)
    try:
        os.rename(temporary, final)
    except OSError:
        if replaced.exists():
            os.rename(replaced, final)
        raise
    sync_folder(final.parent)


def _prune(folder: Path, epoch: int, keep: int, also: Collection[int]) -> None:
    """Delete what the checkpoint of `epoch` makes superfluous. A newer, damaged one is left as it is."""
    older = [path for number, path in _checkpoints(folder) if number < epoch and path.name[0] != "."]
    replaced = [path for number, path in _checkpoints(folder) if number <= epoch and path.name[0] == "."]
    spared = {f"epoch-{number:08d}" for number in also}
    try:
        for path in (*(path for path in older[keep - 1 :] if path.name not in spared), *replaced):
            # Renamed first: a kill amid the deletion must not leave half a checkpoint under a real name.
            os.rename(path, temporary_beside(path))
        _sweep(folder)
    except OSError as error:
        warnings.warn(f"old checkpoints in {folder} could not be deleted: {error}", stacklevel=3)


def _sweep(folder: Path) -> None:
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
