"""How a rider answers an offer: a logit whose coefficients depend on the hidden type, or the strict rule.

The uniform draw behind an answer (`Day.mood`) belongs to the day and the request: a rider accepts iff mood < P. Two
policies on the same day therefore get the same answers to the same offers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from shoal.rides.world.city import PURPOSES

Array = np.ndarray[Any, Any]

__all__ = ["ANSWER", "PURPOSES", "Kind", "accept_probability", "answer_probability", "rule_accepts"]


class Kind(IntEnum):
    """A rider's hidden flexibility type."""

    EARLY = 0  # would be picked up earlier, never dropped off later
    LATE = 1
    INFLEXIBLE = 2
    BOTH = 3


PRIOR = np.array([13, 8, 6, 3]) / 30.0  # of the types

# One answer, as the flexibility model reads it.
ANSWER = np.dtype(
    [
        ("rider", "i4"),
        ("purpose", "i1"),
        ("pickup_open_s", "i4"),  # as asked, seconds since midnight
        ("direct_s", "i4"),
        ("offer", "i1"),  # 0 to 15
        ("accepted", "i1"),
    ]
)

# By Kind: constant, loss per 10 minutes earlier, loss per 10 minutes later.
COEFFICIENTS = np.array([(2.6, 0.3, 1.95), (2.9, 2.4, 0.25), (-1.2, 0.8, 0.8), (3.0, 0.25, 0.25)])

# How often a trip has each purpose (riders.py makes diaries of this mix), and what that adds to the willingness:
# a doctor and an employer do not wait. Averages to 0 over the mix.
PURPOSE_MIX = np.array([0.30, 0.20, 0.10, 0.20, 0.20])
PURPOSE_EFFECT = np.array([-0.3, -0.5, -0.1, 0.4, 0.6])


def accept_probability(kind: Any, effect: Any, purpose: Any, earlier_min: Any, later_min: Any) -> Array:
    """P(accept), float64 of the arguments' broadcast shape; no change is always accepted.

    >>> print(accept_probability(Kind.BOTH, 0.0, 2, [0, 30], 0).round(3))
    [1.    0.896]
    """
    constant, per_earlier, per_later = np.moveaxis(COEFFICIENTS[np.asarray(kind)], -1, 0)
    earlier, later = np.asarray(earlier_min) / 10.0, np.asarray(later_min) / 10.0
    willing = constant - per_earlier * earlier - per_later * later + PURPOSE_EFFECT[np.asarray(purpose)] + effect
    return np.asarray(np.where((earlier == 0) & (later == 0), 1.0, 1.0 / (1.0 + np.exp(-willing))))


def rule_accepts(kind: Any, earlier_min: Any, later_min: Any) -> Array:
    """The strict rule, bool of the arguments' broadcast shape.

    >>> [bool(rule_accepts(kind, 10, 0)) for kind in Kind]
    [True, False, False, True]
    """
    kind = np.asarray(kind)
    earlier_ok = (np.asarray(earlier_min) == 0) | (kind == Kind.EARLY) | (kind == Kind.BOTH)
    later_ok = (np.asarray(later_min) == 0) | (kind == Kind.LATE) | (kind == Kind.BOTH)
    return np.asarray(earlier_ok & later_ok)


ACCEPTANCES = ("logit", "rule")


def answer_probability(
    acceptance: str, kind: Any, effect: Any, purpose: Any, earlier_min: Any, later_min: Any
) -> Array:
    """P(accept) under `--acceptance`: the logit, or the strict rule as 0.0 and 1.0."""
    if acceptance not in ACCEPTANCES:
        raise ValueError(f"expected acceptance to be one of {', '.join(ACCEPTANCES)}, got {acceptance!r}")
    if acceptance == "logit":
        return accept_probability(kind, effect, purpose, earlier_min, later_min)
    shape = np.broadcast(kind, effect, purpose, earlier_min, later_min).shape
    return np.broadcast_to(rule_accepts(kind, earlier_min, later_min), shape).astype(np.float64)
