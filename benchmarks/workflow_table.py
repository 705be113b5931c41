"""Can an order be kept, and at what price? 24 classes of orders x {bline, meander}, followers against training.

For every class the order with Defender last stands for its five. Followers: `eager` fixes the best-ranked host that
Blue believes compromised, whenever there is one; `thrifty` only what is worth it; `literal` is eager by the belief bits
alone. Trainings of 1,250 episodes (25 environments x 50, no early stop): from the clone of the thrifty follower, and
from scratch. All play the same 2,000 held-out episodes of 100 steps, so differences are paired.

python benchmarks/workflow_table.py [--seeds 1]     cells that are still wanting, one after another; may be killed
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from shoal.bench import stored
from shoal.bench.rows import Row
from shoal.imitation import clone_follower
from shoal.order_policy import Exam, derived_seed, load_policy, new_agent, order_config, ordered_env
from shoal.tasks.cage2 import obedience
from shoal.tasks.cage2.obedience import Conduct, Share
from shoal.tasks.cage2.workflow import classes, name_of
from shoal.vector.seeding import Stream
from shoal.workflows import train_order

NAME = "workflow_table"
REDS = ("bline", "meander")
STARTS = ("clone", "scratch")
EPISODES = 2000
EXAM_SEED = 20_260  # of the episodes that all play; no training validates on them
THRESHOLD = 0.95


def summary(returns: np.ndarray, tallies: np.ndarray) -> dict[str, Any]:
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


def rows(cells: list[dict[str, Any]]) -> list[Row]:
    """The bar, arm by arm: where the follower reaches 95 %, training does too, at no lower reward."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--starts", nargs="*", default=list(STARTS), choices=STARTS)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-workflow-table")
    given = parser.parse_args()
    os.nice(10)
    clone = clone_follower(given.work / "clone", say=stored.print_line)
    cells = (stored.read(NAME) or {"cells": []})["cells"]
    done = {(one["number"], one["red"], one["start"], one["seed"]) for one in cells}
    for seed in range(given.seeds):
        for start in given.starts:
            for red in REDS:
                for members in classes():
                    if (members[0], red, start, seed) in done:
                        continue
                    one = cell(members[0], red, start, seed, given.work, clone)
                    cells.append(one)
                    trained, minus = one["players"]["trained"], one["trained_minus"]
                    stored.print_line(
                        f"{start} {red} {one['order']}: reward {trained['reward']['mean']:.2f} (minus eager "
                        f"{minus['eager']['mean']:+.2f}, thrifty {minus['thrifty']['mean']:+.2f}), compliance low "
                        f"{trained['compliance']['low']:.3f}, {one['cpu_s']:.0f} s"
                    )
                    stored.write(NAME, "python benchmarks/workflow_table.py", rows(cells), cells=cells)
    stored.write(NAME, "python benchmarks/workflow_table.py", rows(cells), cells=cells, literal=literal())


if __name__ == "__main__":
    main()
