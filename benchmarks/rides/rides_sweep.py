"""Where is negotiating a decision? Policies at twenty burdens, on the same held-out days, planned by the own oracle.

A burden is (patience, refusal): route minutes that a minute agreed to and a refused offer cost. Policies that never
look at it are played once and their net gain follows at every burden. Myopic and lookahead weigh it: played at each.
A cell is a *decision* where one of these two beats everything that needs no thought - asking nobody, asking
everyone for everything, the best fixed offer, the most that riders are likely to accept - with its paired interval.

    python -m benchmarks.rides.rides_sweep [--days 200] [--threads 2] [--plays runs/rides_sweep_200.json] [--store]

With --store it plays what is wanting: every play is kept day by day in the file --plays, so that it goes on where it
was stopped; the result has the cells. Without, it shows what is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from shoal.core.arrays import Array
from shoal.rides.contest.play import Entrant, contest
from shoal.rides.contest.record import Contest
from shoal.rides.contest.scores import Bootstrap
from shoal.rides.options import BURDENS, RidesOptions
from shoal.rides.policies.simple import POLICIES, constant
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN
from shoal.runs.disk import replace_atomically

PLACE, NAME = "benchmarks.rides.rides_sweep", "rides_sweep"
DAYS, ITERATIONS, TRAINING_DAYS = 200, 100, 64
PATIENCE, REFUSAL = (0.0, 0.02, 0.05, 0.1, 0.2), (0.0, 0.5, 1.0, 2.0)
KNOWLEDGE = ("true", "learned")
WEIGHING = {  # policies that depend on the burden: name, and what their observations show
    "myopic insertion": ("myopic", {"start": "none", "prices": "insertion"}),
    "myopic pooled": ("myopic", {"start": "none", "prices": "pooled"}),
    "lookahead insertion": ("lookahead", {"start": "lookahead", "prices": "insertion"}),
    "lookahead pooled": ("lookahead", {"start": "lookahead", "prices": "pooled"}),
}
Play = dict[str, Any]  # policy, knowledge, burden or None, and lists over days: saved_s, agreed_min, refused, offers
Burden = tuple[float, float]
Say = Callable[[str], None]


def burdens() -> list[Burden]:
    """The cells of the sweep."""
    return [(patience, refusal) for patience in PATIENCE for refusal in REFUSAL]


def missing(
    plays: Sequence[Play], say: Say, keep: Callable[[list[Play]], None], days: int = DAYS, threads: int = 2
) -> list[Play]:
    """`plays` and those still wanting, played now; `keep` is handed all of them after each step."""
    found = list(plays)
    done = {(one["policy"], one["knowledge"], _burden(one)) for one in found}
    fixed = fixed_on_training_days()
    steps: list[tuple[Burden | None, str]] = [(None, knowledge) for knowledge in KNOWLEDGE]
    # The row and the column of the defaults first: a sweep that is stopped early has then said the most.
    crossing = sorted(burdens(), key=lambda one: sum(a != b for a, b in zip(one, BURDENS["default"], strict=True)))
    steps += [(burden, knowledge) for burden in crossing for knowledge in KNOWLEDGE]
    for burden, knowledge in steps:
        entrants = entrants_of(burden, knowledge, fixed)
        wanting = {name: one for name, one in entrants.items() if (name, knowledge, burden) not in done}
        if not wanting:
            continue
        say(f"P {knowledge}, " + ("policies that ignore the burden" if burden is None else f"burden {burden}"))
        own = {**_own(burden or BURDENS["default"]), "knowledge": knowledge}
        options = replace(RidesOptions(), **own)
        played = contest(wanting, options, days=days, iterations=ITERATIONS, threads=threads)
        found += [play_of(played, name, knowledge, burden) for name in wanting]
        keep(found)
    return found


def entrants_of(burden: Burden | None, knowledge: str, fixed: dict[str, Array]) -> dict[str, Entrant]:
    """Who plays at a burden; at None those that do not look at it, of which only one needs to know riders."""
    if burden is not None:
        return {name: Entrant(POLICIES[policy](), seen) for name, (policy, seen) in WEIGHING.items()}
    plain: dict[str, Any] = {"start": "none"}
    found = {"max-change": Entrant(POLICIES["max-change"](), plain)}
    if knowledge == KNOWLEDGE[0]:
        found["everything"] = Entrant(POLICIES["everything"](), plain)
        chosen = {best_fixed(fixed, one) for one in burdens()}
        found |= {f"fixed {offer}": Entrant(constant(offer), plain) for offer in sorted(chosen)}
    return found


def play_of(played: Contest, name: str, knowledge: str, burden: Burden | None) -> Play:
    """What is kept of a play: enough for its net gain at any burden."""
    play = played.played[name]
    return {
        "policy": name,
        "knowledge": knowledge,
        "burden": None if burden is None else list(burden),
        "saved_s": (60 * played.saved_min(name)).round().astype(int).tolist(),
        "base_s": played.played["none"].cost_s.tolist(),
        "agreed_min": play.agreed_min.sum(1).tolist(),
        "refused": play.refused.sum(1).tolist(),
        "offers": (play.offer != NO_CHANGE).sum(1).tolist(),
    }


def fixed_on_training_days(days: int = TRAINING_DAYS, iterations: int = 10) -> dict[str, Array]:
    """Mean cost, minutes agreed and refusals of each of the 16 offers made to everyone, on training days."""
    from shoal.core.seeds import Stream, episode_seed
    from shoal.rides.bookings import Bookings
    from shoal.rides.routing.oracle import RoutingOracle
    from shoal.rides.world.world import make_world

    world = make_world(RidesOptions())
    source = world.days("train")
    drawn = [source.draw(episode_seed(0, day, 0, Stream.TRAIN)) for day in range(days)]
    bookings = Bookings(world, days * NUM_OFFERS, RoutingOracle(world.problem), with_base=False)
    bookings.begin(np.arange(days * NUM_OFFERS), [day for day in drawn for _ in range(NUM_OFFERS)])
    offers = np.tile(np.arange(NUM_OFFERS), days)
    for _ in range(bookings.customers):
        bookings.book(offers, iterations)
    columns = {
        "cost_min": bookings.cost_s() / 60,
        "agreed_min": bookings.agreed_min().sum(1),
        "refused": bookings.refused().sum(1),
    }
    return {name: values.reshape(days, NUM_OFFERS).mean(0) for name, values in columns.items()}


def best_fixed(fixed: dict[str, Array], burden: Burden) -> int:
    """The change that costs least when everyone is asked for it."""
    loss = fixed["cost_min"] + burden[0] * fixed["agreed_min"] + burden[1] * fixed["refused"]
    return int(np.where(OFFER_MIN > 0, loss, np.inf).argmin())


# -- what came out ---------------------------------------------------------------------------------


def net_min(play: Play, burden: Burden) -> Array:
    """float64[D]: minutes saved net of burden."""
    agreed, refused = np.array(play["agreed_min"]), np.array(play["refused"])
    return np.asarray(np.array(play["saved_s"]) / 60 - burden[0] * agreed - burden[1] * refused)


def cells(plays: Sequence[Play], fixed: dict[str, Array]) -> list[dict[str, Any]]:
    """One cell for each burden and kind of knowledge whose plays are complete."""
    found = []
    for burden in burdens():
        for knowledge in KNOWLEDGE:
            here = dict(_plays_at(plays, burden, knowledge, best_fixed(fixed, burden)))
            if len(here) == len(WEIGHING) + 3:
                found.append(_cell(here, burden, knowledge, best_fixed(fixed, burden)))
    return found


def _plays_at(plays: Sequence[Play], burden: Burden, knowledge: str, offer: int) -> Iterator[tuple[str, Play]]:
    for one in plays:
        if one["policy"] in ("everything", f"fixed {offer}"):
            yield one["policy"].split()[0], one
        elif one["knowledge"] == knowledge and _burden(one) in (None, burden) and "fixed" not in one["policy"]:
            yield one["policy"], one


def _cell(here: dict[str, Play], burden: Burden, knowledge: str, offer: int) -> dict[str, Any]:
    net = {"none": np.zeros(len(here["everything"]["saved_s"]))} | {
        name: net_min(play, burden) for name, play in here.items()
    }
    boot = Bootstrap(len(net["none"]), resamples=2000)
    weighing = max(WEIGHING, key=lambda name: net[name].mean())
    thoughtless = max(set(net) - set(WEIGHING), key=lambda name: net[name].mean())
    over = {name: boot.mean((net[weighing] - net[name])[None]) for name in net if name != weighing}
    margin = over[thoughtless]
    policies = {
        name: {
            "net_min": _rounded(boot.mean(net[name][None])),
            "improvement_percent": round(100 * sum(play["saved_s"]) / sum(play["base_s"]), 3),
            "agreed_min": round(float(np.mean(play["agreed_min"])), 2),
            "refusals": round(float(np.mean(play["refused"])), 3),
            "offers": round(float(np.mean(play["offers"])), 3),
        }
        for name, play in here.items()
    }
    return {
        "patience": burden[0],
        "refusal": burden[1],
        "knowledge": knowledge,
        "fixed_offer": offer,
        "policies": policies,
        "best_weighing": weighing,
        "best_thoughtless": thoughtless,
        "best_weighing_over": {name: _rounded(one) for name, one in over.items()},
        "margin_min": _rounded(margin),
        "decision": margin["low"] > 0,
    }


def summarise(found: Sequence[dict[str, Any]], days: int) -> list[Row]:
    """The margin of weighing over not thinking, cell by cell."""
    out = []
    for cell in found:
        name = f"rides sweep, patience {cell['patience']:g}, refusal {cell['refusal']:g}, {cell['knowledge']} P: "
        note = (
            f"{cell['best_weighing']} over {cell['best_thoughtless']}, 95 % interval "
            f"{cell['margin_min']['low']:.1f} to {cell['margin_min']['high']:.1f} over {days} days"
        )
        detail = {policy: figures["net_min"]["mean"] for policy, figures in cell["policies"].items()}
        name += "best weighing policy over the best that needs no thought"
        out.append(Row(name, cell["margin_min"]["mean"], "min", note=note, detail=detail))
    return out


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 3) for key, value in figures.items()}


def _own(burden: Burden) -> dict[str, Any]:
    return {"burden": "own", "patience": burden[0], "refusal": burden[1]}


def _burden(play: Play) -> Burden | None:
    return None if play["burden"] is None else (play["burden"][0], play["burden"][1])


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored cells; with `full` everything is played again."""
    if not full:
        return stored.read_rows(NAME, PLACE)
    return summarise(cells(missing([], say, lambda plays: None), fixed_on_training_days()), DAYS)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plays", type=Path)
    given = parser.parse_args()
    if stored.storing(given):
        path = given.plays or Path("runs") / f"rides_sweep_{given.days}.json"
        fixed = fixed_on_training_days()

        def keep(plays: list[Play]) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_atomically(path, json.dumps(plays).encode())
            found = cells(plays, fixed)
            more = {"days": given.days, "iterations": ITERATIONS, "cells": found}
            stored.write(NAME, f"python -m {PLACE} --days {given.days} --store", summarise(found, given.days), **more)

        plays = json.loads(path.read_text()) if path.exists() else []
        missing(plays, stored.print_line, keep, given.days, given.threads)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
