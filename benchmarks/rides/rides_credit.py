"""What credit from rebuilt days is worth: trainings from nothing and from a start, on held-out days; every seed stored.

Trainings (benchmarks/rides/credit_arms.py), baselines and their prices are made one after another and stored as soon as
each is there, so that the study goes on where it was stopped. Weights made on another machine are taken up from the
work folder.

    python -m benchmarks.rides.rides_credit [--arms NAME ...] [--own-only] [--work DIR] [--store]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides.credit_arms import ARMS, WORK, load, settings, train

PLACE, NAME, DAYS, SEED = "benchmarks.rides.rides_credit", "rides_credit", 900, 2026
SEEDS = (201, 202, 203, 204, 205)
BASELINES = ("myopic", "myopic:pooled", "lookahead", "lookahead:pooled", "taught")  # taught: without futures
OWN_ITERATIONS, REFERENCE = 300, (1000, 1)  # of the own oracle; iterations and searches of the reference
GREEDY_TO_SAMPLED = 1.0  # minutes
Parts = list[dict[str, Any]]


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise(study([], Path(folder), say, lambda parts: None))
    result = stored.read(NAME)
    return summarise([]) if result is None else stored.as_stored(summarise(result["parts"]), result)


def study(
    parts: Parts,
    work: Path,
    say: Callable[[str], None],
    keep: Callable[[Parts], None],
    *,
    arms: Sequence[str] = tuple(ARMS),
    seeds: Sequence[int] = SEEDS,
    days: int = DAYS,
    reference: bool = True,
) -> Parts:
    """`parts` and those still wanting, made now: seed by seed, own prices of everything first."""
    parts = [part for part in parts if part["settings"] == _settings(part["name"], days)]
    wanted = [*BASELINES, *(f"{arm} seed {seed}" for seed in seeds for arm in arms)]
    for name in wanted:
        if name not in {part["name"] for part in parts}:
            parts.append(_played(name, work, days, say))
            say(f"{name}: net gain {np.mean(parts[-1]['own']):.2f} min by the own oracle")
            keep(parts)
    for part in parts if reference else []:
        if part["reference"] is None:
            if not _file(part["name"], work, days).exists():
                part.update(_played(part["name"], work, days, say))
            part["reference"] = net_min = _priced(part["name"], work, days)
            say(f"{part['name']}: net gain {np.mean(net_min):.2f} min by the reference")
            keep(parts)
    return parts


def _settings(name: str, days: int) -> str:
    arm, _, seed = name.partition(" seed ")
    return f"{settings(ARMS[arm]) if seed else ''}-{days}-{SEED}-{OWN_ITERATIONS}-{REFERENCE}"


def _file(name: str, work: Path, days: int) -> Path:
    plain = f"{name}-{_settings(name, days)}".translate(str.maketrans(" :(,", "----", ")"))
    return work / f"played-{plain}.npz"


def _played(name: str, work: Path, days: int, say: Callable[[str], None]) -> dict[str, Any]:
    """One policy on its days: net gain a day by the own oracle, greedy and sampled, and what it asked of riders."""
    from shoal.core.machine import usable_cores
    from shoal.rides.commands import baseline
    from shoal.rides.contest.play import contest
    from shoal.rides.contest.record import BASE
    from shoal.rides.contest.scores import summary
    from shoal.rides.options import RidesOptions

    arm, _, seed = name.partition(" seed ")
    facts: dict[str, Any] = {}
    if seed:
        train(arm, int(seed), work, say)
        trained = load(arm, int(seed), work)
        facts = {f"trained_{part}" if part == "commit" else part: value for part, value in trained.facts.items()}
        entrants = {name: trained.entrant, "sampled": trained.sampled}
    else:
        entrants = {name: baseline(name, 0)}
    found = contest(
        entrants, RidesOptions(), days=days, seed=SEED, iterations=OWN_ITERATIONS, threads=usable_cores()
    )  # fmt: skip
    net_min = found.net_min(name, "own")
    work.mkdir(parents=True, exist_ok=True)
    np.savez(
        _file(name, work, days), allow_pickle=False, requests=found.played[name].requests,
        base=found.played[BASE].requests, burden_min=found.saved_min(name, "own") - net_min,
    )  # fmt: skip
    return {
        **facts,
        "name": name,
        "own": [round(float(value), 3) for value in net_min],
        "sampled": round(float(found.net_min("sampled", "own").mean()), 3) if seed else None,
        "reference": None,
        "figures": summary(found, resamples=200)["policies"][name],
        "settings": _settings(name, days),
        **stored.stamp(),
    }


def _priced(name: str, work: Path, days: int) -> list[float]:
    """Net gain of the same days by the reference."""
    from shoal.core.machine import usable_cores
    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.reference import Reference
    from shoal.rides.world.world import make_world

    solver = Reference(make_world(RidesOptions()).problem, *REFERENCE, cache=work / "reference.cache")
    with np.load(_file(name, work, days), allow_pickle=False) as played:
        mine, base, burden_min = (played[part] for part in ("requests", "base", "burden_min"))
    cost_s = np.array([one.cost_s for one in solver.price([*base, *mine], workers=usable_cores())])
    if solver.errors:
        raise RuntimeError(f"the reference failed on {solver.errors} days of {name}: their prices mean nothing")
    net_min = (cost_s[: len(base)] - cost_s[len(base) :]) / 60.0 - burden_min
    return [round(float(value), 3) for value in net_min]


def summarise(parts: Parts, days: int = DAYS) -> list[Row]:
    """Each arm less what it is compared with, paired over days, resampled over days and seeds."""
    from shoal.rides.contest.scores import Bootstrap

    made = [part for part in parts if part["settings"] == _settings(part["name"], days)]
    found = []
    for prices in ("reference", "own"):
        nets = {part["name"]: np.array(part[prices]) for part in made if part[prices] is not None}
        for name, arm in ARMS.items():
            title = f"rides, {name}: trained less {arm.against}, net gain a day, by the {prices} prices"
            runs = [net for one, net in nets.items() if one.startswith(f"{name} seed ")]
            if not runs or arm.against not in nets:
                note = f"{len(runs)} of {len(SEEDS)} seeds stored: python -m {PLACE} --store goes on"
                found.append(Row(title, None, "min", arm.target if prices == "reference" else None, note=note))
                continue
            gain = Bootstrap(days).mean(np.array(runs) - nets[arm.against])
            target = arm.target if prices == "reference" and len(runs) == len(SEEDS) else None
            note = (
                f"lower end of the 95 % interval; mean {gain['mean']:.2f}, upper {gain['high']:.2f}; {len(runs)} seeds "
                f"at {', '.join(f'{net.mean():.2f}' for net in runs)}, {arm.against} at {nets[arm.against].mean():.2f}"
            )
            found.append(Row(title, gain["low"], "min", target, note=note))
    for name in ARMS:
        both = [(np.mean(part["own"]), part["sampled"]) for part in made if part["name"].startswith(f"{name} seed ")]
        if both:
            apart = float(np.mean([greedy - sampled for greedy, sampled in both]))
            cpu = ", ".join(f"{part['train_cpu_s']:.0f}" for part in made if part["name"].startswith(f"{name} seed "))
            title, judged = f"rides, {name}: most probable offers less sampled ones", name == "scratch-insertion"
            found.append(
                Row(title, apart, "min", GREEDY_TO_SAMPLED if judged else None, "lower", f"trained in {cpu} CPU-s")
            )
    return found


def keep(parts: Parts) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(parts), parts=parts)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--own-only", action="store_true")
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=tuple(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--work", type=Path, default=WORK)
    given = parser.parse_args()
    if stored.storing(given):
        before = (stored.read(NAME) or {"parts": []})["parts"]
        chosen = {"arms": given.arms, "seeds": given.seeds}
        study(before, given.work, stored.print_line, keep, reference=not given.own_only, **chosen)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
