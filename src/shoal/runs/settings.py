"""The settings of a training run as its folder has them, of this version or an older one."""

from __future__ import annotations

from typing import Any

from shoal.core.records import MISSING, expect
from shoal.runs.folder import Run

_READ: dict[str, Any] = {  # what pages and comparisons rely on; all else is only shown
    "task": str,
    "vector": dict[str, Any],
    "ppo": dict[str, Any],
    "run": dict[str, Any],
    "vector.num_envs": int,
    "run.seed": int,
}


def settings(run: Run) -> dict[str, Any]:
    """config.json of a training run; ValueError where it cannot be one."""
    config = run.config
    for name, hint in _READ.items():
        group, _, inner = name.rpartition(".")
        values = config[group] if group else config
        expect(values.get(inner, MISSING), hint, name, str(run.path / "config.json"))
    return config
