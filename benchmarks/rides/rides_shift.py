"""The trained ride negotiator in worlds it was not trained for, against the best baseline there; resumable by world.

    python -m benchmarks.rides.rides_shift [--days 200] [--seeds 1] [--threads 2] [--own-only] [--work DIR] [--store]

With --store the worlds that are wanting are played; without, it shows what is stored. DIR is that of rides_learning:
its runs are used, and trained first where they are missing.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides import rides_learning

PLACE, NAME = "benchmarks.rides.rides_shift", "rides_shift"


def played(shift: str, given: argparse.Namespace) -> dict[str, Any]:
    """One world: the best baseline there by the own oracle, then that one and the trained agent by the reference."""
    from shoal.rides.commands import BASELINES, baseline, run_contests
    from shoal.rides.contest.record import BASE
    from shoal.rides.contest.report import evaluate_runs
    from shoal.rides.policies.learned import Negotiator

    runs = [rides_learning.trained_run(seed, given.work)[0] for seed in rides_learning.SEEDS[: given.seeds]]
    first = Negotiator(runs[0], runs_dir=given.work)
    same = {"days": given.days, "seed": rides_learning.SEED, "iterations": rides_learning.OWN_ITERATIONS,
            "shift": shift, "threads": given.threads, "say": stored.print_line}  # fmt: skip
    entrants = {name: baseline(name) for name in BASELINES if name != BASE}
    found, _ = run_contests(entrants, first.options, flexibility=first.flexibility or None, **same)
    nets = {name: found[shift]["policies"][name]["net_min"]["own"]["mean"] for name in entrants}
    best = max(nets, key=lambda name: nets[name])
    results, _ = evaluate_runs(
        runs, baselines=(BASE, best), runs_dir=given.work,
        reference=None if given.own_only else rides_learning.REFERENCE, **same,
    )  # fmt: skip
    world = results["contests"][shift]
    return {**world, "best": best, "baselines_own": nets, "depends_on": depends_on(given), **stored.stamp()}


def depends_on(given: argparse.Namespace) -> dict[str, Any]:
    """What a stored world was made with."""
    return {"settings": rides_learning.settings(), "days": given.days, "seeds": given.seeds, "own": given.own_only}


def summarise(worlds: dict[str, Any]) -> list[Row]:
    """The trained agent less the best baseline, world by world."""
    rows = []
    for world in worlds.values():
        price = "reference" if "reference" in world["prices"] else "own"
        best, ours = world["best"], [name for name in world["policies"] if name not in ("none", world["best"])]
        group = world["groups"].get("trained") or {"differences": world["differences"][ours[0]]}
        gain = group["differences"][best][price]
        net = {name: figures["net_min"][price]["mean"] for name, figures in world["policies"].items()}
        note = (
            f"[{gain['low']:.2f}, {gain['high']:.2f}]; net gain {', '.join(f'{net[name]:.2f}' for name in ours)} "
            f"against {net[best]:.2f} of {best}; {world['days']} days by the {price} prices"
        )
        title = f"rides, {world['about']}: trained less the best baseline"
        rows.append(Row(title, gain["mean"], "min", None, note=note))
    return rows


def study(given: argparse.Namespace, worlds: dict[str, Any], keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """`worlds` and those still wanting, played now; `keep` is handed all of them after each."""
    from shoal.rides.commands import SHIFTS

    worlds = {name: world for name, world in worlds.items() if world.get("depends_on") == depends_on(given)}
    for shift in SHIFTS:
        if shift not in worlds:
            worlds[shift] = played(shift, given)
            keep(worlds)
    return worlds


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` all worlds are played again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(study(parsed([]), {}, lambda worlds: None))


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--own-only", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-rides-learning")
    return parser.parse_args(given)


def keep(worlds: dict[str, Any]) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(worlds), worlds=worlds)


def main() -> None:
    given = parsed()
    if stored.storing(given):
        study(given, (stored.read(NAME) or {"worlds": {}})["worlds"], keep)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
