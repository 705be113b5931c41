"""Pulls until a top-5 % order: GP-UCB beside random search on synthetic surfaces over the 120 orders of five things.

    python -m benchmarks.search.bandit_synthetic [--store]

100 seeds, and 1,000 beside them: a median of 100 is good to a pull either way, and the target is a matter of one. Seed
s gives both strategies the same surface. Pulls carry normal noise of a tenth of the surface's standard deviation. The
settings of the search (beta, first length scale) were chosen on seeds from 1,000 on, not on these.
`position` and the rougher Mallows surfaces stand beside the targets: there an order tells less of its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.search.surfaces import pulls_to_top, surface
from shoal.evaluation import interval
from shoal.search.bandit.orders import all_ranks
from shoal.search.bandit.strategies import make

PLACE, NAME = "benchmarks.search.bandit_synthetic", "bandit_synthetic"
SEEDS, MANY_SEEDS = range(100), range(1000)
Say = Callable[[str], None]
CASES = (  # family, length scale, whether the targets are meant for it; 10 is the distance of an order and its reverse
    ("mallows", 10.0, True),
    ("precedence", 0.0, True),
    ("mallows", 5.0, False),
    ("mallows", 3.0, False),
    ("position", 0.0, False),
)


def contest(family: str, length_scale: float, seeds: range) -> dict[str, list[int]]:
    """Pulls of both strategies on the same surfaces."""
    points = all_ranks(5)
    pulls: dict[str, list[int]] = {"ucb": [], "random": []}
    for seed in seeds:
        values = surface(family, seed, length_scale=length_scale)
        for name, found in pulls.items():
            found.append(pulls_to_top(make(name, points, budget=len(points), seed=seed), values, seed))
    return pulls


def median_of_random(items: int, good: int) -> int:
    """Pulls without replacement after which one of the good ones has come up with probability a half."""
    missed, pulls = 1.0, 0
    while missed > 0.5:
        missed *= (items - good - pulls) / (items - pulls)
        pulls += 1
    return pulls


def measured(say: Say) -> list[Row]:
    """Two rows a family: the ratio of medians, and the upper end of the paired interval."""
    found = []
    for family, length_scale, judged in CASES:
        pulls = contest(family, length_scale, MANY_SEEDS if judged else SEEDS)
        label = f"{family}, length scale {length_scale:g}" if length_scale else family
        for seeds in (SEEDS, MANY_SEEDS) if judged else (SEEDS,):
            found += compared(label, pulls, seeds, judged and seeds == SEEDS, say)
    return found


def compared(label: str, pulls: dict[str, list[int]], seeds: range, judged: bool, say: Say) -> list[Row]:
    """The two rows, of so many of the seeds."""
    ucb, random = (np.array(pulls[name][: len(seeds)], float) for name in ("ucb", "random"))
    low, high = interval(ucb - random) or (None, None)
    detail = {
        "median_ucb": float(np.median(ucb)),
        "median_random": float(np.median(random)),
        "median_random_exact": median_of_random(len(all_ranks(5)), 6),  # over all permutations, not only these
        "ucb": ucb.astype(int).tolist(),
        "random": random.astype(int).tolist(),
    }
    ratio, mean = float(np.median(ucb) / np.median(random)), float((ucb - random).mean())
    medians = f"medians {np.median(ucb):g} and {np.median(random):g}"
    say(f"{label}, {len(seeds)} seeds: {medians}, difference {mean:.1f} [{low:.1f}, {high:.1f}]")
    name = f"pulls to a top-5 % order, {label}, {len(seeds):,} seeds"
    targets: list[dict[str, Any]] = [{"target": target, "better": "lower"} if judged else {} for target in (0.5, 0.0)]
    return [
        Row(f"{name}: median, GP-UCB over random", ratio, "ratio", detail=detail, seeds=seeds, **targets[0]),
        Row(f"{name}: paired mean difference, upper end", high, "pulls",
            detail={"mean": mean, "low": low, "high": high}, **targets[1]),
    ]  # fmt: skip


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; with `full` it is measured again."""
    return measured(say) if full else stored.read_rows(NAME, PLACE)


if __name__ == "__main__":
    stored.main(PLACE, measured, __doc__)
