"""`shoal rides ...` and `shoal evaluate` for this task: functions that return data; the command line prints them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shoal.rides.contest.play import Entrant, Policy, contest, histories_only
from shoal.rides.contest.record import BASE, Contest
from shoal.rides.contest.scores import KINDS, summary
from shoal.rides.options import FUTURES, RidesOptions

Array = np.ndarray[Any, Any]

ENOUGH_RUNS = 5  # trainings under one name, for a verdict
# What a trained run is shown against.
BASELINES = (BASE, "max-change", "myopic", "myopic:pooled", "lookahead", "lookahead:pooled")

# What changes in each shift test: the world, never the policy or what it learned of the riders it was trained on.
SHIFTS: dict[str, dict[str, Any]] = {
    "cold": {"history": 0},
    "45": {"customers": 45},
    "60": {"customers": 60},
    "fleet": {"vehicles": 2},  # with 3 or more nobody is turned away: no other world
    "mix": {"type_mix": (6.0, 8.0, 13.0, 3.0)},
    "rule": {"acceptance": "rule"},
}
SHIFT_WORDS = {
    "": "as in training",
    "cold": "cold riders: no earlier answers known",
    "45": "45 customers a day",
    "60": "60 customers a day",
    "fleet": "2 vehicles, too few for everybody",
    "mix": "another mix of types: inflexible riders most common",
    "rule": "riders who answer by the strict rule of their type",
}


def policy_by_name(name: str) -> Policy:
    """A baseline: its name, or its name and an argument, such as myopic:pooled or fixed:0."""
    from shoal.rides.policies.simple import POLICIES

    plain, colon, argument = name.partition(":")
    if name == "rollout:agent":
        raise ValueError("rollout:agent plays futures with a run's agent: shoal evaluate RUN --policy rollout:agent")
    if plain not in POLICIES:
        raise ValueError(f"expected a policy of {', '.join(POLICIES)}, got {name!r}")
    if not colon:
        return POLICIES[plain]()
    value: Any = argument
    for kind in (int, float):
        try:
            value = kind(argument)
            break
        except ValueError:
            continue
    try:
        return POLICIES[plain](value)
    except TypeError:
        raise ValueError(f"{plain} takes no argument, or not one like {argument!r}: got {name!r}") from None


def baseline(name: str, futures: int = FUTURES) -> Entrant:
    """A baseline as an entrant; it sees what it needs to see: insertion prices, or with name:pooled pooled ones.

    `futures` are for the one that looks at some, `taught`.
    """
    plain, _, argument = name.partition(":")
    priced = argument in ("insertion", "pooled")
    seen: dict[str, Any] = {
        "start": "lookahead" if plain == "lookahead" else "none",
        "prices": argument if priced else "insertion",
    }
    if plain == "taught":
        seen |= {"start": "taught", "prices": argument or "pooled", "futures": futures}
    return Entrant(policy_by_name(plain if priced else name), seen)


def shifts_named(name: str | None) -> list[str]:
    """The shift tests behind `--shift`; "" is the world of training."""
    if name is None:
        return [""]
    if name == "all":
        return ["", *SHIFTS]
    if name not in SHIFTS:
        raise ValueError(f"expected --shift of {', '.join(SHIFTS)} or all, got {name!r}")
    return [name]


def _playable(shifts: list[str], options: RidesOptions, say: Callable[[str], None]) -> list[str]:
    """Those of the shift tests that have riders enough: found out before hours are spent on the others."""
    from shoal.rides.world.world import make_world

    out = []
    for name in shifts:
        try:
            make_world(replace(options, **SHIFTS.get(name, {}))).days("held_out")
            out.append(name)
        except ValueError as error:
            if len(shifts) == 1:
                raise
            say(f"shift {name or 'base'} is left out: {error}")
    return out


def run_contests(
    entrants: dict[str, Entrant],
    options: RidesOptions,
    *,
    shift: str | None = None,
    flexibility: dict[str, Array] | None = None,
    against: Sequence[str] = BASELINES,
    groups: dict[str, list[str]] | None = None,
    reference: Callable[[Any], Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> tuple[dict[str, Any], Contest]:
    """One contest per shift test: the results as plain data, and the first contest itself, for pictures.

    `reference` makes a Reference for a Problem (a shift may change the fleet). `settings` go to `contest`.
    """
    chosen = _playable(shifts_named(shift), options, say)
    state = histories_only(options) if flexibility is None else flexibility  # learned before the world changes
    results: dict[str, Any] = {}
    first: Contest | None = None
    for name in chosen:
        changed = replace(options, **SHIFTS.get(name, {}))
        if name:
            say(f"shift {name}: {SHIFT_WORDS[name]}")
        judge = None
        if reference is not None:
            from shoal.rides.world.world import make_world

            judge = reference(make_world(changed).problem)
        found = contest(entrants, changed, flexibility=state, believed=options, reference=judge, say=say, **settings)
        first = first or found
        results[name or "base"] = summary(found, against=against, groups=groups) | {
            "shift": name,
            "about": SHIFT_WORDS[name],
        }
    assert first is not None
    return results, first


# -- for people -------------------------------------------------------------------------------------


def table_lines(result: dict[str, Any]) -> list[str]:
    """The table of one contest."""
    priced = "reference" in result["prices"]
    main, judge = ("reference", "reference") if priced else ("own", "own oracle")
    policies = result["policies"]
    width = max(12, *(len(name) + 2 for name in policies))
    riders = "held-out riders" if result.get("held_out") != "days" else "riders known from training"
    lines = [
        f"{result['about']}: {result['days']} held-out days, {result['customers']} {riders} each, "
        f"{result['vehicles']} vehicles, seed {result['seed']}",
        f"net gain = route minutes saved - {result['patience']:g} per minute agreed to - {result['refusal']:g} "
        "per refusal",
        "",
        f"{'':{width}}{'net gain, min, by the ' + judge:^30}{'own' if priced else '':>8}{'saved':>9}"
        f"{'agreed':>10}{'refusals':>10}{'accepted':>10}{'failed':>9}{'ride /':>8}{'gap':>8}",
        f"{'':{width}}{'mean  [95 % interval]':^30}{'oracle' if priced else '':>8}{'%':>9}{'min/rider':>10}"
        f"{'a day':>10}{'%':>10}{'%':>9}{'direct':>8}{'closed':>8}",
    ]
    for name, row in sorted(policies.items(), key=lambda item: item[1]["net_min"][main]["mean"]):
        net = row["net_min"][main]
        own = f"{row['net_min']['own']['mean']:.1f}" if priced else ""
        gap = row["gap_closed_percent"].get(main)
        lines.append(
            f"{name:{width}}{_with_interval(net):^30}{own:>8}{row['improvement_percent'][main]['mean']:>9.2f}"
            f"{row['agreed_min_per_rider']:>10.1f}{row['refusals']:>10.1f}{_percent(row['acceptance_percent']):>10}"
            f"{row['failure_percent']['own']:>9.2f}{row['ride_to_direct']['mean']:>8.2f}"
            f"{'' if gap is None or gap['mean'] is None else format(gap['mean'], '.0f') + ' %':>8}"
        )
    failed = sum(row.get("reference_errors", 0) for row in policies.values())
    if failed:
        lines += ["", f"the reference failed on {failed} days, which count as if nobody was driven"]
    lines += _difference_lines(result, main, width)
    lines += ["", "minutes agreed per rider, by hidden type", " " * width + "".join(f"{kind:>12}" for kind in KINDS)]
    for name, row in policies.items():
        if name != BASE:
            by_type = row["agreed_min_by_type"]
            cells = ("-" if by_type[kind] is None else f"{by_type[kind]:.1f}" for kind in KINDS)
            lines.append(f"{name:{width}}" + "".join(f"{cell:>12}" for cell in cells))
    return [line.rstrip() for line in lines]


def _difference_lines(result: dict[str, Any], main: str, width: int) -> list[str]:
    """Paired differences: of groups of runs where there are any, of everyone else one by one."""
    lines = []
    rows = {f"{name} ({len(group['runs'])} runs)": group for name, group in result["groups"].items()}
    inside = {member for group in result["groups"].values() for member in group["runs"]}
    rows |= {name: {"differences": value} for name, value in result["differences"].items() if name not in inside}
    shown: set[tuple[str, str]] = set()
    width = max(width, *(len(name) for name in rows)) if rows else width
    for name, row in rows.items():
        for other, by_price in row["differences"].items():
            if other == BASE or (other, name) in shown:  # the net gain itself; the same pair the other way round
                continue
            shown.add((name, other))
            cell = by_price[main]
            own = f"   own oracle {_with_interval(by_price['own'])}" if main != "own" else ""
            runs = f"   by run {', '.join(f'{value:+.1f}' for value in cell['runs'])}" if "runs" in cell else ""
            sure = "" if cell["low"] <= 0 <= cell["high"] else " *"
            lines.append(f"{name:{width}} - {other:<14}{_with_interval(cell):^26}{sure:2}{own}{runs}")
    fewest = min((len(group["runs"]) for group in result["groups"].values()), default=ENOUGH_RUNS)
    if fewest < ENOUGH_RUNS:
        lines.append(f"{fewest} runs are figures, not a verdict: train at least {ENOUGH_RUNS} seeds for one")
    return ["", "paired differences of net gain, min (* the interval excludes 0)", *lines] if lines else []


def _with_interval(cell: dict[str, Any]) -> str:
    return "-" if cell["mean"] is None else f"{cell['mean']:+.1f} [{cell['low']:+.1f}, {cell['high']:+.1f}]"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
