"""The trained ride negotiator in worlds it was not trained for, against the best baseline there; resumable by world.

    python benchmarks/rides_shift.py [--days 200] [--seeds 1] [--threads 2] [--own-only] [--work DIR]

DIR is that of benchmarks/rides_learning.py: its runs are used, and trained first where they are missing.
"""

import argparse
import tempfile
from pathlib import Path

from shoal.bench import rides_learning, stored
from shoal.bench.rows import Row

NAME, AGAINST = "rides_shift", ("none", "lookahead:pooled")


def played(shift: str, given: argparse.Namespace) -> dict[str, object]:
    """The contest of one world."""
    from shoal.rides_report import evaluate_runs

    runs = [rides_learning.trained_run(seed, given.work)[0] for seed in rides_learning.SEEDS[: given.seeds]]
    results, _ = evaluate_runs(
        runs, days=given.days, seed=rides_learning.SEED, iterations=rides_learning.OWN_ITERATIONS, shift=shift,
        reference=None if given.own_only else rides_learning.REFERENCE, baselines=AGAINST, threads=given.threads,
        runs_dir=given.work, say=stored.print_line,
    )  # fmt: skip
    return {**results["contests"][shift], "seeds": given.seeds, **stored.stamp()}


def summarise(worlds: dict[str, dict]) -> list[Row]:
    """The trained agent less the best baseline, world by world."""
    rows = []
    for world in worlds.values():
        price = "reference" if "reference" in world["prices"] else "own"
        ours = [name for name in world["policies"] if name not in AGAINST]
        group = world["groups"].get("trained") or {"differences": world["differences"][ours[0]]}
        gain = group["differences"][AGAINST[-1]][price]
        net = {name: figures["net_min"][price]["mean"] for name, figures in world["policies"].items()}
        note = (
            f"[{gain['low']:.2f}, {gain['high']:.2f}]; net gain {', '.join(f'{net[name]:.2f}' for name in ours)} "
            f"against {net[AGAINST[-1]]:.2f}; {world['days']} days by the {price} prices"
        )
        rows.append(Row(f"rides, {world['about']}: trained less {AGAINST[-1]}", gain["mean"], "min", None, note=note))
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
    for shift in SHIFTS:
        done = worlds.get(shift, {"days": 0, "seeds": 0})
        if done["days"] < given.days or done["seeds"] < given.seeds:
            worlds[shift] = played(shift, given)
            stored.write(NAME, f"python benchmarks/{NAME}.py", summarise(worlds), worlds=worlds)
    for row in summarise(worlds):
        stored.print_line(f"{row.name}: {row.value:.2f} {row.note}")
