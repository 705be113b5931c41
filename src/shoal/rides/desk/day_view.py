"""Played days as plain data for pictures: routes before and after, windows, saving against burden, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.rides.contest.record import BASE, Contest
from shoal.rides.contest.scores import Bootstrap
from shoal.rides.desk.timetable import timetable
from shoal.rides.routing.problem import NO_CHANGE, OFFER_EARLIER_MIN, OFFER_LATER_MIN, Problem
from shoal.rides.vehicles import numbered_alike

Array = np.ndarray[Any, Any]


def typical_day(contest: Contest, name: str) -> int:
    """The day whose net gain is the median of all: a picture of it flatters nobody."""
    net = contest.net_min(name)
    return int(np.argsort(net, kind="stable")[len(net) // 2])


def route_lines(problem: Problem, requests: Array, routes: Sequence[Sequence[int]], moved: Any = ()) -> dict[str, Any]:
    """A day's routes for `figures.rides_day.draw_routes`; `moved` are requests to be ringed."""
    lines = []
    for route in routes:
        zones = [int(requests[stop // 2]["dropoff" if stop % 2 else "pickup"]) for stop in route]
        lines.append({"zones": [problem.depot, *zones, problem.depot] if zones else [], "stops": list(route)})
    legs = [(line["zones"][:-1], line["zones"][1:]) for line in lines if line["zones"]]
    travel_s = sum(int(problem.travel_s[start, end].sum()) for start, end in legs)
    return {"routes": lines, "travel_min": travel_s / 60.0, "moved": [int(request) for request in moved]}


def before_and_after(contest: Contest, name: str, day: int) -> list[dict[str, Any]]:
    """The same day without offers and as negotiated; a vehicle has the same place in both."""
    problem = contest.world.problem
    play = contest.played[name]
    moved = np.flatnonzero(play.accepted[day] & (play.offer[day] != NO_CHANGE))
    out = []
    first = contest.played[BASE].routes(day)
    for title, one, ringed in (("without offers", contest.played[BASE], ()), (f"negotiated by {name}", play, moved)):
        routes = one.routes(day)
        routes = [routes[vehicle] for vehicle in numbered_alike(first, routes)]
        lines = route_lines(problem, one.requests[day], routes, ringed)
        turned_away = int((~one.served[day]).sum())
        out.append({"title": title, "turned_away": turned_away, **lines})
    return out


def windows(contest: Contest, name: str, day: int) -> list[dict[str, Any]]:
    """Asked, agreed and served times of every request, in the order of the day; hours since midnight."""
    play, asked = contest.played[name], contest.asked[day]
    agreed = play.requests[day]
    times = timetable(contest.world.problem, agreed, play.routes(day))
    rows = []
    for request in np.argsort(asked["pickup_open"], kind="stable"):
        offer = int(play.offer[day, request])
        row: dict[str, Any] = {"request": int(request) + 1}
        row["answer"] = "none" if offer == NO_CHANGE else "yes" if play.accepted[day, request] else "no"
        row["earlier_min"], row["later_min"] = int(OFFER_EARLIER_MIN[offer]), int(OFFER_LATER_MIN[offer])
        for side, stop in (("pickup", 2 * request), ("dropoff", 2 * request + 1)):
            row[side] = {
                "asked": [asked[request][f"{side}_{end}"] / 3600 for end in ("open", "close")],
                "agreed": [agreed[request][f"{side}_{end}"] / 3600 for end in ("open", "close")],
                "served": times[stop] / 3600 if times[stop] >= 0 else None,
            }
        rows.append(row)
    return rows


def saving_and_burden(contest: Contest, price: str) -> list[dict[str, Any]]:
    """Mean minutes saved and mean burden of every policy, with the interval of the saving."""
    boot = Bootstrap(len(contest.asked), resamples=2000)
    rows = []
    for name, play in contest.played.items():
        saved = boot.mean(contest.saved_min(name, price)[None])
        rows.append(
            {
                "name": name,
                "burden_min": float(contest.burden_min(name).mean()),
                "saved_min": saved["mean"],
                "low": saved["low"],
                "high": saved["high"],
                "agreed_min_per_rider": float(play.agreed_min.mean()),
            }
        )
    return rows


def reliability(contest: Contest, name: str) -> list[dict[str, Any]]:
    """Predicted against observed acceptance: of the offers made, and of all 15 changes for every request."""
    play = contest.played[name]
    out = []
    for label, seen in (("every possible offer", play.menu), ("offers made", play.offered)):
        predicted, observed, count = seen.curve()
        out.append(
            {
                "label": label,
                "predicted": predicted.tolist(),
                "observed": observed.tolist(),
                "count": count.tolist(),
                **seen.metrics(),
            }
        )
    return out
