"""What the trained ride negotiator is worth on held-out days, against the policies to beat; every seed stored.

Training seeds and baselines are played one after another on the same days, and stored as soon as each is priced, so
that the study goes on where it was stopped. Figures below the full number of seeds are figures, not a verdict.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from shoal.bench import stored
from shoal.bench.learning import settings_hash
from shoal.bench.rows import Row

NAME, DAYS, SEED = "rides_learning", 900, 2026
SEEDS = tuple(range(101, 106))
BASELINES = ("max-change", "myopic", "myopic:pooled", "lookahead", "lookahead:pooled")
OWN_ITERATIONS, REFERENCE = 300, (1000, 1)  # of the own oracle; iterations and searches of the reference


def rows(say: Callable[[str], None], full: bool) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    if full:
        return summarise(study([], say, lambda parts: None))
    result = stored.read(NAME)
    return summarise([]) if result is None else stored.as_stored(summarise(result["parts"]), result)


def study(
    parts: list[dict[str, Any]],
    say: Callable[[str], None],
    keep: Callable[[list[dict[str, Any]]], None],
    reference: bool = True,
) -> list[dict[str, Any]]:
    """`parts` and those still wanting, made now: own prices of everything first, then the reference's."""
    parts = [part for part in parts if part["settings"] == settings_hash("rides")]
    with tempfile.TemporaryDirectory() as folder:
        for name in (*BASELINES, *(f"seed {seed}" for seed in SEEDS)):
            if name not in {part["name"] for part in parts}:
                parts.append(_part(name, Path(folder), None))
                say(f"{name}: net gain {_mean(parts[-1]['own']):.2f} min by the own oracle")
                keep(parts)
        for part in parts if reference else []:
            if part["reference"] is None:
                part.update(_part(part["name"], Path(folder), REFERENCE))
                say(f"{part['name']}: net gain {_mean(part['reference']):.2f} min by the reference")
                keep(parts)
    return parts


def _mean(values: list[float] | None) -> float:
    return sum(values) / len(values) if values else 0.0


def _part(name: str, folder: Path, reference: tuple[int, int] | None) -> dict[str, Any]:
    """One policy on all days: its net gain a day by both prices, what it asked of riders, what failed."""
    from shoal.negotiator import Negotiator
    from shoal.tasks.rides.commands import baseline
    from shoal.tasks.rides.contest import contest
    from shoal.tasks.rides.options import RidesOptions
    from shoal.tasks.rides.routing.reference import Reference
    from shoal.tasks.rides.scores import summary
    from shoal.tasks.rides.world import make_world
    from shoal.train import train
    from shoal.vector.launch import usable_cores

    trained = {}
    if name.startswith("seed "):
        result = train("rides", seed=int(name.split()[1]), runs_dir=str(folder), stream=StringIO())
        entrant = Negotiator(result.run, runs_dir=folder).entrant()
        trained = {"days_trained": result.episodes, "train_cpu_s": round(result.cpu_s, 1)}
    else:
        entrant = baseline(name)
    options = RidesOptions()
    solver = None
    if reference is not None:
        solver = Reference(make_world(options).problem, iterations=reference[0], seeds=reference[1])
    cores = usable_cores()
    found = contest(
        {name: entrant}, options, days=DAYS, seed=SEED, iterations=OWN_ITERATIONS, reference=solver,
        workers=cores, threads=cores,
    )  # fmt: skip
    if solver is not None and solver.errors:
        raise RuntimeError(f"the reference failed on {solver.errors} days of {name}: their prices mean nothing")

    def net(prices: str) -> list[float]:
        return [round(float(value), 3) for value in found.net_min(name, prices)]

    return {
        "name": name,
        "own": net("own"),
        "reference": None if reference is None else net("reference"),
        "figures": summary(found, resamples=200)["policies"][name],
        "settings": settings_hash("rides"),
        **trained,
        **stored.stamp(),
    }


def summarise(parts: list[dict[str, Any]]) -> list[Row]:
    """The trained agent less the best baseline, paired over days, resampled over days and seeds."""
    from shoal.tasks.rides.scores import Bootstrap

    made = [part for part in parts if part["settings"] == settings_hash("rides")]
    found = []
    for prices in ("reference", "own"):
        title = f"rides: trained agent less the best baseline, net gain a day, by the {prices} prices"
        nets = {part["name"]: np.array(part[prices]) for part in made if part[prices] is not None}
        runs = np.array([net for name, net in nets.items() if name.startswith("seed ")])
        others = {name: net for name, net in nets.items() if not name.startswith("seed ")}
        if not len(runs) or len(others) < len(BASELINES):
            note = f"{len(runs)} of {len(SEEDS)} seeds stored: python benchmarks/{NAME}.py goes on"
            found.append(Row(title, None, "min", 0.0 if prices == "reference" else None, note=note))
            continue
        best = max(others, key=lambda name: float(others[name].mean()))
        gain = Bootstrap(DAYS).mean(runs - others[best])
        bar = 0.0 if prices == "reference" and len(runs) == len(SEEDS) else None
        note = (
            f"lower end of the 95 % interval; mean {gain['mean']:.2f}, upper {gain['high']:.2f}, best is {best} at "
            f"{others[best].mean():.2f}; {len(runs)} seeds: " + ", ".join(f"{net.mean():.2f}" for net in runs)
        )
        found.append(Row(title, gain["low"], "min", bar, note=note))
    return found
