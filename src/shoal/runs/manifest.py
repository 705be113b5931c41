"""A checkpoint's manifest: which files belong to it, how large they are, and their sha256."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.runs.disk import from_json, open_regular, read_bounded, sha256_of, to_json
from shoal.runs.provenance import shoal_version

SCHEMA = 1
STATE, META, MANIFEST = "state.safetensors", "state.json", "manifest.json"
MOST_MANIFEST_BYTES = 64 << 10

# `.replaced-` is the former checkpoint of an epoch that is saved once more: valid until the new one stands.
FOLDER_NAME = re.compile(r"(?P<replaced>\.replaced-)?epoch-(?P<epoch>[0-9]{8,15})(?(replaced)-[0-9a-f]+)")


class CheckpointError(RuntimeError):
    """A checkpoint could not be saved, or none that is present can be trusted."""


class NoCheckpoint(CheckpointError):
    """There is none at all: the run was stopped before its first save."""


class Damaged(Exception):
    """Why one checkpoint cannot be used."""


def describe(epoch: int, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The manifest of these files, sealed with a digest of itself."""
    entries = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in files.items()}
    body = {"schema": SCHEMA, "written_by": f"shoal {shoal_version()}", "epoch": epoch, "files": entries}
    return {**body, "sha256": hashlib.sha256(to_json(body)).hexdigest()}


def read(path: Path) -> dict[str, Any]:
    """The manifest of the checkpoint folder `path`."""
    raw = read_bounded(path / MANIFEST, MOST_MANIFEST_BYTES)
    try:
        manifest = from_json(raw)
    except ValueError as error:
        raise Damaged(f"{MANIFEST} is not readable: {error}") from None
    schema, writer = manifest.get("schema"), str(manifest.get("written_by", "an unknown version"))[:80]
    if type(schema) is not int or schema < 1:
        raise Damaged(f"{MANIFEST} has no schema number")
    # For ever, a manifest carries the digest of its own body.
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    if raw != to_json(manifest) or manifest.get("sha256") != hashlib.sha256(to_json(body)).hexdigest():
        raise Damaged(f"{MANIFEST}: sha256 mismatch (it claims schema {schema}, by {writer!r})")
    if schema > SCHEMA:
        raise CheckpointError(
            f"{path} was written by {writer!r} with checkpoint schema {schema}; this is shoal "
            f"{shoal_version()}, which reads up to schema {SCHEMA}. What to do: upgrade shoal"
        )
    return manifest


def verify(path: Path, sha256: str, size: int) -> None:
    """Raise `Damaged` unless the file has this size and digest."""
    with open_regular(path) as (handle, actual):
        if actual != size:
            raise Damaged(f"{path.name} has {actual:,} bytes, expected {size:,}")
        if sha256_of(handle) != sha256:
            raise Damaged(f"{path.name}: sha256 mismatch, its bytes are not those that were written")
