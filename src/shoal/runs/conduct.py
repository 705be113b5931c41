"""Results as sentences, the same ones in the terminal and on the page."""

from __future__ import annotations

from typing import Any


def conduct_line(conduct: dict[str, Any]) -> str:
    """How a defender kept to its order, in one line.

    >>> share = {"mean": 0.9, "low": 0.8, "high": 1.02, "episodes": 7}
    >>> line = conduct_line({"compliance": share, "coverage": share, "wasted": share, "compliant": 63, "violations": 7})
    >>> line.split(", ")[0], line.split("; ")[1]
    ('means over episodes: compliance 90.0 % [80.0', '63 of all 70 judged fixes kept to the order')
    """
    names = {"compliance": "compliance", "coverage": "coverage", "wasted": "wasted fixes"}
    parts = [f"{word} {share_text(conduct[name])}" for name, word in names.items()]
    judged = conduct["compliant"] + conduct["violations"]
    whole = f"{conduct['compliant']:,} of all {judged:,} judged fixes kept to the order"
    return f"means over episodes: {', '.join(parts)}; {whole}"


def share_text(share: dict[str, Any] | None) -> str:
    """A share with its interval in per cent, which a normal interval may leave: it is cut at 0 and 100."""
    if not share or share.get("mean") is None:
        return "-"
    if share.get("low") is None:
        return f"{100 * share['mean']:.1f} %"
    low, high = max(0.0, share["low"]), min(1.0, share["high"])
    return f"{100 * share['mean']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
