"""The neural oracle with the weights that ship: how far its routes are above the best known, days finished, time.

    python -m benchmarks.rides.neural_oracle [--days 20] [--pyvrp 20000] [--states 64] [--card] [--store]

Best known is the best of everything that is run: insertion, the incremental search with up to 3,000 iterations a
request, PyVRP (20,000 iterations: 10 s of CPU for a day of 30 requests), and the network. With --card the report goes
into the card of the weights too. Times are of all sizes and batches, on one thread and on two: the target for 256 days
is wall time on two cores, so it wants an idle machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row

PLACE, NAME = "benchmarks.rides.neural_oracle", "neural_oracle"
SIZES, BATCHES, THREADS = (5, 10, 20, 30, 45), (1, 64, 256, 1024, 4096), (1, 2)
TIMED = (30, 256)  # requests and days of the call that has a target
GREEDY_TARGETS, BEST_TARGETS = {10: 4.0, 20: 6.0, 30: 8.0}, {10: 3.0, 20: 4.0, 30: 5.0}
FINISHED_TARGET, CALL_TARGET_MS, PROMISED = 99.0, 250.0, 40.0
Say = Callable[[str], None]


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; with `full` it is measured again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(measured(parsed([]), say))


def measured(given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """The report, and how many of many days are finished."""
    from shoal.rides.oracle_report.command import OracleOptions, report

    sizes = tuple(given.requests)
    options = OracleOptions(
        "report", requests=sizes, days=given.days, pyvrp=given.pyvrp, states=given.states,
        batches=tuple(given.batches), timed=sizes, threads=THREADS,
    )  # fmt: skip
    return {"report": report(options, say), "finished": finished(given.finished, sizes)}


def finished(days: int, sizes: tuple[int, ...], weights: str = "") -> dict[str, list[int]]:
    """By number of requests: days on which the search serves everybody, and of those how many the decoder finishes."""
    from shoal.rides.options import RidesOptions
    from shoal.rides.routing.neural.router import Router
    from shoal.rides.routing.neural.weights import load_network
    from shoal.rides.routing.oracle import RoutingOracle
    from shoal.rides.routing.plans import Plans
    from shoal.rides.world.world import make_world

    world = make_world(RidesOptions(customers=max(sizes)))
    source = world.days("held_out", again=True)
    requests = np.stack([source.draw(10_000 + seed).requests for seed in range(days)])
    router, oracle = Router(load_network(weights), world.problem), RoutingOracle(world.problem)
    plans, keys, found = Plans(world.problem, days, max(sizes)), np.arange(days).astype(np.uint64), {}
    for step in range(max(sizes)):
        oracle.add(plans, requests[:, step].copy(), keys, 10)
        if step + 1 in sizes:
            whole = plans.served[:, : step + 1].all(1)
            routed = router.route(requests[whole, : step + 1], np.full(int(whole.sum()), step + 1))
            found[str(step + 1)] = [int(whole.sum()), int(routed.placed.all(1).sum())]
    return found


def summarise(result: dict[str, Any]) -> list[Row]:
    """The figures that have a target, and the others beside them."""
    from shoal.rides.oracle_report.gaps import GREEDY, INSERTION

    found, report = [], result["report"]
    days = report["days"]
    for part in report["sizes"]:
        size, plans = part["requests"], {row["oracle"]: row for row in part["plans"]}
        wanted = {GREEDY: GREEDY_TARGETS, "neural, best of 8 orders": BEST_TARGETS, "neural, best of 8 samples": {}}
        others = "; ".join(f"{name} {row['gap_percent']:.2f}" for name, row in plans.items() if name not in wanted)
        for name, targets in wanted.items():
            row = plans[name]
            note = (
                f"95th percentile {row['gap_p95_percent']:.1f}, standard error {row['standard_error']:.2f}, {days} days"
            )
            note += f"; {others}" if name == GREEDY else ""
            title = f"{name}, {size} requests: gap to the best known"
            found.append(Row(title, row["gap_percent"], "%", targets.get(size), "lower", note))
        greedy, insertion = plans[GREEDY], plans[INSERTION]
        if size in GREEDY_TARGETS:
            title = f"{size} requests: routes shorter than those of plain insertion"
            less = 100 * (1 - (100 + greedy["gap_percent"]) / (100 + insertion["gap_percent"]))
            found.append(Row(title, less, "%", 0.0))
        routable, whole = result["finished"][str(size)]
        title, note = f"{size} requests: days finished without fallback", f"of {routable:,} that the search can route"
        found.append(Row(title, 100 * whole / routable, "%", FINISHED_TARGET, note=note))
        found += _times(part)
        for row in part["offers"]:
            note = (
                f"wrong signs {row['sign_errors_percent']:.0f} %, {row['lost_min']:.2f} min lost by it, "
                f"{row['cpu_ms_a_state']:.1f} ms of CPU, {row['states']} states"
            )
            title = f"16 offers by {row['oracle']}, {size} requests: rank correlation"
            found.append(Row(title, row["rank_correlation"], "", note=note))
    return found


def _times(part: dict[str, Any]) -> list[Row]:
    from shoal.rides.oracle_report.gaps import GREEDY

    found, size = [], part["requests"]
    for row in part["speed"]:
        one_call = f"time of {row['days']:,} days of {size} requests in one call"
        if row["threads"] == min(THREADS):
            note = f"wall {row['wall_ms']:.0f} ms, {row['threads']} thread"
            found.append(Row(f"{row['oracle']}: CPU {one_call}", row["cpu_ms"], "ms", note=note))
        elif row["oracle"] == GREEDY:
            target = CALL_TARGET_MS if (size, row["days"]) == TIMED else None
            title, note = f"{GREEDY}: wall {one_call}, {row['threads']} threads", f"CPU {row['cpu_ms']:.0f} ms"
            found.append(Row(title, row["wall_ms"], "ms", target, "lower", note))
    one = part["one_call_for_64"]
    note = f"{one['singly_cpu_ms']:.0f} ms of CPU one by one, {one['together_cpu_ms']:.0f} ms together"
    title, target = f"64 days of {size} requests in 64 calls: CPU time over that of one call", None
    if size == TIMED[0]:
        title, target = "64 days in 64 calls: CPU time over that of one call", PROMISED
    return [*found, Row(title, one["ratio"], "x", target, note=note)]


def parsed(given: list[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=20, help="days of each size that every oracle plans")
    parser.add_argument("--pyvrp", type=int, default=20_000, help="iterations of PyVRP a day")
    parser.add_argument("--requests", type=int, nargs="+", default=SIZES, help="requests a day, one part each")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES, help="days in one call when it is timed")
    parser.add_argument("--states", type=int, default=64, help="states of each size whose 16 offers are priced")
    parser.add_argument("--finished", type=int, default=500, help="days of each size that the network decodes")
    parser.add_argument("--card", action="store_true", help="put the report into the card of the weights")
    return parser.parse_args(given)


def main() -> None:
    from shoal.rides.oracle_report.command import write_into_card

    given = parsed()
    result = stored.measure_parts(PLACE, given, measured, summarise)
    if given.card:
        write_into_card(result["report"], "")


if __name__ == "__main__":
    main()
