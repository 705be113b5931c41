"""What the routing oracle costs, and how far its plans are from the best known.

Our side is measured now; what it is compared with took long and is read from benchmarks/results/rides_gap.json.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides import days as rides_days
from benchmarks.rides import rides_gap
from shoal.core.arrays import Array
from shoal.rides.options import BURDENS
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import OFFER_MIN, Status

Say = Callable[[str], None]
NUM_ENVS, TURNS = 256, 8  # turns: each stored day is planned so many times, with other keys
STEP_TARGET_MS, GAP_TARGET, MENU_TARGET, PEAK_TARGET, LI_LIM_TARGET, LI_LIM_S = 60.0, 1.0, 90.0, 5.0, 1.0, 2.0
BEST_KNOWN = {  # Li and Lim's instances: vehicles, distance
    "lc101": (10, 828.94),
    "lc201": (3, 591.56),
    "lr101": (19, 1650.80),
    "lr201": (4, 1253.23),
}
_WITHOUT = f"nothing stored about today's city: python -m {rides_gap.PLACE} --store"


def rows(say: Say, full: bool = False, instances: str | Path | None = None) -> list[Row]:
    """Cost and gap of the incremental oracle, the pooled menu's choice and cost, peaks, public instances."""
    if full:
        known = rides_gap.missing(rides_gap.empty(), say, lambda truth: None)
    else:
        known = {**rides_gap.empty(), **(stored.read(rides_gap.NAME) or {})}
    return [
        *step_cost(say),
        *gap(known, say),
        *menu_choice(known, say),
        *menu_cost(say),
        *peak(known, say),
        *li_lim(instances, say),
    ]


def step_cost(say: Say, num_envs: int = NUM_ENVS, rounds: int = 3) -> list[Row]:
    """CPU time of planning one request on every one of 256 days, averaged over a day; one thread."""
    numbers = range(num_envs)
    days = rides_days.asked(numbers)
    oracle = RoutingOracle(rides_days.world().problem)
    rides_days.booked(oracle, numbers, days, steps=2)  # compiles
    spent = []
    for turn in range(rounds):
        began = time.process_time()
        rides_days.booked(oracle, numbers, days, turn)
        spent.append(1000 * (time.process_time() - began) / days.shape[1])
    say(f"incremental K=30: {statistics.median(spent):.1f} ms CPU a step of {num_envs} days")
    name = f"rides incremental K=30, {num_envs} environments, CPU a step over a 30-request day"
    return [Row(name, statistics.median(spent), "ms", STEP_TARGET_MS, "lower", detail={"rounds": spent})]


def gap(known: rides_gap.Truth, say: Say, turns: int = TURNS) -> list[Row]:
    """How much longer incrementally planned days are than the best plans known."""
    name = "rides incremental K=30, mean gap to the best known plan of a 30-request day"
    problem = rides_days.world().problem
    entries = rides_gap.current(known["days"], problem, "days")
    if not entries:
        return [Row(name, None, "%", GAP_TARGET, "lower", _WITHOUT)]
    numbers = [int(one["day"]) for one in entries]
    oracle, days = RoutingOracle(problem), rides_days.asked(numbers)
    total_s = np.stack([rides_days.booked(oracle, numbers, days, turn).total_s for turn in range(turns)])
    best_s = np.array([one["best_s"] for one in entries])
    percent = 100 * (total_s / best_s - 1)  # float64[turns, days]
    say(f"gap {percent.mean():.2f} % over {len(numbers)} days")
    shortest = min(one["pyvrp_search_s"] for one in entries)
    note = (
        f"{len(numbers)} held-out days planned {turns} times each; best known of PyVRP {shortest:g} s x "
        f"{entries[0]['pyvrp_searches']} seeds and {rides_gap.OWN_SEARCHES} long searches of our own"
    )
    pyvrp = [100 * (one["pyvrp_s"] / one["best_s"] - 1) for one in entries if one["pyvrp_s"]]
    detail = {
        "median": float(np.median(percent)),
        "worst_day": float(percent.mean(0).max()),
        "standard_error": float(percent.mean(0).std(ddof=1) / len(numbers) ** 0.5) if len(numbers) > 1 else None,
        "plans_better_than_best_known": int((percent < 0).sum()),
        "pyvrp_mean_gap": float(np.mean(pyvrp)) if pyvrp else None,
    }
    return [Row(name, float(percent.mean()), "%", GAP_TARGET, "lower", note, detail=detail)]


