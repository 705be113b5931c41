"""What the pulls say, in a sentence: which orders tie with the best, and what sets the others apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.search.folder import Record

MOST_NAMED = 2  # precedences that a sentence can bear
ENOUGH = 8  # orders pulled, from which on hardly any of the 12 precedences of four things splits them by chance


@dataclass(frozen=True)
class Group:
    """Orders pulled, split into those that cannot be told from the best and the rest. Items, best first."""

    tied: list[int]
    worse: list[int]
    level: float  # mean of the tied, weighted by their precision
    cost: float  # how far the mean of the worse lies below it


def group(records: Sequence[Record]) -> Group | None:
    """The orders that passed, by Tukey's comparison of all pairs at 95 %: the best was picked by its score, so a test
    of one pair would see differences where there are none. None without pulls that passed.
    """
    found: dict[int, list[Record]] = {}
    for record in records:
        if record.pull.passed:
            found.setdefault(record.request.item, []).append(record)
    if not found:
        return None
    means = {item: float(np.mean([r.pull.mean for r in told])) for item, told in found.items()}
    errors = {item: math.sqrt(sum(r.pull.se**2 for r in told)) / len(told) for item, told in found.items()}
    ranked = sorted(means, key=lambda item: -means[item])
    best, limit = ranked[0], _critical(len(ranked))
    tied = [i for i in ranked if means[best] - means[i] <= limit * math.hypot(errors[best], errors[i])]
    worse = [item for item in ranked if item not in tied]
    weights = np.array([1 / max(errors[item], 1e-12) ** 2 for item in tied])
    level = float(np.average([means[item] for item in tied], weights=weights))
    cost = level - float(np.mean([means[item] for item in worse])) if worse else 0.0
    return Group(tied, worse, level, cost)


def sentence(records: Sequence[Record], points: Array, things: Sequence[str]) -> str:
    """What was found, for people.

    `points` are the orders' rank vectors, `things` what they rank.
    """
    found = group(records)
    if found is None:
        return "No pull passed the gate: no order can be recommended."
    pulled = len(found.tied) + len(found.worse)
    if pulled == 1:
        return f"1 order passed, at {found.level:.2f}: nothing to compare it with."
    if not found.worse:
        return f"All {pulled} orders that passed tie near {found.level:.2f}: none can be told from the best."
    ties = f"{len(found.tied)} of {pulled} orders tie near {found.level:.2f}"
    if len(found.tied) == 1:
        ties = f"1 of {pulled} orders is ahead of all others, at {found.level:.2f}"
    return f"{ties}; {_what_costs(found, points, things)}."


def _what_costs(found: Group, points: Array, things: Sequence[str]) -> str:
    """What all of the worse orders share and none of the tied has: the first thing, or a precedence."""
    costs = f"costs {found.cost:.2f}" + (" on average" if len(found.worse) > 1 else "")
    first = {int(points[item].argmin()) for item in found.worse}
    if len(first) == 1 and not any(points[item].argmin() in first for item in found.tied):
        ranks = f"{things[first.pop()]} first {costs}"
        pairs = _shared(found, points)
        return f"{ranks}; the pulls do not tell which of its precedences does it" if pairs else ranks
    pairs = _shared(found, points)
    named = " or ".join(f"{things[a]} before {things[b]}" for a, b in pairs)
    if len(pairs) == 1:
        few = len(found.worse) + len(found.tied) < ENOUGH
        return f"{named} {costs}" + (", if that is why: the pulls are few" if few else "")
    if 1 < len(pairs) <= MOST_NAMED:
        return f"{named} {costs} (the pulls do not tell which)"
    others = "the other is" if len(found.worse) == 1 else f"the other {len(found.worse)} are on average"
    why = "more than one precedence may be why" if pairs else "no single precedence explains it"
    return f"{others} {found.cost:.2f} below, and {why}"


def _shared(found: Group, points: Array) -> list[tuple[int, int]]:
    """Precedences (a, b) that all of the worse have and none of the tied."""
    count = points.shape[1]

    def before(item: int, a: int, b: int) -> bool:
        return bool(points[item][a] < points[item][b])

    return [
        (a, b)
        for a in range(count)
        for b in range(count)
        if a != b
        and all(before(item, a, b) for item in found.worse)
        and not any(before(item, a, b) for item in found.tied)
    ]


def _critical(count: int) -> float:
    """Standard errors of a difference that two of `count` alike orders exceed in 5 % of searches."""
    if count < 2:
        return 0.0
    from scipy.stats import studentized_range

    return float(studentized_range.ppf(0.95, count, 1e6)) / math.sqrt(2)


def percent(share: float) -> str:
    """A share that is not all is never shown as all, nor one that is not nothing as nothing.

    >>> [percent(share) for share in (0.0, 0.004, 0.96, 0.997, 1.0)]
    ['0 %', 'under 1 %', '96 %', 'over 99 %', '100 %']
    """
    if 0 < share < 0.005:
        return "under 1 %"
    if 0.995 <= share < 1:
        return "over 99 %"
    return f"{100 * share:.0f} %"


def p_value(p: float) -> str:
    """A p-value as it is printed.

    >>> p_value(4e-33), p_value(0.0413)
    ('p < 0.001', 'p = 0.041')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def conduct_line(compliance: dict[str, Any] | None, judged: str) -> str | None:
    """How the best kept to its order; `judged` is what a domain counts (fixes, visits)."""
    if not compliance or compliance.get("mean") is None:
        return None
    if compliance.get("low") is None:
        return f"{100 * compliance['mean']:.1f} % of its {judged}"
    low, high = max(0.0, compliance["low"]), min(1.0, compliance["high"])
    return f"{100 * compliance['mean']:.1f} % of its {judged}, 95 % interval [{100 * low:.1f}, {100 * high:.1f}]"
