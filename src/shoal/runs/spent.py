"""Where the time of a run went: from the rows of its epochs, as a summary in its folder and as one bar on its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.runs.charts import parts_bar
from shoal.runs.page import table

ELAPSED = "time/elapsed_s"


@dataclass(frozen=True)
class Share:
    """A part of a run's time: the name of its seconds in a row, what it is called, and what they are spent on."""

    key: str
    label: str
    about: str


# In the order of an epoch.
SHARES = (
    Share("time/environment_s", "environment", "environments step, or are waited for"),
    Share("time/oracle_s", "oracle", "what the environments ask a planner or solver"),
    Share("time/acting_s", "acting", "the policy chooses actions, and what happened is kept"),
    Share("time/estimate_s", "estimating", "values, advantages, credit"),
    Share("time/update_s", "updating", "gradient steps"),
    Share("time/save_s", "saving", "checkpoints, rows, trackers"),
)
OTHER = Share("time/other_s", "other", "callbacks, evaluations while it trains, the environments' own learning")


def spent(rows: Sequence[Mapping[str, Any]], saving_s: float = 0.0) -> dict[str, float]:
    """Seconds by part and in all (`elapsed_s`); nothing where the rows do not tell. `saving_s`: after the last row.

    >>> spent([{"time/elapsed_s": 5.0, "time/environment_s": 3.0, "time/update_s": 1.5}])["other_s"]
    0.5
    """
    if not any(SHARES[0].key in row for row in rows):
        return {}  # none yet, or of before this was measured
    found = {share.key: math.fsum(_seconds(row, share.key) for row in rows) for share in SHARES}
    found["time/environment_s"] = max(
        0.0, found["time/environment_s"] - found["time/oracle_s"]
    )  # apart from each other
    found["time/save_s"] += saving_s
    elapsed = _seconds(rows[-1], ELAPSED) + saving_s
    found[OTHER.key] = max(0.0, elapsed - math.fsum(found.values()))
    whole = {name.removeprefix("time/"): round(seconds, 6) for name, seconds in found.items()}
    return {**whole, "elapsed_s": round(elapsed, 6)}


def bar(found: Mapping[str, Any]) -> str:
    """One bar and its table, as markup; nothing where no time was measured."""
    parts = [(share, _seconds(found, share.key.removeprefix("time/"))) for share in (*SHARES, OTHER)]
    whole = sum(seconds for _, seconds in parts)
    if not whole > 0:
        return ""
    rows = [[share.label, f"{seconds:,.1f}", f"{100 * seconds / whole:.1f}", share.about] for share, seconds in parts]
    shown = parts_bar([(share.label, seconds) for share, seconds in parts if seconds > 0.0005 * whole], "s")
    figures = table(["part", "seconds", "%", "what it is"], rows, wide=(3,))
    return f"{shown}<details><summary>seconds</summary>{figures}</details>"


def _seconds(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fine and value is not None else 0.0
