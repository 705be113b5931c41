"""PPO from nothing over the neural oracle, beside the same over the incremental one: both curves, judged by PyVRP.

    python -m benchmarks.rides.neural_training [--epochs 5] [--days 20] [--pyvrp 100] [--store]

Both train 256 environments with insertion prices, without futures, with credit from rebuilt days and the same seed;
they differ by --oracle alone. Evaluation is on the same held-out days, priced by the incremental search (300) and by
PyVRP.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row

PLACE, NAME = "benchmarks.rides.neural_training", "neural_training"
ORACLES = ("incremental", "neural")
OWN = {"start": "none", "prices": "insertion", "futures": 0, "held_out_days": 0}
NUM_ENVS, SEED, DAYS_SEED, BASELINE = 256, 301, 2026, "myopic"
Say = Callable[[str], None]


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; with `full` it is measured again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(measured(parsed([]), say))


def measured(given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Train both, then play both and a baseline on the same days."""
    from shoal.rides.commands import baseline
    from shoal.rides.contest.play import contest
    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.reference import Reference
    from shoal.rides.world.world import make_world

    entrants: dict[str, Any] = {BASELINE: baseline(BASELINE, 0)}
    trainings = {}
    for oracle in ORACLES:
        entrants[oracle], trainings[oracle] = trained(oracle, given.epochs, say)
    reference = Reference(make_world(RidesOptions()).problem, given.pyvrp, 1) if given.pyvrp else None
    found = contest(entrants, RidesOptions(), days=given.days, seed=DAYS_SEED, iterations=300, reference=reference)
    prices = ["own", "reference"] if reference else ["own"]
    net_min = {
        name: {price: [round(float(one), 3) for one in found.net_min(name, price)] for price in prices}
        for name in entrants
    }
    return {"trainings": trainings, "net_min": net_min, "pyvrp": given.pyvrp, "seed": SEED, "days_seed": DAYS_SEED}


def trained(oracle: str, epochs: int, say: Say) -> tuple[Any, dict[str, Any]]:
    """(the agent, what each epoch was like)."""
    from shoal.learn.deploy import DeployedPolicy
    from shoal.learn.learner import Learner
    from shoal.rides.contest.play import Entrant
    from shoal.tasks.networks import own_network
    from shoal.tasks.presets import config_for
    from shoal.training import make_envs

    own = OWN | ({"oracle": oracle} if oracle != "incremental" else {})
    config = config_for(
        "rides", env_kwargs=json.dumps(own), seed=SEED, num_envs=NUM_ENVS, episodes=epochs * NUM_ENVS
    )  # fmt: skip
    envs: Any = make_envs(config, None, say)
    learner = Learner(config, envs, own_network=own_network("rides", own))
    learner.start()
    curve = []
    for epoch in range(epochs):
        began = time.process_time()
        metrics = learner.update(learner.estimate(learner.collect()), epoch / epochs)
        cpu_s = time.process_time() - began
        kept = ("rides/net_min", "rides/cost_min", "oracle/taken", "oracle/fell_back")
        curve.append({"cpu_s": round(cpu_s, 2)} | {name: float(metrics[name]) for name in kept if name in metrics})
        say(f"{oracle}, epoch {epoch + 1}: net gain {metrics['rides/net_min']:.2f} min, {cpu_s:.0f} s of CPU")
    policy = DeployedPolicy(learner.agent, envs.single_action_space, config, 0)
    changes = {name: own[name] for name in ("start", "prices", "futures")}
    flexibility = envs.flexibility.state()
    flexibility["buffer"] = flexibility["buffer"][:0]
    envs.close()

    def play(env: Any, observations: dict[str, Any]) -> Any:
        return policy(observations, deterministic=True, batched=True)

    return Entrant(play, changes, flexibility), {"days": epochs * NUM_ENVS, "curve": curve}


def summarise(result: dict[str, Any]) -> list[Row]:
    """The difference, what each gains, and what each costs."""
    from shoal.rides.contest.scores import Bootstrap

    found, net_min = [], result["net_min"]
    for price in net_min[BASELINE]:
        by = f"PyVRP with {result['pyvrp']} iterations" if price == "reference" else "the incremental search"
        ours, others = (np.array(net_min[name][price]) for name in ("neural", "incremental"))
        gain = Bootstrap(len(ours)).mean((ours - others)[None])
        note = f"95 % interval {gain['low']:.2f} to {gain['high']:.2f}, {len(ours)} held-out days, one seed"
        found.append(
            Row(f"trained over neural less over incremental, net gain a day by {by}", gain["mean"], "min", note=note)
        )
        found += [
            Row(f"{name}: net gain a day by {by}", float(np.mean(net_min[name][price])), "min") for name in net_min
        ]
    for name, training in result["trainings"].items():
        curve = training["curve"]
        gains = ", ".join(f"{epoch['rides/net_min']:.1f}" for epoch in curve)
        note = f"net gain of each epoch of {NUM_ENVS} days, by its own oracle: {gains}"
        if "oracle/taken" in curve[-1]:
            taken, fell_back = curve[-1]["oracle/taken"], curve[-1]["oracle/fell_back"]
            note += f"; decoded plans kept {taken:.0f} %, fell back {fell_back:.2f} %"
        mean = float(np.mean([epoch["cpu_s"] for epoch in curve]))
        found.append(Row(f"training over {name}: CPU time an epoch", mean, "s", note=note))
    return found


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--days", type=int, default=20)
    parser.add_argument("--pyvrp", type=int, default=100, help="iterations of PyVRP a day; 0: without")
    return parser.parse_args(given)


def main() -> None:
    stored.measure_parts(PLACE, parsed(), measured, summarise)


if __name__ == "__main__":
    main()
