"""How hard the search tries: one setting for many small improvements, one for few thorough ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Effort(NamedTuple):
    """Heat and margin are parts of the median travel time between stops, so that they suit any unit."""

    heat: float  # how much longer a plan may be and still be accepted on the way to a better one
    margin: float  # how much longer it may be and still be worth exchanging tails
    strings: int  # routes that one ruin touches, at most
    longest: int  # requests that it takes out of each, at most


QUICK = Effort(0.05, 2.0, 3, 4)
THOROUGH = Effort(0.5, 2.0, 3, 12)


def search_settings(travel_s: np.ndarray[Any, Any], effort: Effort) -> tuple[int, int, int, int]:
    """(heat seconds, margin seconds, strings, longest) for the kernels."""
    legs_s = travel_s[travel_s > 0]
    typical_s = float(np.median(legs_s)) if legs_s.size else 1.0
    return int(effort.heat * typical_s), int(effort.margin * typical_s), effort.strings, effort.longest
