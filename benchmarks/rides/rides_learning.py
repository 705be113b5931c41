"""What the trained ride negotiator is worth on held-out days, against the policies to beat; every seed stored.

Training seeds, baselines and yardsticks are played one after another on the same days, and stored as soon as each is
played and again when it is priced by the reference, so that the study goes on where it was stopped. A work folder
keeps runs, days and the reference's routes between sittings. Figures below the full number of seeds are no verdict.

    python -m benchmarks.rides.rides_learning [--own-only] [--work DIR] [--store]

With --store the parts still wanting are made; without the reference's prices if --own-only. Without, it shows what is
stored. DIR keeps runs, days and routes between sittings.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.harness.stored import settings_hash

PLACE, NAME, DAYS, SEED = "benchmarks.rides.rides_learning", "rides_learning", 900, 2026
SEEDS = tuple(range(101, 111))
BASELINES = ("max-change", "myopic", "myopic:pooled", "lookahead", "lookahead:pooled")
YARDSTICKS = {"taught": DAYS, "rollout": 200, "hindsight": 200}  # and on how many of the days
OWN_ITERATIONS, REFERENCE = 300, (1000, 1)  # of the own oracle; iterations and searches of the reference
Parts = list[dict[str, Any]]


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise(study([], Path(folder), say, lambda parts: None))
    result = stored.read(NAME)
    return summarise([]) if result is None else stored.as_stored(summarise(result["parts"]), result)


def study(
    parts: Parts, work: Path, say: Callable[[str], None], keep: Callable[[Parts], None], reference: bool = True
) -> Parts:
    """`parts` and those still wanting, made now: own prices of everything first, then the reference's."""
    parts = [part for part in parts if part["settings"] == settings()]
    work.mkdir(parents=True, exist_ok=True)
    for name in (*(f"seed {seed}" for seed in SEEDS), *BASELINES, *YARDSTICKS):
        if name not in {part["name"] for part in parts}:
            parts.append(_played(name, work))
            say(f"{name}: net gain {np.mean(parts[-1]['own']):.2f} min by the own oracle")
            keep(parts)
    for part in parts if reference else []:
        if part["reference"] is None:
            if not _days(part["name"], work).exists():
                say(f"{part['name']}: its days are not in {work.name}: playing them again")
                part.update(_played(part["name"], work))
            part["reference"] = net_min = _priced(part["name"], work)
            say(f"{part['name']}: net gain {np.mean(net_min):.2f} min by the reference")
            keep(parts)
    return parts


def settings() -> str:
    """A hash of what a result depends on beside the code: the preset, the shipped weights, how days are played."""
    from shoal.rides.options import FUTURES
    from shoal.rides.policies import futures as rollout
    from shoal.rides.policies import network

    digest = hashlib.sha256(settings_hash("rides").encode())
    quick = rollout.QUICK_BUILD_ITERATIONS, rollout.QUICK_PRICE_ITERATIONS, FUTURES
    digest.update(repr((SEED, OWN_ITERATIONS, REFERENCE, quick)).encode())
    for name in ("lookahead_pooled.npz", "taught_pooled.npz"):
        digest.update((Path(network.__file__).parents[1] / "data" / name).read_bytes())
    return digest.hexdigest()[:16]


def trained_run(seed: int, work: Path) -> tuple[str, dict[str, Any]]:
    """The run of this seed with the present settings, trained now unless the work folder has it."""
    from shoal.runs.disk import replace_atomically
    from shoal.training import train

    done = work / f"seed-{seed}-{settings()}.json"
    if not done.exists():
        result = train("rides", seed=seed, runs_dir=str(work), stream=StringIO())
        facts = {"days_trained": result.episodes, "train_cpu_s": round(result.cpu_s, 1)}
        replace_atomically(done, json.dumps({"run": Path(result.run).name, **facts}).encode())
    found: dict[str, Any] = json.loads(done.read_text())
    return found.pop("run"), found


def _days(name: str, work: Path) -> Path:
    return work / f"{name.replace(' ', '-').replace(':', '-')}-{settings()}.npz"


def _played(name: str, work: Path) -> dict[str, Any]:
    """One policy on its days: its net gain a day by the own oracle, what it asked of riders, what failed."""
    from shoal.core.machine import usable_cores
    from shoal.rides.commands import baseline
    from shoal.rides.contest.play import contest
    from shoal.rides.contest.record import BASE
    from shoal.rides.contest.scores import summary
    from shoal.rides.options import RidesOptions
    from shoal.rides.policies.learned import Negotiator

    # Whoever does not train believes of riders what the first seed learned of them.
    seed = int(name.split()[1]) if name.startswith("seed ") else SEEDS[0]
    run, trained = trained_run(seed, work)
    agent = Negotiator(run, runs_dir=work)
    entrant = agent.entrant() if name.startswith("seed ") else baseline(name)
    found = contest(
        {name: entrant}, RidesOptions(), days=YARDSTICKS.get(name, DAYS), seed=SEED, iterations=OWN_ITERATIONS,
        flexibility=agent.flexibility, threads=usable_cores(),
    )  # fmt: skip
    net_min = found.net_min(name, "own")
    np.savez(
        _days(name, work), allow_pickle=False, requests=found.played[name].requests, base=found.played[BASE].requests,
        burden_min=found.saved_min(name, "own") - net_min,
    )  # fmt: skip
    return {
        "name": name,
        "own": [round(float(value), 3) for value in net_min],
        "reference": None,
        "figures": summary(found, resamples=200)["policies"][name],
        "settings": settings(),
        **(trained if name.startswith("seed ") else {}),
        **stored.stamp(),
    }