def menu_choice(known: rides_gap.Truth, say: Say, turns: int = 4) -> list[Row]:
    """How often the offer with the least pooled price is the offer that is truly best."""
    problem = rides_days.world().problem
    entries = rides_gap.current(known["menus"], problem, "menus")
    oracle = RoutingOracle(problem)
    patience_s = 60 * BURDENS["default"][0] * OFFER_MIN
    cases = {
        "widen": ("an offer widens; travel and patience", patience_s),
        "shift": ("an offer shifts; travel alone", np.zeros_like(patience_s)),
    }
    found = []
    for effect, (words, extra_s) in cases.items():
        name = f"rides pooled menu finds the best offer ({words})"
        states = [one for one in entries if one["effect"] == effect]
        chosen: dict[str, list[float]] = {"pooled": [], "insertion": []}
        contested: list[float] = []  # losses where the offers differ in truth by more than patience
        for one, turn in itertools.product(states, range(1, 1 + turns)):  # turn 0 helped to find the truth
            lost = regrets(oracle, one, extra_s, turn)
            for menu, regret_s in lost.items():
                chosen[menu].append(regret_s)
            if lost and len(set(one["cost_s"])) > 1:
                contested.append(lost["pooled"])
        if not chosen["pooled"]:
            found.append(Row(name, None, "%", MENU_TARGET, note=_WITHOUT))
            continue
        share = {menu: 100 * float(np.mean(np.array(lost) <= 0)) for menu, lost in chosen.items()}
        say(f"pooled menu, {effect}: best offer in {share['pooled']:.1f} % of {len(chosen['pooled'])} menus")
        detail = {
            "states": len(states),
            "menus": len(chosen["pooled"]),
            "menus_where_offers_differ": len(contested),
            "of_those": 100 * float(np.mean(np.array(contested) <= 0)) if contested else None,
            "insertion_prices": share["insertion"],
            "mean_loss_s": float(np.mean(chosen["pooled"])),
            "within_30_s": 100 * float(np.mean(np.array(chosen["pooled"]) <= 30)),
        }
        note = (
            f"{len(states)} states planned {turns} times; ties count; truth: the best of long searches for each offer"
        )
        if effect == "widen":
            note += "; by travel alone the widest offer is always best"
        found.append(Row(name, share["pooled"], "%", MENU_TARGET, note=note, detail=detail))
    return found


def regrets(oracle: RoutingOracle, entry: dict[str, Any], extra_s: Array, turn: int = 0) -> dict[str, float]:
    """Seconds by which the offer that each menu prefers is worse than the best one; nothing for a state with a
    request that was turned away."""
    number, effect = int(entry["day"]), str(entry["effect"])
    requests = rides_gap.state(number)
    plans = rides_days.booked(oracle, [number], rides_days.asked([number]), turn, len(requests) - 1)
    if not plans.served[0, : len(requests) - 1].all():
        return {}
    keys = rides_days.keys([number], len(requests) - 1, 100 + turn)
    pooled_s, pooled_ok = oracle.pooled_menu(plans, requests[-1:], keys, effect)
    inserted_s, inserted_ok = oracle.insertion_menu(plans, requests[-1:], effect)
    truth_s = np.array([np.inf if cost is None else cost for cost in entry["cost_s"]])
    truth_s = np.minimum(truth_s, np.where(pooled_ok[0] == Status.OK, pooled_s[0], np.inf)) + extra_s
    found = {}
    for menu, price_s, ok in (("pooled", pooled_s, pooled_ok), ("insertion", inserted_s, inserted_ok)):
        priced = np.where(ok[0] == Status.OK, price_s[0] + extra_s, np.inf)
        found[menu] = float(truth_s[int(priced.argmin())] - truth_s.min())
    return found


