"""`shoal rides fit oracle`: the weights of the neural routing oracle, by imitation, and their gap on held-out days."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from shoal.rides.options import RidesOptions
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.router import Router
from shoal.rides.routing.neural.weights import save_network
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.world.world import World, make_world

SIZES = (5, 10, 20, 30, 45)
_HELD_OUT_DAYS = 64


def fit_oracle(
    path: Path, *, hours: float, minutes: float, seed: int, say: Callable[[str], None]
) -> tuple[dict[str, int], dict[str, float]]:
    """Fit for so many hours, `minutes` of them now, or go on with the folder beside `path`; (what it took, scores).

    On one thread, of which an hour of CPU time gets the most done.
    """
    import torch

    from shoal.rides.fit.imitation import Imitation

    world = make_world(RidesOptions(customers=max(SIZES)))
    work = Imitation(world, path.with_suffix(".fit"), seed=seed, seconds=3600 * hours, say=say)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        work.run(60 * minutes)
    finally:
        torch.set_num_threads(before)
    save_network(work.network, path)
    numbers = work.numbers
    took = {"days": work.days, "steps": numbers["steps"], "fit_s": numbers["ms"] // 1000}
    return took | {"fit_cpu_s": numbers["cpu_ms"] // 1000}, quick_scores(work.network, world)


def quick_scores(network: RoutingNetwork, world: World) -> dict[str, float]:
    """Mean gap of greedy routes to the own search, in percent, on a few held-out days; share of days finished."""
    source = world.days("held_out", again=True)
    requests = np.stack([source.draw(seed).requests for seed in range(_HELD_OUT_DAYS)])
    router, oracle = Router(network, world.problem), RoutingOracle(world.problem)
    keys = np.arange(_HELD_OUT_DAYS).astype(np.uint64)
    scores: dict[str, float] = {}
    for size in SIZES:
        plans = Plans(world.problem, _HELD_OUT_DAYS, size)
        for step in range(size):
            oracle.add(plans, requests[:, step].copy(), keys, 0)
        oracle.polish(plans, keys, 3000)
        found = router.route(requests[:, :size], np.full(_HELD_OUT_DAYS, size))
        whole = found.placed.all(1) & plans.served.all(1)
        gap = 100 * (found.cost_s[whole] / plans.cost_s[whole] - 1)
        scores[f"gap_percent_{size}"] = float(gap.mean()) if whole.any() else float("nan")
        scores[f"finished_percent_{size}"] = float(100 * found.placed.all(1).mean())
    return scores
