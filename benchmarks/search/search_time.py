"""The whole search of 20 pulls over the 120 orders, with its report: minutes on this machine.

python -m benchmarks.search.search_time [--red bline] [--parallel 2] [--store]
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.search.loop import SearchResult, search
from shoal.search.options import SearchConfig

PLACE, NAME = "benchmarks.search.search_time", "search_time"


def summarise(found: SearchResult, red: str, parallel: int) -> list[Row]:
    """Minutes of wall and of CPU, and what came of it."""
    load = f"load {os.getloadavg()[2]:.1f} over the last 15 minutes: other programs shared the cores"
    best, summary = found.summary.best, found.summary
    title = f"search cage2, {red}, {summary.pulls} pulls, {parallel} at a time"
    result = [
        Row(f"{title}: wall time", found.wall_s / 60, "min", target=15.0, better="lower", note=load),
        Row(f"{title}: CPU time", found.cpu_s / 60, "min"),
        Row(f"{title}: pulls that passed the gate", float(summary.passed), "pulls"),
    ]
    if best is not None:
        result.append(Row(f"{title}: score of the best order", best["mean"], "reward", detail=best))
    return result


def searched(red: str, parallel: int, say: Callable[[str], None]) -> SearchResult:
    """One whole search."""
    with tempfile.TemporaryDirectory() as folder:
        return search(SearchConfig(parallel=parallel, runs_dir=folder), {"red": red}, say=say)


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` the search is made again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(searched("bline", 2, say), "bline", 2)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--red", default="bline")
    parser.add_argument("--parallel", type=int, default=2)
    given = parser.parse_args()
    store = stored.storing(given)
    found = searched(given.red, given.parallel, stored.print_line)
    result, summary = summarise(found, given.red, given.parallel), found.summary
    stored.show(result)
    if store:
        stored.write(NAME, f"python -m {PLACE} --store", result, verdict=summary.verdict, next_pick=summary.next_pick)


if __name__ == "__main__":
    main()
