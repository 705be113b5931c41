"""An offer of the booking desk as plain data, and in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.tasks.rides.answers import PURPOSES
from shoal.tasks.rides.day_view import route_lines
from shoal.tasks.rides.offer import Booked, Offer
from shoal.tasks.rides.routing.problem import NO_CHANGE
from shoal.tasks.rides.tables import clock
from shoal.tasks.rides.world import World


def offer_data(world: World, booked: Booked, call: tuple[Any, int, int], offer: Offer) -> dict[str, Any]:
    """An offer as plain data; `pictures` are for figures.rides_day.routes_figure."""
    request, rider, purpose = call
    names = world.city.zone_names
    requests = np.concatenate([booked.requests, np.array([request])])
    answers = {}
    pictures = []
    for answer, planned in (("refused", offer.refused), ("accepted", offer.accepted)):
        routes = [
            [{**stop, "zone_name": names[stop["zone"]], "time": clock(stop["time_s"])} for stop in route]
            for route in planned.routes
        ]
        answers[answer] = {"served": planned.served, "extra_min": planned.extra_min, "routes": routes}
        stops = [[2 * stop["request"] + (stop["side"] == "dropoff") for stop in route] for route in planned.routes]
        lines = route_lines(world.problem, requests, stops, [len(booked)])
        pictures.append({"title": f"if {answer}", **lines})
    return {
        "request": {name: int(request[name]) for name in request.dtype.names},
        "rider": None if rider < 0 else rider,
        "purpose": PURPOSES[purpose],
        "pickup": names[int(request["pickup"])],
        "dropoff": names[int(request["dropoff"])],
        "booked": len(booked),
        "offer": offer.offer,
        "earlier_min": offer.earlier_min,
        "later_min": offer.later_min,
        "p_accept": offer.p_accept,
        "saving_min": offer.saving_min,
        "answers": answers,
        "menu": offer.menu,
        "pictures": pictures,
    }


def offer_lines(data: dict[str, Any]) -> list[str]:
    """An offer for people."""
    request = data["request"]
    who = "a rider nobody knows" if data["rider"] is None else f"rider {data['rider']}"
    asked = [f"{clock(request[f'{side}_open'])}-{clock(request[f'{side}_close'])}" for side in ("pickup", "dropoff")]
    yes, no = data["answers"]["accepted"], data["answers"]["refused"]
    lines = [
        f"{who}, {data['purpose']}: {data['pickup']} {asked[0]} to {data['dropoff']} {asked[1]}; "
        f"{data['booked']} booked so far",
        "",
    ]
    if not data["earlier_min"] and not data["later_min"]:
        lines.append("offer      nothing: book as asked" if no["served"] else "offer      nothing")
    else:
        words = [f"{data[f'{way}_min']} minutes {way}" for way in ("earlier", "later") if data[f"{way}_min"]]
        lines.append(f"offer      windows {' and '.join(words)}")
        lines.append(f"P(accept)  {100 * data['p_accept']:.0f} %")
        lines.append(
            f"price      {_price(yes)} if accepted, {_price(no)} if refused: saves {data['saving_min']:.1f} minutes"
        )
    if not no["served"]:
        lines.append("           as asked no vehicle can come: the rider would have to be turned away")
    elif not data["earlier_min"] and not data["later_min"]:
        lines.append(f"price      {_price(no)}")
    lines += ["", "routes" + (" if accepted" if data["offer"] != NO_CHANGE else "")]
    for vehicle, route in enumerate(yes["routes"]):
        for stop in route:
            mark = "->" if stop["request"] == data["booked"] else "  "
            lines.append(
                f"{mark} vehicle {vehicle + 1}  {stop['time']:>8}  {stop['side']:<8} request {stop['request'] + 1:<4} "
                f"{stop['zone_name']}"
            )
    lines += ["", f"answered in {data['answer_ms']:.1f} ms"]
    return lines


def _price(planned: dict[str, Any]) -> str:
    return f"{planned['extra_min']:.1f} route minutes" if planned["served"] else "turned away"
