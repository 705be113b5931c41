"""Other weights of the neural oracle beside those that ship, on the same days: a second fit, or a longer one.

    python -m benchmarks.rides.neural_refit [--seed 1] [--hours 0.0575] [--weights FILE --name NAME] [--store]

`shoal rides fit oracle` makes the weights from nothing with another seed, in as much CPU time as those that ship took.
With --weights those of a file are judged instead, which a longer fit made with a card beside them. Greedy plans of both
are compared day by day, against the best of the incremental search with 3,000 iterations and of both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides.neural_oracle import finished

PLACE, NAME = "benchmarks.rides.neural_refit", "neural_refit"
SHIPPED, OTHER, SEARCH = "shipped", "fitted anew", "incremental, 3,000"
SIZES = (5, 10, 20, 30, 45)
Say = Callable[[str], None]


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; with `full` it is measured again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(measured(parsed([]), say))


def measured(given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Fit, then plan the same days by both."""
    from shoal.rides.fit.oracle import fit_oracle

    with tempfile.TemporaryDirectory() as folder:
        path = Path(given.weights or Path(folder) / "oracle.safetensors")
        if given.weights:
            took: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        else:
            took = dict(fit_oracle(path, hours=given.hours, minutes=float("inf"), seed=given.seed, say=say)[0])
            took["seed"] = given.seed
        sizes = [compared(size, given.days, path) for size in SIZES]
        for part in sizes:
            say(f"{part['requests']} requests: {np.mean(part['gap_percent'][OTHER]):.2f} %")
        whole = {SHIPPED: finished(given.finished, SIZES), OTHER: finished(given.finished, SIZES, str(path))}
    took = {name: took[name] for name in ("days", "steps", "fit_cpu_s", "seed")}
    return {"took": took, "sizes": sizes, "finished": whole}


def compared(size: int, days: int, path: Path) -> dict[str, Any]:
    """Percent above the best known of each day that both finish."""
    from shoal.rides.options import RidesOptions
    from shoal.rides.oracle_report.gaps import decoded, incremental, planned
    from shoal.rides.routing.neural.router import Router
    from shoal.rides.routing.neural.weights import load_network
    from shoal.rides.world.world import make_world

    world = make_world(RidesOptions(customers=max(SIZES)))
    source = world.days("held_out", again=True)
    some = np.stack([source.draw(20_000 + seed).requests[:size] for seed in range(days)])
    planners = {
        SHIPPED: partial(decoded, Router(load_network(), world.problem)),
        OTHER: partial(decoded, Router(load_network(path), world.problem)),
        SEARCH: partial(incremental, world.problem, iterations=3000),
    }
    found = {name: planned(world.problem, some, planner) for name, planner in planners.items()}
    fine = np.all([one.finished for one in found.values()], 0)
    best = np.min([one.cost_s for one in found.values()], 0)[fine]
    gap = {name: (100 * (one.cost_s[fine] / best - 1)).round(4).tolist() for name, one in found.items()}
    return {"requests": size, "days": int(fine.sum()), "gap_percent": gap}


def summarise(result: dict[str, Any]) -> list[Row]:
    """The difference of both by number of requests, then days finished."""
    from shoal.rides.contest.scores import Bootstrap

    found, took = [], result["took"]
    for part in result["sizes"]:
        gap = {name: np.array(each) for name, each in part["gap_percent"].items()}
        extra = gap[OTHER] - gap[SHIPPED]
        spread = Bootstrap(len(extra)).mean(extra[None])
        note = f"95 % interval {spread['low']:.2f} to {spread['high']:.2f}, {part['days']} days; shipped "
        note += f"{gap[SHIPPED].mean():.2f} %, {OTHER} {gap[OTHER].mean():.2f} %, {SEARCH} {gap[SEARCH].mean():.2f} %"
        title = f"{part['requests']} requests: gap of weights {OTHER} less that of those that ship"
        found.append(Row(title, spread["mean"], "points", better="lower", note=note))
    for size in SIZES:
        routable, whole = result["finished"][OTHER][str(size)]
        of_shipped = 100 * result["finished"][SHIPPED][str(size)][1] / routable
        note = f"shipped {of_shipped:.1f} %, of {routable:,} days"
        found.append(Row(f"{size} requests: days finished by weights {OTHER}", 100 * whole / routable, "%", note=note))
    note = f"{took['days']:,} days, {took['steps']:,} steps, seed {took['seed']}"
    return [*found, Row("CPU time of the fit", took["fit_cpu_s"], "s", note=note)]


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=float, default=0.0575, help="CPU hours of the fit; the weights that ship: 0.06")
    parser.add_argument("--days", type=int, default=64, help="days of each size that both plan")
    parser.add_argument("--finished", type=int, default=500, help="days of each size that both decode")
    parser.add_argument("--weights", default="", help="judge these, a .safetensors with its card; default: fit some")
    parser.add_argument("--name", default=NAME, help="of the stored result")
    return parser.parse_args(given)


def main() -> None:
    given = parsed()
    store = stored.storing(given)
    result = measured(given, stored.print_line)
    found = summarise(result)
    stored.show(found)
    if store:
        stored.write(given.name, f"python -m {PLACE} --store", found, **result)


if __name__ == "__main__":
    main()
