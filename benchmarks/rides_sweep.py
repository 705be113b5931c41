"""Where is negotiating a decision? Policies at 20 burdens on 200 paired held-out days, with true and learned P.

    python benchmarks/rides_sweep.py [--days 200] [--threads 2] [--plays runs/rides_sweep_200.json]

Every play is kept day by day in the file --plays, so that it goes on where it was stopped; the result has the cells.
"""

import argparse
import json
from pathlib import Path

from shoal.bench import rides_sweep, stored
from shoal.runs.disk import replace_atomically


def keep(plays: list[rides_sweep.Play], days: int, fixed, path: Path) -> None:
    """Store what there is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_atomically(path, json.dumps(plays).encode())
    found = rides_sweep.cells(plays, fixed)
    more = {"days": days, "iterations": rides_sweep.ITERATIONS, "cells": found}
    command = f"python benchmarks/rides_sweep.py --days {days}"
    stored.write(rides_sweep.NAME, command, rides_sweep.rows(found, days), **more)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=rides_sweep.DAYS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plays", type=Path)
    given = parser.parse_args()
    path = given.plays or Path("runs") / f"rides_sweep_{given.days}.json"
    plays = json.loads(path.read_text()) if path.exists() else []
    fixed = rides_sweep.fixed_on_training_days()
    rides_sweep.missing(
        plays, stored.print_line, lambda found: keep(found, given.days, fixed, path), given.days, given.threads
    )
