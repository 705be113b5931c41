"""What `shoal train cage2` scores from scratch: three seeds, 4,000 episodes a cell, with score against CPU time.

python -m benchmarks.cage2.cage2_score                         shows what is stored
python -m benchmarks.cage2.cage2_score --store                 the seeds that are wanting, one after another
python -m benchmarks.cage2.cage2_score --seed 101 --out FILE   one seed, to a file of its own (on another machine)
python -m benchmarks.cage2.cage2_score --merge FILE... --store   such files into benchmarks/results
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.harness.stored import settings_hash

PLACE, NAME, EPISODES, CURVE_EPISODES = "benchmarks.cage2.cage2_score", "cage2_score", 4000, 500
TARGET, LIMIT_S = -54.5, 1200.0  # the sum of the nine means, within twenty minutes on two cores
SEEDS = (101, 102, 103)


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` every seed is learnt again."""
    if full:
        return summarise(missing([], say, lambda runs: None))
    result = stored.read(NAME)
    return summarise([]) if result is None else stored.as_stored(summarise(result["runs"]), result)


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """The worst and the mean seed of those made with the settings that `shoal train cage2` has now."""
    title = f"cage2 from scratch within {LIMIT_S / 60:.0f} min on 2 cores, worst of {len(SEEDS)} seeds"
    runs = [run for run in runs if run["settings"] == settings_hash("cage2")]
    if len(runs) < len(SEEDS):
        note = f"{len(runs)} of {len(SEEDS)} seeds stored: python -m {PLACE} --store goes on"
        return [Row(title, None, "sum", TARGET, note=note)]
    mean = sum(run["sum"] for run in runs) / len(runs)
    note = ", ".join(f"seed {run['seed']}: {run['sum']:.2f} in {run['wall_s']:.0f} s" for run in runs)
    return [
        Row(title, min(run["sum"] for run in runs), "sum", TARGET, note=note),
        Row("cage2 from scratch, longest of the seeds", max(run["wall_s"] for run in runs), "s", LIMIT_S, "lower"),
        Row("cage2 from scratch, mean of the seeds (target -52)", mean, "sum", None),
    ]


def missing(
    runs: Sequence[dict[str, Any]], say: Callable[[str], None], keep: Callable[[list[dict[str, Any]]], None]
) -> list[dict[str, Any]]:
    """`runs` and the seeds still wanting, learnt now; `keep` is handed all of them after each."""
    found = [run for run in runs if run["settings"] == settings_hash("cage2")]
    for seed in SEEDS:
        if seed not in {run["seed"] for run in found}:
            found.append(learn(seed))
            say(f"seed {seed}: {found[-1]['sum']:.2f} after {found[-1]['wall_s']:.0f} s")
            keep(found)
    return found


def learn(seed: int) -> dict[str, Any]:
    """Train with no flags but the seed; score the end by 4,000 episodes a cell, the way there by 500."""
    from shoal.cage2.evaluate import leaderboard
    from shoal.runs import checkpoint
    from shoal.runs.folder import Run
    from shoal.training import train

    with tempfile.TemporaryDirectory() as folder:
        result = train("cage2", seed=seed, runs_dir=folder, save_interval=20, keep=1000, stream=StringIO())
        final = leaderboard(result.run, episodes=EPISODES, seed=seed)
        run = Run.open(result.run, Path(folder))
        clock = {row["epoch"]: row for row in run.metrics()}
        curve = []
        for epoch in checkpoint.epochs(run.checkpoints)[1:]:
            score = leaderboard(result.run, episodes=CURVE_EPISODES, seed=seed, epoch=epoch)["sum"]
            row = clock[epoch]
            curve.append(
                {
                    "steps": row["steps"],
                    "cpu_s": round(row["time/cpu_s"], 1),
                    "wall_s": round(row["time/elapsed_s"], 1),
                    "sum": round(score["mean"], 2),
                    "se": round(score["se"], 2),
                }
            )
    return {
        "seed": seed,
        "sum": round(final["sum"]["mean"], 3),
        "interval": [round(final["sum"]["low"], 3), round(final["sum"]["high"], 3)],
        "cells": final["cells"],
        "rules": final["rules"],
        "episodes": EPISODES,
        "steps": result.steps,
        "wall_s": round(result.wall_s, 1),
        "cpu_s": round(result.cpu_s, 1),
        "curve": curve,
        "settings": settings_hash("cage2"),
        **stored.stamp(),
    }


def keep(runs: Sequence[dict[str, Any]]) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(runs), runs=runs)


def merged(before: Sequence[dict[str, Any]], paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The stored runs with those of other machines in place of their seeds."""
    here = stored.stamp()
    new = [json.loads(path.read_text()) for path in paths]
    for run in new:  # a copy of the tree without git does not know its commit: it was made from this one
        run["commit"], run["dirty"] = run["commit"] or here["commit"], run["dirty"] or False
    return [run for run in before if run["seed"] not in {one["seed"] for one in new}] + new


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--merge", type=Path, nargs="*")
    given = parser.parse_args()
    if (given.seed is None) != (given.out is None):
        parser.error("expected --seed and --out together")
    if given.merge and not given.store:
        parser.error("expected --store with --merge")
    store, before = stored.storing(given), stored.runs(NAME)
    if given.seed is not None:
        given.out.write_text(json.dumps(learn(given.seed), allow_nan=False))
        return
    if given.merge:
        keep(merged(before, given.merge))
    elif store:
        missing(before, stored.print_line, keep)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
