"""Measured on this machine, backends and peers side by side: `shoal bench vector`, `ppo`, `cage2`, `rides`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

GROUPS = ("vector", "ppo", "cage2", "rides")


def run(
    group: str, *, full: bool = False, instances: str | None = None, say: Callable[[str], None] = lambda text: None
) -> list[dict[str, Any]]:
    """The rows of a group, as `--json` prints them; `say` hears of each measurement as it is made.

    Speed is measured now. What takes long to learn is read from benchmarks/results, or learnt again with `full`.
    `instances` is a folder with Li and Lim's files, for rides.
    """
    if group not in GROUPS:
        raise ValueError(f"expected a group of {', '.join(GROUPS)}, got {group!r}")
    if instances is not None and group != "rides":
        raise ValueError(f"--instances is for the group rides, got it with {group}")
    say(load_warning())
    if group == "vector":
        from shoal.bench import vector

        return [row.to_json() for row in vector.run(say)]
    if group == "cage2":
        from shoal.bench import cage2

        return [row.to_json() for row in cage2.run(say, full)]
    if group == "rides":
        from shoal.bench import rides

        return [row.to_json() for row in rides.run(say, full, instances)]
    from shoal.bench import ppo

    return [row.to_json() for row in ppo.run(say, full)]


def load_warning() -> str:
    """How busy this machine is with other things: every ratio to a peer with more processes suffers from it."""
    from shoal.runs.provenance import cores_usable

    load, cores = os.getloadavg()[0], cores_usable()
    busy = ": other programs are running, the figures will be off" if load > 0.25 * cores else ""
    return f"load {load:.2f} on {cores} cores before the measurement{busy}"
