"""What may be said of the plans of some weights: no more than the report in the card beside them bears out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from shoal.rides.routing.neural.weights import SHIPPED

_SAID_OF = 30  # requests a day


def standing(weights: Path | str = "") -> str:
    """A sentence for whoever trains with these weights (default: those that come with shoal)."""
    path = Path(weights) if weights else SHIPPED
    found = _report(path)
    if found is None:
        of = f" --weights {weights}" if weights else ""
        return (
            f"--oracle neural: nothing is known of the plans of {path.name}, its card has no report of it; "
            f"shoal rides oracle report{of} --card makes one"
        )
    failed = [claim for claim, holds in found["claims"].items() if not holds]
    if failed:
        return f"--oracle neural is experimental with {path.name}: its report does not show that it {failed[0]}"
    for part in found["sizes"]:
        if part["requests"] == _SAID_OF:
            gap = {row["oracle"]: row["gap_percent"] for row in part["plans"]}
            rest = ", ".join(f"{name} {gap[name]:.1f} %" for name in ("insertion", "incremental, 30") if name in gap)
            return (
                f"--oracle neural: with {path.name} routes of {_SAID_OF} requests are {gap['neural, greedy']:.1f} % "
                f"above the best known; {rest}"
            )
    return f"--oracle neural: the report of {path.name} bears out what it claims; none of it is of {_SAID_OF} requests"


def _report(path: Path) -> dict[str, Any] | None:
    """The report in the card, if it is about these very weights."""
    try:
        card = json.loads(path.with_suffix(".json").read_text())
        found: dict[str, Any] = card["report"]
        return found if found["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