def _priced(name: str, work: Path) -> list[float]:
    """Net gain of the same days by the reference."""
    from shoal.core.machine import usable_cores
    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.reference import Reference
    from shoal.rides.world.world import make_world

    solver = Reference(
        make_world(RidesOptions()).problem, REFERENCE[0], REFERENCE[1], cache=work / "reference.cache"
    )  # fmt: skip
    with np.load(_days(name, work), allow_pickle=False) as days:
        mine, base, burden_min = (days[part] for part in ("requests", "base", "burden_min"))
    cost_s = np.array([one.cost_s for one in solver.price([*base, *mine], workers=usable_cores())])
    if solver.errors:
        raise RuntimeError(f"the reference failed on {solver.errors} days of {name}: their prices mean nothing")
    net_min = (cost_s[: len(base)] - cost_s[len(base) :]) / 60.0 - burden_min
    return [round(float(value), 3) for value in net_min]


def summarise(parts: list[dict[str, Any]]) -> list[Row]:
    """The trained agent less the best baseline, paired over days, resampled over days and seeds."""
    from shoal.rides.contest.scores import Bootstrap

    made = [part for part in parts if part["settings"] == settings()]
    found = []
    for prices in ("reference", "own"):
        title = f"rides: trained agent less the best baseline, net gain a day, by the {prices} prices"
        nets = {part["name"]: np.array(part[prices]) for part in made if part[prices] is not None}
        runs = np.array([net for name, net in nets.items() if name.startswith("seed ")])
        others = {name: net for name, net in nets.items() if name in BASELINES}
        if not len(runs) or len(others) < len(BASELINES):
            note = f"{len(runs)} of {len(SEEDS)} seeds stored: python -m {PLACE} --store goes on"
            found.append(Row(title, None, "min", 0.0 if prices == "reference" else None, note=note))
            continue
        best = max(others, key=lambda name: float(others[name].mean()))
        gain = Bootstrap(DAYS).mean(runs - others[best])
        target = 0.0 if prices == "reference" and len(runs) == len(SEEDS) else None
        note = (
            f"lower end of the 95 % interval; mean {gain['mean']:.2f}, upper {gain['high']:.2f}, best is {best} at "
            f"{others[best].mean():.2f}; {len(runs)} seeds: " + ", ".join(f"{net.mean():.2f}" for net in runs)
        )
        found.append(Row(title, gain["low"], "min", target, note=note))
        found += _yardsticks(prices, runs, nets)
    return found


def _yardsticks(prices: str, runs: Any, nets: dict[str, Any]) -> list[Row]:
    """Rollout against lookahead, hindsight against everybody, training against what it started from."""
    from shoal.rides.contest.scores import Bootstrap

    found = []

    def row(title: str, minus: Any, target: float | None) -> None:
        gain = Bootstrap(minus.shape[-1]).mean(np.atleast_2d(minus))
        note = f"[{gain['low']:.2f}, {gain['high']:.2f}] over {minus.shape[-1]} days"
        found.append(Row(f"rides: {title}, by the {prices} prices", gain["mean"], "min", target, note=note))

    if "taught" in nets:
        row("trained agent less what it started from", runs - nets["taught"], None)
    judged = 0.0 if prices == "reference" else None
    if "rollout" in nets:
        count = len(nets["rollout"])
        looked = max((nets[one][:count] for one in BASELINES if one.startswith("lookahead")), key=np.mean)
        row("rollout less lookahead", nets["rollout"] - looked, judged)
        row("trained agent less rollout", runs[:, :count] - nets["rollout"], None)
    if "hindsight" in nets:
        count = len(nets["hindsight"])
        others = [net[:count] for one, net in nets.items() if one != "hindsight" and len(net) >= count]
        row("hindsight less the best of all", nets["hindsight"] - max(others, key=np.mean), judged)
    return found


def keep(parts: Parts) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(parts), parts=parts)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--own-only", action="store_true")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-rides-learning")
    given = parser.parse_args()
    if stored.storing(given):
        before = (stored.read(NAME) or {"parts": []})["parts"]
        study(before, given.work, stored.print_line, keep, reference=not given.own_only)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
