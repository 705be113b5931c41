"""Can an order be kept, and at what price? 24 classes of orders x {bline, meander}, followers against training.

For every class the order with Defender last stands for its five. Followers: `eager` fixes the best-ranked host that
Blue believes compromised, whenever there is one; `thrifty` only what is worth it; `literal` is eager by the belief bits
alone. Trainings of 1,250 episodes (25 environments x 50, no early stop): from the clone of the thrifty follower, and
from scratch. All play the same 2,000 held-out episodes of 100 steps, so differences are paired.

    python -m benchmarks.search.workflow_table [--seeds 1] [--store]

With --store the cells that are still wanting are made, one after another; it may be killed. Without, it shows what is
stored.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.cage2.workflows import conduct as obedience
from shoal.cage2.workflows.clone import clone_follower
from shoal.cage2.workflows.conduct import Conduct, Share
from shoal.cage2.workflows.orders import classes, name_of
from shoal.cage2.workflows.policy import Exam, derived_seed, load_policy, new_agent, order_config, ordered_env
from shoal.cage2.workflows.train import train_order
from shoal.core.arrays import Array
from shoal.core.seeds import Stream

PLACE, NAME = "benchmarks.search.workflow_table", "workflow_table"
REDS = ("bline", "meander")
STARTS = ("clone", "scratch")
EPISODES = 2000
EXAM_SEED = 20_260  # of the episodes that all play; no training validates on them
THRESHOLD = 0.95


def summary(returns: Array, tallies: Array) -> dict[str, Any]:
    """Reward and conduct of one player."""
    conduct = Conduct.of(tallies).to_json()
    return {"reward": vars(Share.of(returns)), **conduct}


def cell(number: int, red: str, start: str, seed: int, work: Path, clone: Path) -> dict[str, Any]:
    """One training and the two followers, on the same episodes."""
    folder = work / f"{red}-{number}-{start}-{seed}"
    result = train_order(
        number, red=red, start=clone if start == "clone" else None, seed=seed, folder=folder, early_stop=False
    )
    env = ordered_env(number, red)
    agent = new_agent(env, order_config(seed=seed, warm=True).ppo)
    load_policy(result.weights, agent, env.features)
    exam = Exam(env, EPISODES, EXAM_SEED)
    returns, tallies = exam.take(agent)
    players = {"trained": summary(returns, tallies)}
    against = {}
    for temper in ("eager", "thrifty"):
        own, counted = obedience.play(number, red, EPISODES, exam.seed, temper)
        players[temper] = summary(own, counted)
        against[temper] = vars(Share.of(returns - own))
    shutil.rmtree(folder)
    return {
        "order": name_of(number), "number": number, "red": red, "start": start, "seed": seed,
        "episodes": result.episodes, "chosen_update": result.chosen_update, "cpu_s": round(result.cpu_s, 2),
        "players": players, "trained_minus": against,
    }  # fmt: skip


def summarise(cells: list[dict[str, Any]]) -> list[Row]:
    """The target, arm by arm: where the follower reaches 95 %, training does too, at no lower reward."""
    found = []
    for start in STARTS:
        arm = [one for one in cells if one["start"] == start]
        if not arm:
            continue
        for temper in ("eager", "thrifty"):
            asked = [one for one in arm if (one["players"][temper]["compliance"]["low"] or 0) >= THRESHOLD]
            kept = [one for one in asked if (one["players"]["trained"]["compliance"]["low"] or 0) >= THRESHOLD]
            paid = [one for one in kept if one["trained_minus"][temper]["high"] >= 0]
            seeds = sorted({one["seed"] for one in arm})
            found += [
                Row(f"{start}: compliance, of the cells where the {temper} follower reaches it", len(kept), "cells",
                    len(asked), seeds=seeds),
                Row(f"{start}: and a reward not below the {temper} follower's", len(paid), "cells", len(asked),
                    note="not below: the 95 % interval of the paired difference reaches 0", seeds=seeds),
            ]  # fmt: skip
    return found


def literal() -> list[dict[str, Any]]:
    """The follower that takes Blue's belief bits at their word, for the ceiling that these alone allow."""
    found, seed = [], derived_seed(EXAM_SEED, Stream.EVALUATE, 0)  # that of the exam
    for red in REDS:
        for members in classes():
            one = summary(*obedience.play(members[0], red, EPISODES, seed, "literal"))
            found.append({"order": name_of(members[0]), "red": red, **one})
    return found


def study(
    cells: list[dict[str, Any]],
    seeds: int,
    starts: Sequence[str],
    work: Path,
    keep: Callable[[list[dict[str, Any]]], None],
) -> list[dict[str, Any]]:
    """`cells` and those still wanting, made now; `keep` is handed all of them after each."""
    clone = clone_follower(work / "clone", say=stored.print_line)
    done = {(one["number"], one["red"], one["start"], one["seed"]) for one in cells}
    for seed, start, red, members in itertools.product(range(seeds), starts, REDS, classes()):
        if (members[0], red, start, seed) in done:
            continue
        one = cell(members[0], red, start, seed, work, clone)
        cells.append(one)
        trained, minus = one["players"]["trained"], one["trained_minus"]
        stored.print_line(
            f"{start} {red} {one['order']}: reward {trained['reward']['mean']:.2f} (minus eager "
            f"{minus['eager']['mean']:+.2f}, thrifty {minus['thrifty']['mean']:+.2f}), compliance low "
            f"{trained['compliance']['low']:.3f}, {one['cpu_s']:.0f} s"
        )
        keep(cells)
    return cells


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` one seed of every cell is made again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    with tempfile.TemporaryDirectory() as folder:
        return summarise(study([], 1, STARTS, Path(folder), lambda cells: None))


def keep(cells: list[dict[str, Any]], **more: Any) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(cells), cells=cells, **more)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--starts", nargs="*", default=list(STARTS), choices=STARTS)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-workflow-table")
    given = parser.parse_args()
    if stored.storing(given):
        os.nice(10)
        cells = (stored.read(NAME) or {"cells": []})["cells"]
        keep(study(cells, given.seeds, given.starts, given.work, keep), literal=literal())
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
