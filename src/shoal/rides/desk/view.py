"""An offer of the booking desk as plain data, and in words.

Bookings are numbered from 1 in booking order, in both; booking n is row n + 1 of the day's file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.rides.desk.day_view import route_lines
from shoal.rides.desk.offer import Booked, Offer, Planned
from shoal.rides.routing.problem import EFFECTS, NO_CHANGE
from shoal.rides.world.answers import PURPOSES
from shoal.rides.world.tables import minute
from shoal.rides.world.world import World

SHOWN = 5  # of the menu, in words
NUMBERING = "bookings are numbered from 1 as they came in; booking n is row n + 1 of the day's file (row 1: its header)"


def offer_data(world: World, booked: Booked, call: tuple[Any, int, int], offer: Offer) -> dict[str, Any]:
    """An offer as plain data; `pictures` are for figures.rides_day.routes_figure."""
    request, rider, purpose = call
    names = world.city.zone_names
    requests = np.concatenate([booked.requests, np.array([request])])
    riders = [*booked.rider.tolist(), rider]
    own = [*booked.own, {}] if booked.own else [{}] * len(requests)
    effect = EFFECTS[world.options.offer_effect]
    windows = effect(np.array([request]), offer.earlier_min, offer.later_min)[0]

    def booking(at: int) -> dict[str, Any]:
        who = None if riders[at] < 0 else world.riders.called(riders[at])
        return {"booking": at + 1, "row": at + 2, "rider": who} | ({"own": dict(own[at])} if own[at] else {})

    data = {
        **booking(len(booked)),
        "purpose": PURPOSES[purpose],
        "pickup": names[int(request["pickup"])],
        "dropoff": names[int(request["dropoff"])],
        "request": {name: int(request[name]) for name in request.dtype.names},
        "booked": len(booked),
        "offer": offer.offer,
        "earlier_min": offer.earlier_min,
        "later_min": offer.later_min,
        "effect": world.options.offer_effect,
        "windows": {side: [minute(windows[f"{side}_{end}"]) for end in ("open", "close")] for side in _SIDES},
        "p_accept": offer.p_accept,
        "saving_min": offer.saving_min,
        "basis": offer.basis,
        "futures": offer.futures,
        "rates": list(world.options.burden_rates),
        "not_served": [
            booking(at) | {"pickup": names[int(requests[at]["pickup"])], "dropoff": names[int(requests[at]["dropoff"])],
                           "pickup_open": minute(requests[at]["pickup_open"])}
            for at in offer.unserved
        ],
        "answers": {
            answer: {
                "served": planned.served,
                "extra_min": planned.extra_min,
                "vehicles": _vehicles(planned, names, booking),
            }
            for answer, planned in (("refused", offer.refused), ("accepted", offer.accepted))
        },
        "menu": offer.menu,
        "numbering": NUMBERING,
        "pictures": _pictures(world, requests, offer),
    }  # fmt: skip
    return data | {"why": why(data), "say": _say(data)}


_SIDES = ("pickup", "dropoff")


def _vehicles(planned: Planned, names: Any, booking: Any) -> list[dict[str, Any]]:
    """Every vehicle's day: when it leaves, its stops, when it is back."""
    return [
        {
            "vehicle": number,
            "leaves": None if leaves_s is None else minute(leaves_s),
            "leaves_s": leaves_s,
            "stops": [
                booking(stop["request"])
                | {name: stop[name] for name in ("side", "zone", "time_s", "on_board")}
                | {"zone_name": names[stop["zone"]], "time": minute(stop["time_s"])}
                for stop in route
            ],
            "back": None if back_s is None else minute(back_s),
            "back_s": back_s,
        }
        for number, (route, leaves_s, back_s) in enumerate(
            zip(planned.routes, planned.leaves_s, planned.back_s, strict=True), 1
        )
    ]


