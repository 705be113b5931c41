"""Does GP-UCB find a good workflow sooner than random search? Replayed over independent trainings of all 24 classes.

    python -m benchmarks.search.search_regret [--red bline] [--trainings 4] [--store]

First a table: every class is trained several times as a pull of `shoal search cage2` trains it (25 environments, at
most 50 episodes each, early stop), each time with another seed and from another clone of the scripted follower, so that
nothing is shared between two trainings of a class. With --store trainings are made and stored one by one, and it may be
killed; without, what is stored is shown. Then 20 searches of each strategy over the table, pulling from one half of a
class's trainings and judged by the other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.cage2.workflows.clone import clone_follower
from shoal.cage2.workflows.domain import Cage2
from shoal.core.seeds import derived_seed
from shoal.evaluation import interval
from shoal.search.bandit.differences import repeated_pulls
from shoal.search.options import SearchConfig
from shoal.search.replay import Table, Training, contest

PLACE, NAME = "benchmarks.search.search_regret", "search_regret"
SEEDS, MANY_SEEDS = range(20), range(200)
PULLS = 20
ALIKE = "all orders are alike"


def train(
    red: str,
    trainings: int,
    work: Path,
    found: list[dict[str, Any]],
    keep: Callable[[list[dict[str, Any]]], None],
) -> None:
    """The trainings still wanting; `keep` is handed all of them after each."""
    domain = Cage2(SearchConfig(), red=red, orders="24")
    done = {(one["red"], one["item"], one["seed"]) for one in found}
    for seed in range(trainings):
        for item, name in enumerate(domain.names):
            if (red, item, seed) in done:
                continue
            clone = clone_follower(work / f"clone-{seed}", seed=seed, say=stored.print_line)
            folder = work / f"{red}-{item}-{seed}"
            pull = domain.pull(item, start=clone, seed=derived_seed(seed, item), folder=folder, say=lambda text: None)
            shutil.rmtree(folder)
            one = {"red": red, "item": item, "order": name, "seed": seed, **asdict(pull)}
            del one["weights"]
            found.append(one)
            stored.print_line(f"{red} {seed} {name}: {pull.mean:.2f} +- {1.96 * pull.se:.2f}, passed {pull.passed}")
            keep(found)


def summarise(found: list[dict[str, Any]]) -> list[Row]:
    """For each red agent with a whole table: whether classes differ, and the regret of each strategy."""
    result: list[Row] = []
    for red in sorted({one["red"] for one in found}):
        groups = [[one for one in found if one["red"] == red and one["item"] == item] for item in range(24)]
        if min(map(len, groups)) < 2:
            continue
        spread = differences(red, groups)
        result.append(spread)
        for orders in ("24", "120"):
            result += regrets(red, groups, orders, alike=spread.note == ALIKE)
    return result


def differences(red: str, groups: list[list[dict[str, Any]]]) -> Row:
    """The true ranking with intervals, and whether there is one."""
    found = repeated_pulls([[one["mean"] for one in group] for group in groups])
    assert found is not None
    ranking = []
    for group in groups:
        means = np.array([one["mean"] for one in group])
        low, high = interval(means) or (None, None)
        ranking.append({"order": group[0]["order"], "mean": float(means.mean()), "low": low, "high": high,
                        "trainings": len(means), "passed": sum(one["passed"] for one in group)})  # fmt: skip
    ranking.sort(key=lambda one: -one["mean"])
    note = ALIKE if found.alike else "orders differ"
    name = f"{red}: share of a training's variance that lies between classes"
    detail = {**asdict(found), "ranking": ranking}
    return Row(name, found.share, "share", note=note, detail=detail, seeds=range(min(map(len, groups))))


def regrets(red: str, groups: list[list[dict[str, Any]]], orders: str, alike: bool) -> list[Row]:
    """Simple regret, averaged over the pulls of a search: GP-UCB minus the others."""
    domain = Cage2(SearchConfig(), red=red, orders=orders)
    codes = list(Cage2(SearchConfig(), orders="24").codes)
    table = Table(
        [[Training(one["mean"], one["se"], one["passed"]) for one in group] for group in groups],
        kinds=[codes.index(code.replace("D", "")) for code in domain.codes],
    )
    curves = contest(domain.points, table, PULLS, MANY_SEEDS)
    result = []
    for seeds, other in ((SEEDS, "random"), (MANY_SEEDS, "random"), (SEEDS, "halving")):
        own, against = (curves[name][: len(seeds)] for name in ("ucb", other))
        minus = (own - against).mean(1)
        low, high = interval(minus) or (None, None)
        detail = {
            "mean": float(minus.mean()), "low": low, "high": high, "by_seed": minus.round(4).tolist(),
            "ucb_by_pull": own.mean(0).round(4).tolist(), f"{other}_by_pull": against.mean(0).round(4).tolist(),
        }  # fmt: skip
        judged: dict[str, Any] = {"target": 0.0, "better": "lower"} if (seeds, other) == (SEEDS, "random") else {}
        judged |= {"note": f"{ALIKE}: there is nothing to find"} if alike else {}
        name = f"{red}, {orders} orders: simple regret over {PULLS} pulls, GP-UCB minus {other}, {len(seeds)} seeds"
        result.append(Row(f"{name}: upper end of the interval", high, "reward", detail=detail, seeds=seeds, **judged))
    return result


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` everything is trained and searched again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        train("bline", 4, Path(folder), found, lambda found: None)
    return summarise(found)


def keep(found: list[dict[str, Any]]) -> None:
    """Store the trainings; the searches over them follow."""
    stored.write(NAME, f"python -m {PLACE} --store", [], trainings=found)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--red", default="bline")
    parser.add_argument("--trainings", type=int, default=4)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-search-regret")
    given = parser.parse_args()
    if stored.storing(given):
        os.nice(3)
        found = (stored.read(NAME) or {"trainings": []})["trainings"]
        train(given.red, given.trainings, given.work, found, keep)
        stored.write(NAME, f"python -m {PLACE} --store", summarise(found), trainings=found)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
