"""How many plans the neural oracle makes of a day, of which the best counts."""

from __future__ import annotations

import re
from typing import NamedTuple


class Decoding(NamedTuple):
    """Greedy plans, each of which takes the requests in another order, and plans that are drawn from the scores."""

    starts: int = 1
    samples: int = 0

    @staticmethod
    def of(words: str) -> Decoding:
        """What --oracle-decode says.

        >>> Decoding.of("greedy"), Decoding.of("best-of-8"), Decoding.of("sampled-8")
        (Decoding(starts=1, samples=0), Decoding(starts=8, samples=0), Decoding(starts=1, samples=7))
        """
        if words == "greedy":
            return GREEDY
        found = re.fullmatch(r"(best-of|sampled)-([1-9]\d{0,3})", words)
        if found is None:
            raise ValueError(
                f"expected --oracle-decode as greedy, best-of-N or sampled-N with N up to 9999, got {words!r}"
            )
        plans = int(found[2])
        return Decoding(plans) if found[1] == "best-of" else Decoding(1, plans - 1)


GREEDY = Decoding()