def menu_cost(say: Say, num_envs: int = NUM_ENVS, every: int = 6) -> list[Row]:
    """CPU time of pricing all 16 offers in one state, over the states of a day."""
    numbers = range(num_envs)
    days = rides_days.asked(numbers)
    oracle = RoutingOracle(rides_days.world().problem)
    plans = Plans(oracle.problem, *days.shape)
    oracle.pooled_menu(plans, days[:, 0], rides_days.keys(numbers, 0))  # compiles
    spent_ms = []
    for step in range(days.shape[1]):
        if step % every == every - 1:
            began = time.process_time()
            oracle.pooled_menu(plans, days[:, step], rides_days.keys(numbers, step, 1))
            spent_ms.append(1000 * (time.process_time() - began) / num_envs)
        oracle.add(plans, days[:, step], rides_days.keys(numbers, step), rides_days.ITERATIONS)
    say(f"pooled menu: {statistics.fmean(spent_ms):.2f} ms CPU a state")
    note = "16 offers, 4 base searches x 30 iterations; mean over the steps of a day"
    return [Row("rides pooled menu, CPU a state", statistics.fmean(spent_ms), "ms", note=note)]


def peak(known: rides_gap.Truth, say: Say, turns: int = 4) -> list[Row]:
    """Days that can be driven, and on which the oracle turns somebody away all the same."""
    name = f"rides two-hour peak, {rides_days.PEAK_CUSTOMERS} requests: days wrongly called infeasible"
    problem = rides_days.world().problem
    entries = rides_gap.current(known["peaks"], problem, "peaks")
    numbers = [int(one["day"]) for one in entries if one["proved_by"] is not None]
    if not numbers:
        return [Row(name, None, "%", PEAK_TARGET, "lower", _WITHOUT)]
    oracle, days = RoutingOracle(problem), rides_days.peak(numbers)
    wrong = [
        100 * float(np.mean(~rides_days.booked(oracle, numbers, days, turn).served.all(1))) for turn in range(turns)
    ]
    plain = Plans(problem, *days.shape)
    for step in range(days.shape[1]):
        oracle.add(plain, days[:, step], rides_days.keys(numbers, step), rides_days.ITERATIONS, escalate=())
    say(f"peak: {statistics.fmean(wrong):.1f} % of {len(numbers)} days wrongly called infeasible")
    note = (
        f"of {len(entries)} days drawn the {len(numbers)} that a search with all requests known has a plan for (own, "
        f"else PyVRP {rides_gap.PROOF_SEEDS} x {rides_gap.PROOF_S:g} s), planned {turns} times; with 30 "
        "requests in two hours hardly a day can be driven"
    )
    detail = {
        "turns": wrong,
        "without_escalation": 100 * float(np.mean(~plain.served.all(1))),
        "proved_by_pyvrp_only": sum(one["proved_by"] == "pyvrp" for one in entries),
    }
    return [Row(name, statistics.fmean(wrong), "%", PEAK_TARGET, "lower", note, detail=detail)]


def li_lim(instances: str | Path | None, say: Say) -> list[Row]:
    """Distance above the best known with the best-known fleet, after two seconds of search."""
    from benchmarks.rides.li_lim import load_li_lim
    from benchmarks.rides.solving import solve

    found, longest_s = [], 0.0
    for name, (vehicles, best) in BEST_KNOWN.items():
        title = f"rides Li & Lim {name}, {vehicles} vehicles: distance above the best known"
        path = None if instances is None else Path(instances) / f"{name}.txt"
        if path is None or not path.exists():
            why = "give the folder of the instance files: --instances DIR" if path is None else f"no file {path.name}"
            found.append(Row(title, None, "%", LI_LIM_TARGET, "lower", why))
            continue
        instance = load_li_lim(path).with_vehicles(vehicles)
        solve(instance.problem, instance.requests, iterations=1)  # compiles
        began = time.perf_counter()
        seconds = 0.6 * LI_LIM_S  # a search overruns on a busy machine
        solution = solve(instance.problem, instance.requests, seconds=seconds)
        wall_s = time.perf_counter() - began
        longest_s = max(longest_s, wall_s)
        percent = 100 * (instance.distance(solution.cost_s) / best - 1)
        note = f"in {wall_s:.2f} s"
        if solution.unserved:  # no distance to speak of
            percent, note = 100.0, f"{len(solution.unserved)} requests without a place {note}"
        say(f"{name}: {percent:+.2f} %, {note}")
        detail = {"distance": instance.distance(solution.cost_s), "best_known": best}
        found.append(Row(title, percent, "%", LI_LIM_TARGET, "lower", note, detail=detail))
    if longest_s:
        found.append(Row("rides Li & Lim, longest of the searches", longest_s, "s", LI_LIM_S, "lower"))
    return found
