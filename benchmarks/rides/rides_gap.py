"""What long searches know of some days, stored: their best plans, their best offers, whether a peak can be driven.

    python -m benchmarks.rides.rides_gap [--days 24] [--seconds 60] [--states 48] [--peaks 60] [--workers 2] [--store]

rides_bench compares the routing oracle with it. Best known is the best of 60 s of PyVRP with each of three seeds and of
everything else that was run. With --store it stores after every piece and goes on where it was stopped; days with
shorter searches stored are searched again when more seconds are asked for, and never lose their best plan. Without, the
oracle of today is compared with what is stored.

A plan counts when the independent checker passes it, whoever found it. Every entry carries the fingerprint of what it
is about; entries about another city or other days are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides import days as rides_days
from benchmarks.rides.solving import Solution, solve
from shoal.core.arrays import Array
from shoal.rides.routing.checker import check_routes
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.problem import (
    EFFECTS,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    Problem,
    Status,
)
from shoal.rides.routing.reference import Reference

PLACE, NAME = "benchmarks.rides.rides_gap", "rides_gap"
DAYS, STATES, PEAKS = 24, 48, 60
PYVRP_S, PYVRP_SEEDS = 60.0, 3  # a search; best known is the best of these and our own
OWN_SEARCHES, OWN_ITERATIONS = 8, 100_000
MENU_SEARCHES, MENU_ITERATIONS = 4, 6_000  # for each of the 16 offers
PROOF_ITERATIONS, PROOF_S, PROOF_SEEDS = 50_000, 10.0, 2
CASES = ("widen", "shift")
Truth = dict[str, list[dict[str, Any]]]
Say = Callable[[str], None]
Keep = Callable[[Truth], None]


def empty() -> Truth:
    """Nothing known yet."""
    return {"days": [], "menus": [], "peaks": []}


def missing(
    known: Truth,
    say: Say,
    keep: Keep,
    *,
    days: int = DAYS,
    states: int = STATES,
    peaks: int = PEAKS,
    pyvrp_s: float = PYVRP_S,
    workers: int = 2,
) -> Truth:
    """`known` and what is still wanting, searched for now; `keep` is handed all of it after each piece.

    Days whose PyVRP searches were shorter than `pyvrp_s` are searched again; the best plan ever found stays.
    """
    for find in (best_days(known, days, pyvrp_s, workers), menus(known, states, workers), peak_days(known, peaks)):
        for text in find:
            say(text)
            keep(known)
    return known


def best_days(known: Truth, count: int, pyvrp_s: float, workers: int) -> Iterator[str]:
    """The best plan of whole days, `workers` days at a time."""
    problem = rides_days.world().problem
    done = {row["day"]: row for row in current(known["days"], problem, "days")}
    wanting = [day for day in range(count) if day not in done or done[day]["pyvrp_search_s"] < pyvrp_s]
    reference = Reference(problem)
    for low in range(0, len(wanting), workers):
        numbers = wanting[low : low + workers]
        requests = rides_days.asked(numbers)
        own = in_threads(workers, [(one, key) for one in requests for key in range(OWN_SEARCHES)], problem)
        pyvrp = reference.best_known(list(requests), pyvrp_s, PYVRP_SEEDS, workers)
        for row, number in enumerate(numbers):
            plans = own[row * OWN_SEARCHES : (row + 1) * OWN_SEARCHES]
            mine = [plan.cost_s for plan in plans if drives_everybody(problem, requests[row], plan)]
            before = done.get(number, {}).get("best_s")
            entry: dict[str, Any] = {
                "day": number,
                "key": rides_days.fingerprint(problem, requests[row]),
                "pyvrp_s": pyvrp[row].cost_s if pyvrp[row].status == Status.OK else None,
                "pyvrp_search_s": pyvrp_s,
                "pyvrp_searches": PYVRP_SEEDS,
                "own_s": min(mine, default=None),
                "own_searches_at_best": mine.count(min(mine)) if mine else 0,
            }
            entry["best_s"] = min(value for value in (entry["pyvrp_s"], entry["own_s"], before) if value is not None)
            known["days"] = sorted(
                [one for one in known["days"] if one["day"] != number] + [entry], key=lambda one: one["day"]
            )
            yield f"day {number}: PyVRP {entry['pyvrp_s']} s, own long search {entry['own_s']} s"


def menus(known: Truth, count: int, workers: int) -> Iterator[str]:
    """What the day costs under each of 16 offers to the request that calls, re-planned at leisure."""
    problem = rides_days.world().problem
    for effect in CASES:
        done = {row["day"] for row in current(known["menus"], problem, "menus") if row["effect"] == effect}
        for number in range(count):
            if number in done:
                continue
            requests = state(number)
            cost_s = menu_truth(problem, requests, effect, number, workers)
            entry = {"day": number, "known": len(requests) - 1, "effect": effect}
            entry |= {"key": rides_days.fingerprint(problem, requests), "cost_s": cost_s}
            known["menus"] = [one for one in known["menus"] if (one["day"], one["effect"]) != (number, effect)] + [
                entry
            ]
            yield f"state {number}, {effect}: {entry['known']} requests booked"


def state(number: int) -> Array:
    """REQUEST[t + 1]: t requests that are booked, between 4 and 29 of them, and the one that calls."""
    booked = 4 + 7 * number % 26  # 7 and 26 have no common divisor: all lengths come up equally often
    found: Array = rides_days.asked([number])[0, : booked + 1]
    return found


def menu_truth(problem: Problem, requests: Array, effect: str, number: int, workers: int) -> list[int | None]:
    """The least travel of the whole day under each offer, by searches of their own and by plans tried on all."""
    wide = [offered(requests, effect, offer) for offer in range(NUM_OFFERS)]
    tasks = [(one, key) for one in wide for key in range(MENU_SEARCHES)]
    plans = [one for one in in_threads(workers, tasks, problem, MENU_ITERATIONS) if not one.unserved]
    cost_s = [
        min((one.cost_s for one in plans if not check_routes(problem, requests_of, one.routes)), default=None)
        for requests_of in wide
    ]
    oracle = RoutingOracle(problem)
    before = rides_days.booked(oracle, [number], rides_days.asked([number]), steps=len(requests) - 1)
    if before.served[0, : len(requests) - 1].all():
        menu = oracle.pooled_menu(before, requests[-1:], rides_days.keys([number], 99), effect, 8, 1000)
        for offer in np.flatnonzero(menu.status[0] == Status.OK):
            found, price = cost_s[offer], int(menu.cost_s[0, offer])
            cost_s[offer] = price if found is None else min(found, price)
    return cost_s


def offered(requests: Array, effect: str, offer: int) -> Array:
    """The requests with the last one's windows as an offer leaves them."""
    out = requests.copy()
    out[-1:] = EFFECTS[effect](requests[-1:], OFFER_EARLIER_MIN[offer], OFFER_LATER_MIN[offer])
    return out


