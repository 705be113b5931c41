"""How fast each arm is, measured before its budget is set: for `--match wall`."""

from __future__ import annotations

import io
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.config import TrainConfig
from shoal.tasks.presets import without_budget

EPOCHS = 6  # of the first look, of which the first epoch does not count
TURNS, TURN_S = 3, 2.0  # the arms take turns, each for so long: a busy moment then slows all of them
Say = Callable[[str], None]


def speeds_of(configs: Sequence[tuple[str, TrainConfig]], imports: Sequence[str], say: Say) -> dict[str, float]:
    """Steps per second of every arm, each trained alone: the median over turns."""
    epochs, found = {}, {}
    for name, config in configs:
        epochs[name] = max(EPOCHS, math.ceil(TURN_S / _speed(config, EPOCHS, imports)[1]) + 1)
    turns = [{name: _speed(config, epochs[name], imports)[0] for name, config in configs} for _ in range(TURNS)]
    for name, _ in configs:
        speeds = sorted(turn[name] for turn in turns)
        found[name] = statistics.median(speeds)
        say(f"pilot: {name}: {found[name]:,.0f} steps/s ({speeds[0]:,.0f} to {speeds[-1]:,.0f} in {TURNS} turns)")
    return found


def _speed(config: TrainConfig, epochs: int, imports: Sequence[str]) -> tuple[float, float]:
    """Steps per second, and seconds of an epoch."""
    from shoal.runs.folder import Run
    from shoal.training import train

    with tempfile.TemporaryDirectory() as folder:
        short = without_budget(config).replace(
            epochs=epochs * config.ppo.update_interval, runs_dir=folder, name="pilot", target_return=None
        )
        train(config=short, imports=imports, stream=io.StringIO(), command="pilot of shoal compare")
        rows = Run.open("pilot", Path(folder)).metrics()
    first, last = rows[0], rows[-1]
    seconds = last["time/elapsed_s"] - first["time/elapsed_s"]
    return (last["steps"] - first["steps"]) / seconds, seconds / (len(rows) - 1)
