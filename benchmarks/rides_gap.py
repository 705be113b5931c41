"""What `shoal bench rides` compares the routing oracle with: best known plans, best offers, peaks that can be driven.

    python benchmarks/rides_gap.py [--days 24] [--seconds 60] [--states 48] [--peaks 60] [--workers 2]

Stores after every piece and goes on where it was stopped. The specification's best known is of 60 s of PyVRP with each
of three seeds and of everything else that was run; days with shorter searches stored are searched again when more
seconds are asked for, and never lose their best plan.
"""

import argparse

from shoal.bench import rides_oracle, rides_truth, stored
from shoal.bench.rows import Row


def keep(known: rides_truth.Truth, rows: list[Row]) -> None:
    """Store what there is."""
    parts = {name: known[name] for name in rides_truth.empty()}
    stored.write(rides_truth.NAME, f"python benchmarks/{rides_truth.NAME}.py", rows, **parts)


def compared(known: rides_truth.Truth) -> list[Row]:
    """The oracle of today beside it."""
    say = stored.print_line
    return rides_oracle.gap(known, say) + rides_oracle.menu_choice(known, say) + rides_oracle.peak(known, say)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=rides_truth.DAYS)
    parser.add_argument("--seconds", type=float, default=rides_truth.PYVRP_S)
    parser.add_argument("--states", type=int, default=rides_truth.STATES)
    parser.add_argument("--peaks", type=int, default=rides_truth.PEAKS)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    known = {**rides_truth.empty(), **(stored.read(rides_truth.NAME) or {})}
    counts = {"days": given.days, "states": given.states, "peaks": given.peaks}
    more = {"pyvrp_s": given.seconds, "workers": given.workers}
    rides_truth.missing(known, stored.print_line, lambda found: keep(found, []), **counts, **more)
    keep(known, compared(known))
