"""Is the routing oracle good enough, how fast are environment and training, how fast is an offer?

python -m benchmarks.rides.rides_bench [--instances DIR] [--store]

DIR holds Li and Lim's lc101.txt, lc201.txt, lr101.txt, lr201.txt, which are not part of shoal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides import oracle, speed


def rows(say: Callable[[str], None], full: bool = False, instances: str | Path | None = None) -> list[Row]:
    """All rows; with `full` the oracle is compared with plans searched for anew."""
    return [*oracle.rows(say, full, instances), *speed.rows(say)]


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--instances")
    given = parser.parse_args()
    place = "benchmarks.rides.rides_bench"
    stored.measure(place, lambda say: rows(say, instances=given.instances), stored.storing(given))


if __name__ == "__main__":
    main()
