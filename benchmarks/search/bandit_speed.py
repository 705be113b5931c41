"""What the bandit costs beside the trainings it chooses: seconds to say which of the 120 orders to pull next.

python -m benchmarks.search.bandit_speed [--store]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.search.surfaces import surface
from shoal.search.bandit.orders import all_ranks
from shoal.search.bandit.strategies import make

PULLS, SEARCHES = 20, 5


def rows(say: Callable[[str], None]) -> list[Row]:
    """CPU time of a whole search's choices, and of the dearest of them; a training takes 10 to 30 s."""
    points, whole_s, longest_s = all_ranks(5), [], []
    for seed in range(SEARCHES + 1):
        values, strategy = surface("mallows", seed), make("ucb", points, budget=PULLS, seed=seed)
        spent_s = []
        for _ in range(PULLS):
            began = time.process_time()
            item = strategy.ask()
            strategy.tell(item, float(values[item]), 0.1)
            spent_s.append(time.process_time() - began)
        if seed:  # the first one imports and warms up
            whole_s.append(sum(spent_s))
            longest_s.append(max(spent_s))
    say(f"choosing {PULLS} of {len(points)} orders: {statistics.median(whole_s):.2f} s CPU")
    name = f"GP-UCB over {len(points)} orders, CPU"
    return [
        Row(f"{name}: all choices of a search of {PULLS} pulls", statistics.median(whole_s), "s"),
        Row(f"{name}: the dearest choice", max(longest_s), "s"),
    ]


if __name__ == "__main__":
    stored.main("benchmarks.search.bandit_speed", rows, __doc__)