def _pictures(world: World, requests: Any, offer: Offer) -> list[dict[str, Any]]:
    """The routes under either answer; one picture where no change is offered, or where it changes no route."""
    plans = [("booked as asked", offer.refused)]
    if offer.offer != NO_CHANGE:
        plans = [("if refused", offer.refused), ("if accepted", offer.accepted)]
    stops = [
        [[2 * stop["request"] + (stop["side"] == "dropoff") for stop in route] for route in planned.routes]
        for _, planned in plans
    ]
    if len(plans) == 2 and stops[0] == stops[1]:
        plans, stops = [("refused or accepted, the same routes", offer.accepted)], stops[1:]
    return [
        {
            "title": title,
            "turned_away": len(offer.unserved) + (not planned.served),
            **route_lines(world.problem, requests, routes, [len(requests) - 1]),
        }
        for (title, planned), routes in zip(plans, stops, strict=True)
    ]


# -- in words ---------------------------------------------------------------------------------------


def why(data: Mapping[str, Any]) -> str:
    """The offer's reason in one sentence."""
    menu, offer = data["menu"], data["offer"]
    if offer != NO_CHANGE:
        row = menu[offer]
        if not data["answers"]["refused"]["served"]:
            return "as asked no vehicle can come; with the change one can"
        return (
            f"a yes saves {_saves(row['saves_min'], data)}, {row['saves_now_min']:.1f} on the routes as they are now; "
            f"less what asking costs riders the offer is worth {row['worth_min']:+.1f} minutes"
        )
    others = [row for at, row in enumerate(menu) if at != NO_CHANGE and row["possible"]]
    if not others:
        return "no change of these windows makes a place on the routes, or none is free of the rider's other rides"
    best = max(others, key=lambda row: (row.get("played", True), row["worth_min"]))
    reason = f"the best change, {_change(best)}, would save {_saves(best['saves_min'], data)}"
    if best["worth_min"] <= 0:
        return f"{reason}: less than asking would cost riders (it is worth {best['worth_min']:+.1f} minutes)"
    return f"{reason} and be worth {best['worth_min']:+.1f} minutes by that, but the run's network expects less of it"


def _say(data: Mapping[str, Any]) -> str | None:
    """What to ask the rider; None: nothing."""
    if data["offer"] == NO_CHANGE:
        return None
    asked = [minute(data["request"][f"pickup_{end}"]) for end in ("open", "close")]
    windows = ["between {} and {}".format(*times) for times in (data["windows"]["pickup"], asked)]
    return f"May we come {windows[0]} in place of {windows[1]}?"


def _saves(minutes: float, data: Mapping[str, Any]) -> str:
    basis = {
        "futures": f"by the end of the day, the mean over {data['futures']} sampled futures of it",
        "played": f"by the end of the day, the mean over {data['futures']} futures of it that the agent negotiates",
        "lookahead": "by the end of the day, as the lookahead predicts",
        "now": "on the routes as they are now",
    }
    return f"{minutes:.1f} minutes of driving {basis[data['basis']]}"


def _change(row: Mapping[str, Any]) -> str:
    words = [f"{row[f'{way}_min']} minutes {way}" for way in ("earlier", "later") if row[f"{way}_min"]]
    return " and ".join(words) or "as asked"