def peak_days(known: Truth, count: int) -> Iterator[str]:
    """Peaks that somebody has a plan for that serves everybody."""
    problem = rides_days.world().problem
    done = {row["day"] for row in current(known["peaks"], problem, "peaks")}
    reference = Reference(problem, serve_all=True)
    for number in range(count):
        if number in done:
            continue
        requests = rides_days.peak([number])[0]
        proof = None
        if drives_everybody(problem, requests, solve(problem, requests, iterations=PROOF_ITERATIONS)):
            proof = "own"
        elif reference.best_known([requests], PROOF_S, PROOF_SEEDS, 1)[0].status == Status.OK:
            proof = "pyvrp"
        entry = {"day": number, "key": rides_days.fingerprint(problem, requests), "proved_by": proof}
        known["peaks"] = [one for one in known["peaks"] if one["day"] != number] + [entry]
        yield f"peak {number}: {'no plan found' if proof is None else f'feasible, proved by {proof}'}"


def drives_everybody(problem: Problem, requests: Array, plan: Solution) -> bool:
    """Whether the checker passes a plan, with nobody left out."""
    return not plan.unserved and not check_routes(problem, requests, plan.routes)


def current(entries: Sequence[dict[str, Any]], problem: Problem, part: str) -> list[dict[str, Any]]:
    """The entries that are about the days of today's city."""
    requests_of: dict[str, Callable[[int], Array]] = {
        "days": lambda number: rides_days.asked([number])[0],
        "menus": state,
        "peaks": lambda number: rides_days.peak([number])[0],
    }
    return [one for one in entries if one["key"] == rides_days.fingerprint(problem, requests_of[part](int(one["day"])))]


def in_threads(
    workers: int, tasks: Sequence[tuple[Array, int]], problem: Problem, iterations: int = OWN_ITERATIONS
) -> list[Solution]:
    """A long search of each (requests, key); the search holds no lock."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda task: solve(problem, task[0], iterations=iterations, key=task[1]), tasks))


def compared(known: Truth) -> list[Row]:
    """The oracle of today beside it."""
    from benchmarks.rides import oracle  # which imports this module

    say = stored.print_line
    return oracle.gap(known, say) + oracle.menu_choice(known, say) + oracle.peak(known, say)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seconds", type=float, default=PYVRP_S)
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--peaks", type=int, default=PEAKS)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    store = stored.storing(given)
    known: Truth = {**empty(), **(stored.read(NAME) or {})}

    def keep(rows: list[Row]) -> None:
        parts: dict[str, Any] = {part: known[part] for part in empty()}
        stored.write(NAME, f"python -m {PLACE} --store", rows, **parts)

    if store:
        missing(
            known, stored.print_line, lambda found: keep([]), days=given.days, states=given.states, peaks=given.peaks,
            pyvrp_s=given.seconds, workers=given.workers,
        )  # fmt: skip
    rows = compared(known)
    if store:
        keep(rows)
    stored.show(rows)


if __name__ == "__main__":
    main()
