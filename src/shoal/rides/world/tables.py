"""Tables in CSV files, read so that every complaint says file, row, column, what was expected and what came.

Rows count as a spreadsheet shows them: the first line of the file is row 1.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

MAX_BYTES = 256 * 1024 * 1024
_DECIMAL_COMMA = re.compile(r"-?\d+,\d+")


_LONGEST = 300  # of what a file holds, in a message


class Notice(UserWarning):
    """What a user should know; the work goes on."""


class FileError(ValueError):
    """A file of the user's that cannot be used, and why."""


def refuse(path: Path, expected: str, got: str, row: int | None = None, column: str | int | None = None) -> NoReturn:
    """Raise the one form of complaint that all files get."""
    where = str(path)
    where += f", row {row}" if row is not None else ""
    where += f", column {column}" if column is not None else ""
    raise FileError(f"{where}: expected {expected}, got {got if len(got) <= _LONGEST else got[:_LONGEST] + '...'}")


def read_cells(path: Path | str) -> list[list[str]]:
    """All rows of a CSV file, cells stripped; empty lines at the end are dropped.

    Spreadsheets write semicolons between the cells, and commas in the numbers, where the comma is the decimal mark.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            refuse(path, f"at most {MAX_BYTES >> 20} MiB", f"{path.stat().st_size >> 20} MiB")
        text = path.read_bytes().decode("utf-8-sig")  # spreadsheets like to write a byte order mark
    except OSError as error:
        raise FileError(f"{path}: expected a readable CSV file, got: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: expected text in UTF-8, got the byte {error.object[error.start]:#x} "
                        f"at position {error.start}: save it as CSV in UTF-8") from error  # fmt: skip
    rows: list[list[str]] = []
    first = text.partition("\n")[0]
    mark = ";" if first.count(";") > first.count(",") else ","
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    try:
        for cells in reader:
            rows.append([cell.strip() for cell in cells])
            if mark == ";":
                rows[-1] = [c.replace(",", ".") if _DECIMAL_COMMA.fullmatch(c) else c for c in rows[-1]]
    except csv.Error as error:
        raise FileError(f"{path}, row {len(rows) + 1}: expected comma-separated values, got: {error}") from error
    while rows and not any(rows[-1]):
        rows.pop()
    if not rows:
        refuse(path, "a table", "an empty file")
    return rows


def real(path: Path, row: int, column: str | int, cell: str, what: str = "a number") -> float:
    """A finite number."""
    try:
        value = float(cell)
    except ValueError:
        refuse(path, what, repr(cell), row, column)
    if not math.isfinite(value):
        refuse(path, f"{what}, finite", repr(cell), row, column)
    return value


class Table:
    """A CSV file with a header: `table[row, "home"]` is a cell's text, rows from 0.

    Columns that nobody asked for are the user's own (a telephone number, a note): `others` gives them as they are.
    """

    def __init__(self, path: Path | str, required: Sequence[str], optional: Sequence[str] = ()) -> None:
        self.path = Path(path)
        header, *self._rows = read_cells(self.path)
        known = [*required, *optional]
        for at, name in enumerate(header):
            if name in header[:at]:
                refuse(self.path, "every column once", f"{name!r} again", 1, at + 1)
            meant = difflib.get_close_matches(name, [one for one in known if one not in header], 1, cutoff=0.75)
            if name not in known and meant:  # a slip must not turn a column off in silence
                refuse(self.path, f"the column {meant[0]!r}, or a name less like it", repr(name), 1, at + 1)
        for name in required:
            if name not in header:
                refuse(self.path, f"a column {name!r}", f"only {', '.join(header)}", 1)
        for at, cells in enumerate(self._rows):
            if len(cells) != len(header):
                refuse(self.path, f"{len(header)} cells, as in the header", str(len(cells)), at + 2)
        if not self._rows:
            refuse(self.path, "rows under the header", "none")
        self._column = {name: at for at, name in enumerate(header)}
        self._others = [name for name in header if name and name not in known]

    def others(self, row: int) -> dict[str, str]:
        """The cells of the user's own columns."""
        return {name: self[row, name] for name in self._others}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, column: str) -> bool:
        return column in self._column

    def __getitem__(self, at: tuple[int, str]) -> str:
        row, column = at
        return self._rows[row][self._column[column]]

    def refuse(self, row: int, column: str, expected: str, got: str | None = None) -> NoReturn:
        """Complain about one cell."""
        refuse(self.path, expected, repr(self[row, column]) if got is None else got, row + 2, column)

    def real(self, row: int, column: str) -> float:
        """A finite number."""
        return real(self.path, row + 2, column, self[row, column])

    def whole(self, row: int, column: str, low: int, high: int, what: str = "a whole number") -> int:
        """A whole number from low to high."""
        try:
            value = int(self[row, column])
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            self.refuse(row, column, f"{what} from {low} to {high}")
        return value

    def choice(self, row: int, column: str, names: Sequence[str]) -> int:
        """The position of one of the names."""
        if self[row, column] not in names:
            self.refuse(row, column, f"one of {', '.join(names)}")
        return names.index(self[row, column])

    def time_s(self, row: int, column: str) -> int:
        """A time of day as H:MM or H:MM:SS (hours may pass 24), in seconds since midnight."""
        parts = self[row, column].split(":")
        fits = len(parts) in (2, 3) and all(part.isascii() and part.isdigit() and len(part) <= 2 for part in parts)
        if not fits or any(int(part) > 59 for part in parts[1:]):
            self.refuse(row, column, "a time of day such as 7:30 or 7:30:15")
        hours, minutes, seconds = (int(part) for part in (*parts, "0")[:3])
        return 3600 * hours + 60 * minutes + seconds


def clock(time_s: int) -> str:
    """Seconds since midnight as H:MM, with seconds where there are any.

    >>> clock(27000), clock(86415)
    ('7:30', '24:00:15')
    """
    hours, rest = divmod(int(time_s), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}" + (f":{seconds:02}" if seconds else "")


def minute(time_s: float) -> str:
    """The minute of the day as HH:MM: what one tells a rider or a driver.

    >>> minute(29054), minute(86400)
    ('08:04', '24:00')
    """
    hours, rest = divmod(int(time_s), 3600)
    return f"{hours:02}:{rest // 60:02}"


def write_table(path: Path | str, rows: Iterable[Sequence[Any]]) -> None:
    """Write a CSV file whole or not at all: a reader, or a crash midway, meets the old file or the new one."""
    path = Path(path)
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(temporary, "x", encoding="utf-8", newline="") as file:
            file.write(buffer.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileError(f"{path}: expected to be able to write here, got: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
