"""How fast each arm is, measured before its budget is set: for `--match wall`."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.config import TrainConfig
from shoal.tasks.presets import without_budget

EPOCHS = 6
Say = Callable[[str], None]


def speeds_of(configs: Sequence[tuple[str, TrainConfig]], imports: Sequence[str], say: Say) -> dict[str, float]:
    """Steps per second of every arm, each trained alone for a few epochs, of which the first does not count."""
    from shoal.runs.folder import Run
    from shoal.training import train

    found = {}
    for name, config in configs:
        with tempfile.TemporaryDirectory() as folder:
            short = without_budget(config).replace(
                epochs=EPOCHS * config.ppo.update_interval, runs_dir=folder, name="pilot", target_return=None
            )
            train(config=short, imports=imports, stream=io.StringIO(), command="pilot of shoal compare")
            rows = Run.open("pilot", Path(folder)).metrics()
        first, last = rows[0], rows[-1]
        found[name] = (last["steps"] - first["steps"]) / (last["time/elapsed_s"] - first["time/elapsed_s"])
        say(f"pilot: {name}: {found[name]:,.0f} steps/s")
    return found