def _short(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{row[f'{way}_min']} {way}" for way in ("earlier", "later") if row[f"{way}_min"]) or "as asked"


def offer_lines(data: dict[str, Any]) -> list[str]:
    """An offer for people: the answer first, then its reason, whom nobody drives, the other offers, and the routes."""
    yes, no, change = data["answers"]["accepted"], data["answers"]["refused"], data["offer"] != NO_CHANGE
    lines = [f"call       {_call(data)}"]
    if change:
        moved = "widened" if data["effect"] == "widen" else "moved"
        lines.append(f"offer      {_change(data)}: windows {moved} to {_windows(data['windows'])}")
        lines.append(f'say        "{data["say"]}"')
        lines.append(
            f"yes        {100 * data['p_accept']:.0f} % likely; {_price(yes)} if accepted, {_price(no)} if not"
        )
    elif no["served"]:
        lines.append("offer      nothing: book as asked")
        lines.append(f"price      {_price(no)}")
    else:
        lines.append("offer      nothing: no vehicle can come, the rider has to be turned away")
    lines.append(f"why        {data['why']}")
    if change and not no["served"]:
        lines.append("           if refused, the rider has to be turned away")
    if change and not yes["served"]:
        lines.append("           careful: if accepted, no vehicle was found after all")
    if data["not_served"]:
        count = len(data["not_served"])
        lines += ["", f"on no route: {count} of the {data['booked']} bookings, since no vehicle has room for them"]
        lines += [
            f"  booking {row['booking']:<4} row {row['row']:<4} {_who(row):<12} {row['pickup_open']} {row['pickup']} "
            f"to {row['dropoff']}{_own(row)}"
            for row in data["not_served"]
        ]
    lines += ["", *_menu_lines(data), "", "routes" + (" if accepted" if change else "")]
    for vehicle in yes["vehicles"]:
        lines += _sheet(vehicle, data["booking"])
    return [*lines, "", NUMBERING, f"answered in {data['answer_ms']:.1f} ms"]


def _call(data: Mapping[str, Any]) -> str:
    asked = data["request"]
    times = {side: [minute(asked[f"{side}_{end}"]) for end in ("open", "close")] for side in _SIDES}
    party = f", party of {asked['size']}" if asked["size"] > 1 else ""
    return (
        f"{_who(data)}, {data['purpose']}{party}: {data['pickup']} {'-'.join(times['pickup'])} to {data['dropoff']} "
        f"{'-'.join(times['dropoff'])}; {data['booked']} booked so far"
    )


def _windows(windows: Mapping[str, Any]) -> str:
    return ", ".join(f"{side} {'-'.join(times)}" for side, times in windows.items())


def _who(row: Mapping[str, Any]) -> str:
    return "a rider nobody knows" if row["rider"] is None else f"rider {row['rider']}"


def _own(row: Mapping[str, Any]) -> str:
    return "".join(f"; {name} {cell}" for name, cell in row.get("own", {}).items() if cell)


def _menu_lines(data: Mapping[str, Any]) -> list[str]:
    """The offers of most worth, the one made among them."""
    rows = sorted(
        enumerate(data["menu"]),
        key=lambda entry: (-entry[1]["possible"], -entry[1].get("played", True), -entry[1]["worth_min"]),
    )
    shown = [
        entry for at, entry in enumerate(rows) if entry[1]["possible"] and (at < SHOWN or entry[0] == data["offer"])
    ]
    patience, refusal = data["rates"]
    by_end = "so far" if data["basis"] == "now" else "by the day's end"
    lines = [f"{'best offers':<38}{'yes':>6}{'saves now':>12}{by_end:>18}{'worth':>8}"]
    for index, row in shown:
        mark = "->" if index == data["offer"] else "  "
        lines.append(
            f"{mark} {_short(row):<35}{100 * row['p_accept']:>4.0f} %{row['saves_now_min']:>12.1f}"
            f"{row['saves_min']:>18.1f}{row['worth_min']:>+8.1f}"
        )
    worth = f"P(yes) x (saved {by_end} - {patience:g} for each minute of change) - {refusal:g} x P(no)"
    played = sum(row["possible"] and row.get("played", False) for row in data["menu"])
    only = f"the first {played} were played to the end of the day: saved is less what it then asks of later riders"
    return [*lines, f"minutes of driving; worth = {worth}", *([only] if played else [])]


def _sheet(vehicle: Mapping[str, Any], call: int) -> list[str]:
    """A vehicle's day, one line a stop; nothing for one that stays at the depot."""
    if not vehicle["stops"]:
        return []
    lines = [f"   vehicle {vehicle['vehicle']}  {vehicle['leaves']}  leaves the depot"]
    for stop in vehicle["stops"]:
        mark = "->" if stop["booking"] == call else "  "
        own = _own(stop) if stop["side"] == "pickup" else ""
        lines.append(
            f"{mark} vehicle {vehicle['vehicle']}  {stop['time']}  {stop['side']:<8}booking {stop['booking']:<4}"
            f"{_who(stop):<14}{stop['on_board']} on board  {stop['zone_name']}{own}"
        )
    return [*lines, f"   vehicle {vehicle['vehicle']}  {vehicle['back']}  back at the depot"]


def _price(planned: Mapping[str, Any]) -> str:
    return f"{planned['extra_min']:.1f} minutes more driving" if planned["served"] else "turned away"
