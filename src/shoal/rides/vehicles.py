"""Which vehicle is which in two plans of the same day.

A plan numbers its vehicles as its search left them. They are all alike, so that a plan may be numbered anew: after the
vehicle of another plan that it shares most stops with. Then a vehicle keeps its number and colour before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations


def numbered_alike(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """`order` such that after[order[v]] is vehicle v: it shares with before[v] as many stops as may be.

    Two vehicles swap their numbers as long as more stops stay with their vehicle, or, where that makes no difference,
    as long as those that drive come first among those that are new.

    >>> numbered_alike([[0, 1], [2, 3], []], [[2, 4, 5, 3], [], [0, 1]])
    [2, 0, 1]
    """
    if len(before) != len(after):
        raise ValueError(f"expected plans of as many vehicles, got {len(before)} and {len(after)}")
    shared = [[len(set(old) & set(new)) for new in after] for old in before]
    drives = [bool(route) for route in after]

    def worth(place: int, vehicle: int) -> tuple[int, int]:
        return shared[place][vehicle], -place * drives[vehicle]

    def together(*pairs: tuple[int, int]) -> tuple[int, int]:
        stops, first = zip(*(worth(*pair) for pair in pairs), strict=True)
        return sum(stops), sum(first)

    order = list(range(len(after)))
    better = True
    while better:
        better = False
        for one, other in combinations(range(len(order)), 2):
            kept, swapped = (one, order[one]), (one, order[other])
            if together(swapped, (other, order[one])) > together(kept, (other, order[other])):
                order[one], order[other] = order[other], order[one]
                better = True
    return order
