"""Numbers for people: enough digits to tell two returns apart, a curve in one line."""

from __future__ import annotations

import itertools
import math
import os
import sys
import textwrap
from collections.abc import Collection, Sequence
from typing import Any

_BARS = "▁▂▃▄▅▆▇█"

ADVICE = {
    "ENOSPC": "free some space, or choose another folder with --runs-dir",
    "EDQUOT": "the disk quota is used up: free some space, or choose another folder with --runs-dir",
    "EROFS": "the file system is read-only: choose another folder with --runs-dir",
    "EACCES": "this user may not do that there: change the permissions or choose another folder with --runs-dir",
    "EPERM": "this user may not do that there: change the permissions or choose another folder with --runs-dir",
}


def decimals(*values: float | None) -> int:
    """Decimals that leave four significant digits in the largest of these: one for hundreds, three for ones.

    >>> decimals(475.0), decimals(0.75, 1.0), decimals(-0.054), decimals(2e-5), decimals()
    (1, 3, 5, 8, 1)
    """
    largest = max((abs(value) for value in values if value is not None and math.isfinite(value)), default=0.0)
    return min(max(3 - math.floor(math.log10(largest)), 1), 8) if largest > 0 else 1


def finite(value: Any) -> float | None:
    """A number that is one, of a file that anybody may have written.

    >>> finite(3), finite(float("nan")), finite("3")
    (3.0, None, None)
    """
    return (
        float(value) if isinstance(value, int | float) and -sys.float_info.max <= value <= sys.float_info.max else None
    )


def figure(value: float | None, places: int | None = None) -> str:
    """A return as text.

    >>> figure(21.5), figure(-0.0537), figure(12345.6), figure(None), figure(0.0)
    ('21.50', '-0.05370', '12,345.6', '-', '0.0')
    """
    if value is None:
        return "-"
    text = f"{value:,.{decimals(value) if places is None else places}f}"
    return text.removeprefix("-") if not text.strip("-0.,") else text  # no minus zero


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """A curve in one line; each character is the mean of its share of the values.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7])
    '▁▂▃▄▅▆▇█'
    >>> sparkline([3.0, 3.0]), sparkline([])
    ('▁▁', '')
    """
    width = min(width, len(values))
    edges = [len(values) * at // width for at in range(width + 1)] if width else []
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((mean - low) * scale)] for mean in means)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Rows of cells as lines, those of the columns `right` aligned there.

    >>> columns([("name", "steps"), ("a", "12")], right=(1,))
    ['name  steps', 'a        12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at in right else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def wrapped(text: str, width: int) -> str:
    """Lines that are too long, broken between words; a path longer than a line stays in one piece.

    >>> wrapped("one two three", 9)
    'one two\\n  three'
    """
    lines = [
        line
        if len(line) <= width
        else textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    ]
    return "\n".join(lines)


def explain(error: OSError) -> str:
    """What the system refused, which file it was, and what can be done about it.

    >>> explain(OSError(28, "No space left on device", "runs/a/status.json"))
    'runs/a/status.json: No space left on device. What to do: free some space, or choose another folder with --runs-dir'
    """
    import errno

    if error.strerror is None:
        return str(error)
    text = error.strerror if error.filename is None else f"{os.fsdecode(error.filename)}: {error.strerror}"
    advice = ADVICE.get(errno.errorcode.get(error.errno or 0, ""))
    return text if advice is None else f"{text}. What to do: {advice}"


def share_text(share: dict[str, Any] | None) -> str:
    """A share with its interval in per cent, which a normal interval may leave: it is cut at 0 and 100."""
    if not share or share.get("mean") is None:
        return "-"
    if share.get("low") is None:
        return f"{100 * share['mean']:.1f} %"
    low, high = max(0.0, share["low"]), min(1.0, share["high"])
    return f"{100 * share['mean']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
