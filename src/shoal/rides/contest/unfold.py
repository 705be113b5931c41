"""One day of a contest again, request by request: the plan as it was after each, for whoever looks at it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from shoal.core.seeds import Stream, episode_seed
from shoal.rides.bookings import Bookings
from shoal.rides.contest.record import BASE, Contest
from shoal.rides.desk.day_view import windows
from shoal.rides.desk.timetable import timetable
from shoal.rides.env import RidesVectorEnv
from shoal.rides.figures.map import cell_corners_km, spread
from shoal.rides.vehicles import numbered_alike

Array = np.ndarray[Any, Any]
Routes = list[list[int]]
SCENE = "rides-day.json"


def plans_of(contest: Contest, name: str, day: int) -> list[Routes]:
    """The routes after each request. The recorded offers are made again: same answers, same plans, to the bit."""
    play = contest.played[name]
    env = RidesVectorEnv(1, replace(contest.options, start="none"), stream=Stream.EVALUATE)
    try:
        env.bookings = Bookings(env.world, 1, env.oracle, with_base=False)
        env.reset(seed=[episode_seed(contest.seed, day, 0, Stream.EVALUATE, scheme=1)])
        found = []
        for offer in play.offer[day]:
            env.bookings.book(np.array([offer], np.int64), contest.options.iterations)
            found.append(env.bookings.plans.routes(0))
    finally:
        env.close()
    if found[-1] != play.routes(day):
        raise ValueError(f"day {day} of {name} went otherwise when it was played again")
    return found


def scene(contest: Contest, name: str, day: int) -> dict[str, Any]:
    """All that the page's map with a slider shows, as plain data: the land, the requests, both days plan by plan."""
    city, problem = contest.world.city, contest.world.problem
    agreed = contest.played[name].requests[day]
    ends = np.stack([agreed["pickup"], agreed["dropoff"]], 1).ravel()
    places = spread(np.stack([city.x_km[ends], city.y_km[ends]], 1))
    rows = {row["request"]: row for row in windows(contest, name, day)}
    requests = [
        {**rows[number + 1], "pickup_zone": city.zone_names[ends[2 * number]],
         "dropoff_zone": city.zone_names[ends[2 * number + 1]]}
        for number in range(len(agreed))
    ]  # fmt: skip
    net = contest.net_min(name)
    days = {}
    first: Routes | None = None
    for one in (BASE, name):
        plans = _steady(plans_of(contest, one, day), first)
        first = first or plans[-1]
        asked = contest.played[one].requests[day]
        days[one] = {
            "plans": plans,
            "minutes": [round(_travel_s(problem, asked, routes) / 60.0, 1) for routes in plans],
            "times": timetable(problem, asked, plans[-1]).tolist(),
        }
    cells = cell_corners_km(city.x_km, city.y_km)
    return {
        "title": f"held-out day {day + 1} of {len(net)}: net gain {net[day]:+.1f} minutes, the median",
        "name": name,
        "cells": np.round(cells, 2).tolist(),
        "coast": [] if city.coast_km is None else np.round(city.coast_km, 2).tolist(),
        "roads": [np.round(line, 2).tolist() for _, line in city.roads],
        "depot": [float(city.x_km[city.depot]), float(city.y_km[city.depot])],
        "places": np.round(places, 2).tolist(),
        "invented": city.invented,
        "requests": requests,
        "before": days[BASE],
        "after": days[name],
    }


def _steady(plans: list[Routes], like: Routes | None) -> list[Routes]:
    """A vehicle keeps its number from plan to plan; the last plan's are those of `like`, where that is given."""
    last = plans[-1] if like is None else [plans[-1][place] for place in numbered_alike(like, plans[-1])]
    found = [last]
    for routes in reversed(plans[:-1]):
        found.append([routes[place] for place in numbered_alike(found[-1], routes)])
    return found[::-1]


def _travel_s(problem: Any, requests: Array, routes: Routes) -> int:
    total = 0
    for route in routes:
        if route:
            zones = [int(requests[stop // 2]["dropoff" if stop % 2 else "pickup"]) for stop in route]
            way = [problem.depot, *zones, problem.depot]
            total += int(problem.travel_s[way[:-1], way[1:]].sum())
    return total
