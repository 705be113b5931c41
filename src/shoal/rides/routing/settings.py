"""What the kernels are told: the limits of the problem, and how hard to search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shoal.rides.routing.problem import Problem

MAX_SECONDS = 2**30  # times are int32 in the kernels, and sums of two must fit


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


def kernel_limits(problem: Problem) -> np.ndarray[Any, Any]:
    """The entries of `limits` in schedule.py, int64[4]."""
    if problem.close_s > MAX_SECONDS or problem.travel_s.max() > MAX_SECONDS // 4:
        raise ValueError(
            f"expected times up to {MAX_SECONDS} and legs up to {MAX_SECONDS // 4}, got a depot that closes at "
            f"{problem.close_s} and legs of up to {problem.travel_s.max()}; use a larger unit"
        )
    return np.array([problem.depot, problem.open_s, problem.close_s, problem.capacity], np.int64)
