"""Where the time of a run went: from the rows of its epochs, as a summary in its folder and as one bar on its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.runs.page import table, text

ELAPSED = "time/elapsed_s"


@dataclass(frozen=True)
class Share:
    """A part of a run's time: the name of its seconds in a row, what it is called, and its colours by day and night."""

    key: str
    label: str
    about: str
    light: str
    dark: str


# In the order of an epoch. Colours can be told apart by the colour-blind (Okabe and Ito), and each part is named.
SHARES = (
    Share("time/environment_s", "environment", "environments step, or are waited for", "#0072b2", "#56a5d8"),
    Share("time/oracle_s", "oracle", "what the environments ask a planner or solver", "#56b4e9", "#a3d8f7"),
    Share("time/acting_s", "acting", "the policy chooses actions, and what happened is kept", "#009e73", "#3cc79b"),
    Share("time/estimate_s", "estimating", "values, advantages, credit", "#e69f00", "#f0b840"),
    Share("time/update_s", "updating", "gradient steps", "#d55e00", "#ee8448"),
    Share("time/save_s", "saving", "checkpoints, rows, trackers", "#cc79a7", "#dd9dc0"),
)
OTHER = Share("time/other_s", "other", "callbacks, evaluations while it trains, the environments' own learning",
              "#8a939b", "#7d8790")  # fmt: skip


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
    pieces, rules, at = "", "", 0.0
    for share, seconds in parts:
        width = 100 * seconds / whole
        if width >= 0.05:
            label = f"{share.label}: {seconds:,.1f} s, {width:.0f} %"
            pieces += (
                f"<rect class='spent-{share.label}' x='{at:.2f}%' width='{width:.2f}%' height='26'>"
                f"<title>{text(label)}</title></rect>"
            )
        rules += f".spent-{share.label}{{fill:{share.light};background:{share.light}}}"
        rules += (
            f"@media screen and (prefers-color-scheme:dark){{.spent-{share.label}"
            f"{{fill:{share.dark};background:{share.dark}}}}}"
        )
        at += width
    said = ", ".join(f"{share.label} {100 * seconds / whole:.0f} %" for share, seconds in parts if seconds > 0)
    key = "".join(
        f"<li><span class='spent-{share.label}'></span>{text(share.label)} {100 * seconds / whole:.0f} %</li>"
        for share, seconds in parts
        if 100 * seconds / whole >= 0.05
    )
    rows = [[share.label, f"{seconds:,.1f}", f"{100 * seconds / whole:.1f}", share.about] for share, seconds in parts]
    return (
        f"<style>{rules}.spent{{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2rem 1rem}}"
        ".spent span{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}</style>"
        f"<svg role='img' aria-label='{text(said)}' width='100%' height='26' style='height:26px'>{pieces}</svg>"
        f"<ul class='spent'>{key}</ul>"
        f"<details><summary>seconds</summary>{table(['part', 'seconds', '%', 'what it is'], rows, wide=(3,))}</details>"
    )


def _seconds(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if fine and value is not None else 0.0
