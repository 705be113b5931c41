"""The trained ride negotiator in worlds it was not trained for, against the best baseline there; resumable by world.

    python benchmarks/rides_shift.py [--days 200] [--seeds 1] [--threads 2] [--own-only] [--work DIR]

DIR is that of benchmarks/rides_learning.py: its runs are used, and trained first where they are missing.
"""

import argparse
import tempfile
from pathlib import Path

from shoal.bench import rides_learning, stored
from shoal.bench.rows import Row

NAME = "rides_shift"


def played(shift: str, given: argparse.Namespace) -> dict[str, object]:
    """One world: the best baseline there by the own oracle, then that one and the trained agent by the reference."""
    from shoal.negotiator import Negotiator
    from shoal.rides_report import evaluate_runs
    from shoal.tasks.rides.commands import BASELINES, baseline, run_contests
    from shoal.tasks.rides.played import BASE

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


def depends_on(given: argparse.Namespace) -> dict[str, object]:
    """What a stored world was made with."""
    return {"settings": rides_learning.settings(), "days": given.days, "seeds": given.seeds, "own": given.own_only}


def summarise(worlds: dict[str, dict]) -> list[Row]:
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


if __name__ == "__main__":
    from shoal.tasks.rides.commands import SHIFTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--own-only", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-rides-learning")
    given = parser.parse_args()
    worlds = (stored.read(NAME) or {"worlds": {}})["worlds"]
    worlds = {name: world for name, world in worlds.items() if world.get("depends_on") == depends_on(given)}
    for shift in SHIFTS:
        if shift not in worlds:
            worlds[shift] = played(shift, given)
            stored.write(NAME, f"python benchmarks/{NAME}.py", summarise(worlds), worlds=worlds)
    for row in summarise(worlds):
        stored.print_line(f"{row.name}: {row.value:.2f} {row.note}")
