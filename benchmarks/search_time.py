"""The whole search of 20 pulls over the 120 orders, with its report: minutes on this machine.

python benchmarks/search_time.py [--red bline] [--parallel 2]
"""

import argparse
import os
import tempfile

from shoal.bench import stored
from shoal.bench.rows import Row
from shoal.search.loop import SearchResult, search
from shoal.search.options import SearchConfig

NAME = "search_time"


def rows(found: SearchResult, red: str, parallel: int) -> list[Row]:
    """Minutes of wall and of CPU, and what came of it."""
    load = f"load {os.getloadavg()[2]:.1f} over the last 15 minutes: other programs shared the cores"
    best, summary = found.summary.best, found.summary
    title = f"search cage2, {red}, {summary.pulls} pulls, {parallel} at a time"
    result = [
        Row(f"{title}: wall time", found.wall_s / 60, "min", bar=15.0, better="lower", note=load),
        Row(f"{title}: CPU time", found.cpu_s / 60, "min"),
        Row(f"{title}: pulls that passed the gate", float(summary.passed), "pulls"),
    ]
    if best is not None:
        result.append(Row(f"{title}: score of the best order", best["mean"], "reward", detail=best))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--red", default="bline")
    parser.add_argument("--parallel", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = SearchConfig(parallel=given.parallel, runs_dir=folder)
        found = search(config, {"red": given.red}, say=stored.print_line)
        summary = found.summary
    result = rows(found, given.red, given.parallel)
    for row in result:
        stored.print_line(f"{row.name}: {row.value:.2f} {row.unit}")
    stored.write(NAME, "python benchmarks/search_time.py", result, verdict=summary.verdict, next_pick=summary.next_pick)


if __name__ == "__main__":
    main()
