"""What the alignment methods do: none, lagrange and reward on the order that costs most, five seeds, equal budgets.

The order puts user hosts first, against B_line: keeping to it costs reward, so training that is not held to it leaves
it. 1,250 episodes each, no early stop, from the clone of the thrifty follower and from scratch. Reported is the policy
after the last update (not the best check), on 500 held-out episodes.

    python -m benchmarks.search.workflow_alignment [--store]

With --store the trainings that are still wanting are made, one after another; it may be killed. Without, it shows what
is stored.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.cage2.workflows.clone import clone_follower
from shoal.cage2.workflows.train import METRICS, train_order
from shoal.runs import jsonl

PLACE, NAME = "benchmarks.search.workflow_alignment", "workflow_alignment"
ORDER = "user,op_host,op_server,enterprise,defender"
STARTS = ("clone", "scratch")
METHODS = ("none", "lagrange", "reward")
SEEDS = range(5)


def training(method: str, start: str, seed: int, work: Path) -> dict[str, Any]:
    """One training; its last validation is of the policy after the last update."""
    folder = work / f"{method}-{start}-{seed}"
    clone = clone_follower(work / "clone")
    train_order(
        ORDER, red="bline", start=clone if start == "clone" else None, seed=seed, folder=folder, alignment=method,
        early_stop=False, check_every=50, validation_episodes=500, evaluation_episodes=2,
    )  # fmt: skip
    last = jsonl.parse(folder / METRICS)[-1]
    shutil.rmtree(folder)
    kept = ("validation/return", "validation/compliance", "validation/compliance_low", "workflow/weight")
    return {"method": method, "start": start, "seed": seed, **{name: last[name] for name in kept}}


def study(runs: list[dict[str, Any]], work: Path, keep: Callable[[list[dict[str, Any]]], None]) -> list[dict[str, Any]]:
    """`runs` and those still wanting, trained now; `keep` is handed all of them after each."""
    done = {(run["method"], run["start"], run["seed"]) for run in runs}
    for seed, start, method in itertools.product(SEEDS, STARTS, METHODS):
        if (method, start, seed) not in done:
            runs.append(training(method, start, seed, work))
            stored.print_line(str(runs[-1]))
            keep(runs)
    return runs


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """How well each method keeps to the order from each start, and what reward it has."""
    found = []
    for start, method in itertools.product(STARTS, METHODS):
        arm = [run for run in runs if (run["start"], run["method"]) == (start, method)]
        if not arm:
            continue
        name, seeds = f"alignment {method}, from {start}, mean of {len(arm)} seeds", [run["seed"] for run in arm]
        for what, unit in (("compliance", "share"), ("return", "reward")):
            values = [run[f"validation/{what}"] for run in arm]
            found.append(
                Row(f"{name}: {what}", statistics.fmean(values), unit, seeds=seeds, detail={"by_seed": values})
            )
    return found


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` everything is trained again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise(study([], Path(folder), lambda runs: None))
    result = stored.read(NAME)
    return stored.read_rows(NAME, PLACE) if result is None else stored.as_stored(summarise(result["runs"]), result)


def keep(runs: list[dict[str, Any]]) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(runs), order=ORDER, red="bline", runs=runs)


def main() -> None:
    if stored.storing(stored.arguments(__doc__).parse_args()):
        os.nice(10)
        work = Path(tempfile.gettempdir()) / "shoal-workflow-table"
        study(stored.runs(NAME), work, keep)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
