"""What the alignment methods do: none, lagrange and reward on the order that costs most, five seeds, equal budgets.

The order puts user hosts first, against B_line: keeping to it costs reward, so training that is not held to it leaves
it. 1,250 episodes each, no early stop, from the clone of the thrifty follower and from scratch. Reported is the policy
after the last update (not the best check), on 500 held-out episodes.

python benchmarks/workflow_alignment.py     trainings that are still wanting, one after another; may be killed
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from shoal.bench import stored
from shoal.imitation import clone_follower
from shoal.runs import jsonl
from shoal.workflows import METRICS, train_order

NAME = "workflow_alignment"
ORDER = "user,op_host,op_server,enterprise,defender"
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


if __name__ == "__main__":
    os.nice(10)
    work = Path(tempfile.gettempdir()) / "shoal-workflow-table"
    runs = (stored.read(NAME) or {"runs": []})["runs"]
    done = {(run["method"], run["start"], run["seed"]) for run in runs}
    for seed in SEEDS:
        for start in ("clone", "scratch"):
            for method in METHODS:
                if (method, start, seed) not in done:
                    runs.append(training(method, start, seed, work))
                    stored.print_line(str(runs[-1]))
                    stored.write(
                        NAME, "python benchmarks/workflow_alignment.py", [], order=ORDER, red="bline", runs=runs
                    )
