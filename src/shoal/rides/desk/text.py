"""A city and a day as plain data: rows for a table, series for a figure (rides/figures draws them)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.rides.world.city import PURPOSES, City
from shoal.rides.world.days import SLOT_S, Day, Days
from shoal.rides.world.population import AGES, INCOMES, OCCUPATIONS
from shoal.rides.world.riders import Riders
from shoal.rides.world.tables import clock

Array = np.ndarray[Any, Any]


def day_rows(city: City, day: Day, riders: Riders | None = None) -> list[dict[str, Any]]:
    """A day's requests in words, in booking order; with riders, their profiles. The hidden type is never shown."""
    rows = []
    for number, (request, rider, purpose) in enumerate(zip(day.requests, day.rider, day.purpose, strict=True), 1):
        pickup, dropoff = int(request["pickup"]), int(request["dropoff"])
        row: dict[str, Any] = {"request": number, "rider": int(rider) if riders is None else riders.called(int(rider))}
        if riders is not None:
            codes = ((riders.age, AGES), (riders.occupation, OCCUPATIONS), (riders.income, INCOMES))
            row["profile"] = ", ".join(names[code[rider]] for code, names in codes)
        row |= {
            "purpose": PURPOSES[purpose],
            "party": int(request["size"]),
            "from": city.zone_names[pickup],
            "to": city.zone_names[dropoff],
            "direct_min": round(int(city.travel_s[pickup, dropoff]) / 60.0, 1),
            "pickup": f"{clock(request['pickup_open'])}-{clock(request['pickup_close'])}",
            "dropoff": f"{clock(request['dropoff_open'])}-{clock(request['dropoff_close'])}",
        }
        rows.append(row)
    return rows


def demand_by_hour(days: Days) -> dict[str, Array]:
    """When riders want to be picked up: where each half hour begins, `hour`, and its `share`, float64[48] each."""
    return {"hour": np.arange(len(days.demand)) * SLOT_S / 3600.0, "share": days.demand}


def population_rows(riders: Riders) -> list[dict[str, Any]]:
    """How many riders have each age group, occupation and income band, by split."""
    rows = []
    for column, codes, names in (
        ("age", riders.age, AGES),
        ("occupation", riders.occupation, OCCUPATIONS),
        ("income", riders.income, INCOMES),
    ):
        for code, name in enumerate(names):
            chosen = codes == code
            counts = {
                "train": int((chosen & ~riders.held_out).sum()),
                "held_out": int((chosen & riders.held_out).sum()),
            }
            rows.append({"profile": column, "value": name, **counts})
    return rows
