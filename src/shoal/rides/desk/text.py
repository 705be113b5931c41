"""A day as plain data: rows for a table."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.rides.world.city import PURPOSES, City
from shoal.rides.world.days import Day
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
