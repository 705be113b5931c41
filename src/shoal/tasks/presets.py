"""Settings that work, by environment. `shoal train ID` starts from these; flags given by hand win.

A preset is what differs from the defaults of `shoal.config`. Found by search on the training stream of seeds, confirmed
on others (tests/learning).
"""

from __future__ import annotations

from typing import Any

DEFAULT: dict[str, Any] = {"steps": 500_000}

PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"num_envs": 8, "steps": 500_000, "target_return": 475.0},
}


def preset(task: str) -> dict[str, Any]:
    """Options for a task, as flat names."""
    return {**DEFAULT, **PRESETS.get(task, {})}
