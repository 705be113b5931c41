"""Measured on this machine, backends and peers side by side: `shoal bench vector`, `shoal bench ppo`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

GROUPS = ("vector", "ppo")


def run(group: str, *, full: bool = False, say: Callable[[str], None] = lambda text: None) -> list[dict[str, Any]]:
    """The rows of a group, as `--json` prints them; `say` hears of each measurement as it is made.

    Speed is measured now. What takes long to learn is read from benchmarks/results, or learnt again with `full`.
    """
    if group not in GROUPS:
        raise ValueError(f"expected a group of {', '.join(GROUPS)}, got {group!r}")
    if group == "vector":
        from shoal.bench import vector

        return [row.to_json() for row in vector.run(say)]
    from shoal.bench import ppo

    return [row.to_json() for row in ppo.run(say, full)]
