"""Files of one JSON object per line, that a crash can tear only at their end."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.runs.disk import BINARY, CLOEXEC, from_json, write_all


def append(path: Path, row: Mapping[str, Any]) -> None:
    """Add one line in one write; NaN and infinities become null, their keys listed in "not_finite"."""
    not_finite: list[str] = []
    clean = {key: plain(value, key, not_finite) for key, value in row.items()}
    if not_finite:
        clean["not_finite"] = not_finite
    data = json.dumps(clean, allow_nan=False).encode() + b"\n"
    # Opened anew for each row (20 us): nothing to keep in step with truncation, forks and full disks.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | CLOEXEC | BINARY, 0o644)
    try:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        if end and _last_byte(descriptor, end) != b"\n":
            end = sum(len(line) + 1 for line in lines(path))
            os.ftruncate(descriptor, end)
            os.lseek(descriptor, end, os.SEEK_SET)
        try:
            write_all(descriptor, data)
        except OSError as error:
            os.ftruncate(descriptor, end)
            raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def _last_byte(descriptor: int, end: int) -> bytes:
    """Leaves the position at the end."""
    os.lseek(descriptor, end - 1, os.SEEK_SET)
    return os.read(descriptor, 1)


def lines(path: Path) -> list[bytes]:
    """The whole lines. A row and its newline are one write, so what follows the last newline was torn."""
    try:
        return path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []


def last(path: Path) -> dict[str, Any]:
    """The last whole row, read from the end of the file; {} if there is none."""
    size = path.stat().st_size if path.exists() else 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for most in (1 << 16, size):
            file.seek(max(0, size - most))
            whole = file.read().split(b"\n")[:-1]
            if len(whole) > 1 or (whole and most >= size):
                return from_json(whole[-1])
    return {}


def parse(path: Path) -> list[dict[str, Any]]:
    """The rows; a line that is not a JSON object is an error that names the line."""
    rows = []
    for number, line in enumerate(lines(path), start=1):
        try:
            rows.append(from_json(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}; it begins with {line[:60]!r}") from None
    return rows


def plain(value: Any, where: str, not_finite: list[str]) -> Any:
    """JSON's own types; a NaN or infinity becomes None and its key is added to `not_finite`.

    >>> found = []
    >>> plain([1.5, float("inf")], "loss", found), found
    ([1.5, None], ['loss[1]'])
    """
    if isinstance(value, dict):
        return {str(key): plain(item, f"{where}.{key}", not_finite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{index}]", not_finite) for index, item in enumerate(value)]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), where, not_finite)  # NumPy scalars and arrays, torch tensors
    if isinstance(value, float) and not math.isfinite(value):
        not_finite.append(where)
        return None
    return value
