"""`shoal cage2 ...`: functions that return data; the command line prints them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from shoal.tasks.cage2 import contest, leaderboard, view
from shoal.tasks.cage2.minds import REDS
from shoal.tasks.cage2.replay import replay as replay_files


def replay(files: Iterable[str | Path]) -> dict[str, Any]:
    """Replay recordings of the real CybORG: steps, mismatches by field, the first one with both states."""
    return asdict(replay_files(files))


def replay_lines(report: dict[str, Any]) -> list[str]:
    """The report of `replay` for people."""
    lines = [
        f"{name}: {found['steps']} steps, red {found['red']}, {found['mismatches']} mismatches"
        for name, found in report["files"].items()
    ]
    lines.append(f"total: {report['steps']} steps, {report['mismatches']} mismatches")
    lines += [f"  {field}: {count} steps" for field, count in report["by_field"].items()]
    first = report["first"]
    if first is not None:
        lines.append(f"first mismatch: {first['file']}, episode {first['episode']}, step {first['step']}")
        lines.append(f"  fields: {', '.join(first['fields'])}")
        for name, value in first["recorded"].items():
            simulated = first["simulated"][name]
            lines.append(f"  {' ' if value == simulated else '!'} {name}: recorded {value}, simulated {simulated}")
    return lines


def play(act: Callable[[Any, np.ndarray], np.ndarray] | str, **options: Any) -> dict[str, Any]:
    """One episode in words and as picture data; `act` and `options` as in `view.record`."""
    episode = view.record(act, **options)
    return {
        "red": episode.red,
        "total": episode.total,
        "lines": view.in_words(episode),
        "picture": view.picture(episode),
    }


def score(defender: str, episodes: int = 4000, seed: int = 0) -> dict[str, Any]:
    """A baseline's nine cells and sum, beside the published rows."""
    return leaderboard.summarise({red: contest.play(defender, red, episodes, seed) for red in REDS})


def score_policy(
    act: Callable[[Any, np.ndarray], np.ndarray], episodes: int = 4000, seed: int = 0, **options: Any
) -> dict[str, Any]:
    """The same for any policy; `act` and `options` as in `leaderboard.rollout`."""
    return leaderboard.summarise({red: leaderboard.rollout(act, red, episodes, seed, **options) for red in REDS})
