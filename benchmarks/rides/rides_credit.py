"""What credit from rebuilt days is worth: trainings from nothing and from a start, on held-out days; every seed stored.

One way to train after another (benchmarks/rides/credit_arms.py): its trainings and the baseline that they are compared
with are played and priced by the own oracle, then by the reference on the first 300 days; when all are there, the
reference goes on to 900. Everything is stored as soon as it is there, so that the study goes on where it was stopped.
Baselines know of riders' flexibility what the first training from nothing has learned. Weights and plans stay in the
work folder; a policy whose plans are not there any more is played again.

    python -m benchmarks.rides.rides_credit [--arms NAME ...] [--seeds S ...] [--own-only] [--work DIR] [--store]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides.credit_arms import ARMS, TODAY, WORK, load, settings, train

PLACE, NAME, DAYS, SEED = "benchmarks.rides.rides_credit", "rides_credit", 900, 2026
SEEDS = (201, 202, 203, 204, 205)
KNOWS = ("scratch", SEEDS[0])  # whose flexibility model the baselines have
OWN_ITERATIONS, REFERENCE = 300, (1000, 1)  # of the own oracle; iterations and searches of the reference
PRICED = (300, 600, 900)  # days by the reference, step by step
SAMPLED = 200  # days played with sampled offers
GREEDY_TO_SAMPLED = 1.0  # minutes
STEPS, RATE = 30, 1200.0  # of a day; steps a second, wanted on two cores
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
    priced: Sequence[int] = PRICED,
) -> Parts:
    """`parts` and those still wanting, made now; `keep` is handed all of them whenever there is more."""
    parts = [part for part in parts if part["settings"] == _settings(part["name"], days)]

    def have(name: str) -> dict[str, Any]:
        for part in parts:
            if part["name"] == name:
                return part
        parts.append(_played(name, work, days, say))
        say(f"{name}: net gain {np.mean(parts[-1]['own']):.2f} min by the own oracle")
        keep(parts)
        return parts[-1]

    def price(name: str, enough: int) -> None:
        part = have(name)
        if len(part["reference"]) >= min(enough, days):
            return
        if not _file(name, work, days).exists():
            part.update(_played(name, work, days, say))
        part["reference"] = _net_by_reference(name, work, days, min(enough, days))
        say(f"{name}: net gain {np.mean(part['reference']):.2f} min by the reference on {len(part['reference'])} days")
        keep(parts)

    groups = [[f"{arm} seed {seed}" for seed in seeds] + _against(arm, seeds) for arm in arms]
    for names in groups:
        for name in names:
            have(name)
        for name in names if priced else ():
            price(name, priced[0])
    for enough in priced[1:]:
        for name in dict.fromkeys(name for names in groups for name in names):
            price(name, enough)
    return parts


def _against(arm: str, seeds: Sequence[int]) -> list[str]:
    """What it is compared with, seed by seed or once."""
    other = ARMS[arm].against
    if other == TODAY:  # rides_learning has played it
        return []
    return [f"{other} seed {seed}" for seed in seeds] if other in ARMS else [other]


def _settings(name: str, days: int) -> str:
    arm, _, seed = name.partition(" seed ")
    made = settings(ARMS[arm]) if seed else f"{settings(ARMS[KNOWS[0]])}-{KNOWS[1]}"
    return f"{made}-{days}-{SEED}-{OWN_ITERATIONS}-{REFERENCE}"


def _file(name: str, work: Path, days: int) -> Path:
    plain = f"{name}-{_settings(name, days)}".translate(str.maketrans(" :(,", "----", ")"))
    return work / f"played-{plain}.npz"


def _played(name: str, work: Path, days: int, say: Callable[[str], None]) -> dict[str, Any]:
    """One policy on its days: net gain a day by the own oracle, greedy and sampled, and what it asked of riders."""
    from dataclasses import replace

    from shoal.core.machine import usable_cores
    from shoal.rides.commands import baseline
    from shoal.rides.contest.play import contest
    from shoal.rides.contest.record import BASE
    from shoal.rides.contest.scores import summary
    from shoal.rides.options import RidesOptions

    arm, _, seed = name.partition(" seed ")
    facts: dict[str, Any] = {}
    entrant: Any
    arm, number = (arm, int(seed)) if seed else KNOWS
    train(arm, number, work, say)
    trained = load(arm, number, work)
    shared: Any = {"seed": SEED, "iterations": OWN_ITERATIONS, "threads": usable_cores()}
    sampled = None
    if seed:
        facts = {f"trained_{part}" if part == "commit" else part: value for part, value in trained.facts.items()}
        entrant = trained.entrant
        if not ARMS[arm].shown:
            few = contest({"sampled": trained.sampled}, RidesOptions(), days=min(SAMPLED, days), **shared)
            sampled = round(float(few.net_min("sampled", "own").mean()), 3)
    else:
        entrant = replace(baseline(name, 0), flexibility=trained.entrant.flexibility)
    found = contest({name: entrant}, RidesOptions(), days=days, **shared)
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
        "sampled": sampled,
        "reference": [],
        "figures": summary(found, resamples=200)["policies"][name],
        "settings": _settings(name, days),
        **stored.stamp(),
    }


def _net_by_reference(name: str, work: Path, days: int, enough: int) -> list[float]:
    """Net gain of the first `enough` of the same days by the reference."""
    from shoal.core.machine import usable_cores
    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.reference import Reference
    from shoal.rides.world.world import make_world

    solver = Reference(make_world(RidesOptions()).problem, *REFERENCE, cache=work / "reference.cache")
    with np.load(_file(name, work, days), allow_pickle=False) as played:
        mine, base, burden_min = (played[part][:enough] for part in ("requests", "base", "burden_min"))
    cost_s = np.array([one.cost_s for one in solver.price([*base, *mine], workers=usable_cores())])
    if solver.errors:
        raise RuntimeError(f"the reference failed on {solver.errors} days of {name}: their prices mean nothing")
    net_min = (cost_s[:enough] - cost_s[enough:]) / 60.0 - burden_min
    return [round(float(value), 3) for value in net_min]


def summarise(parts: Parts, days: int = DAYS) -> list[Row]:
    """Each arm less what it is compared with, paired over days, resampled over days and seeds."""
    from shoal.rides.contest.scores import Bootstrap

    made = [part for part in parts if part["settings"] == _settings(part["name"], days)]
    found = []
    for prices in ("reference", "own"):
        nets = {part["name"]: np.array(part[prices]) for part in made if len(part[prices])}
        for name, arm in ARMS.items():
            title = f"rides, {name}: trained less {arm.against}, net gain a day, by the {prices} prices"
            seeds = [seed for seed in SEEDS if f"{name} seed {seed}" in nets]
            known = todays(prices) if arm.against == TODAY else nets
            wanted = list(known) if arm.against == TODAY else _against(name, seeds)
            others = [one for one in wanted if one in known]
            if not seeds or not others or len(others) < len(wanted):
                note = f"{len(seeds)} of {len(SEEDS)} seeds stored: python -m {PLACE} --store goes on"
                found.append(Row(title, None, "min", arm.target if prices == "reference" else None, note=note))
                continue
            both = [[nets[f"{name} seed {seed}"] for seed in seeds], [known[one] for one in others]]
            shared = min(len(net) for some in both for net in some)  # days that all of them have been priced on
            runs, base = (np.array([net[:shared] for net in some]) for some in both)
            # Other seeds than its own are no pairs: their mean, so that only this training's spread is in the interval.
            gain = Bootstrap(shared).mean(runs - (base.mean(0) if arm.against == TODAY else base))
            target = arm.target if prices == "reference" and len(runs) == len(SEEDS) else None
            note = (
                f"lower end of the 95 % interval; mean {gain['mean']:.2f}, upper {gain['high']:.2f}; {shared} days; "
                f"{len(runs)} seeds at {', '.join(f'{net.mean():.2f}' for net in runs)}, "
                f"{arm.against} at {', '.join(f'{net.mean():.2f}' for net in base)}"
            )
            found.append(Row(title, gain["low"], "min", target, note=note))
    for name in ARMS:
        of_arm = [part for part in made if part["name"].startswith(f"{name} seed ")]
        if of_arm and not ARMS[name].shown:
            apart = float(np.mean([np.mean(part["own"][:SAMPLED]) - part["sampled"] for part in of_arm]))
            cpu = ", ".join(f"{part['train_cpu_s']:.0f}" for part in of_arm)
            title, judged = f"rides, {name}: most probable offers less sampled ones", name == "scratch-insertion"
            target, note = GREEDY_TO_SAMPLED if judged else None, f"first {SAMPLED} days; trained in {cpu} CPU-s"
            found.append(Row(title, apart, "min", target, "lower", note))
            rates = [STEPS * part["days_trained"] / part["train_cpu_s"] for part in of_arm]
            title = f"rides, {name}: steps a CPU-second of training, credit and update included"
            target = RATE if name in ("scratch", "scratch-insertion") else None
            found.append(Row(title, float(np.mean(rates)), "steps/CPU-s", target))
    return found


def todays(prices: str) -> dict[str, Any]:
    """Net gain a day of each training by the shipped default that rides_learning has stored, on the same days."""
    result = stored.read("rides_learning") or {"parts": []}
    found = {part["name"]: part[prices] for part in result["parts"] if part["name"].startswith("seed ")}
    return {name: np.array(net) for name, net in found.items() if net is not None}


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
        chosen = {"arms": given.arms, "seeds": given.seeds, "priced": () if given.own_only else PRICED}
        keep(study(before, given.work, stored.print_line, keep, **chosen))
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
