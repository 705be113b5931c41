"""What the agent sees of a request: itself, the requests accepted so far as a set, and the 16 offers."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.rides.bookings import Bookings
from shoal.rides.routing.problem import (
    NO_CHANGE,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    OFFER_MIN,
    Status,
    turned_away_s,
)
from shoal.rides.world.days import Days

Array = np.ndarray[Any, Any]

# Columns of the parts of an observation, in order; docs/rides.md explains each. Minutes are scaled to about 1.
ACCEPTED = ("present", "time_apart", "agreed_earlier", "agreed_later", "near_pickup", "near_dropoff")
CONTEXT = (
    *(
        "remaining",
        "hour",
        "hour_sin",
        "hour_cos",
        "direct",
        "party",
        "work",
        "medical",
        "school",
        "shopping",
        "leisure",
    ),
    *("demand_before", "demand_after", "demand_near", "close_before", "close_after", "agreed_before", "agreed_after"),
    *("near_before", "near_after", "demand_pickup", "demand_dropoff"),
    *("central_pickup", "central_dropoff", "price", "feasible", "p_earlier", "p_later", "p_both", "futures"),
)
OFFERS = (
    *("earlier", "later", "is_change", "feasible", "saving", "p_accept", "myopic", "lookahead"),
    *("p_earlier", "p_later", "p_saving", "p_refuse", "value", "future"),
)
# Follows from the columns: a policy trained on others must not be used, though the shapes may be the same.
FEATURES_VERSION = f"rides-{zlib.crc32(repr((ACCEPTED, CONTEXT, OFFERS)).encode()):08x}"
OFFER_COLUMN = {name: index for index, name in enumerate(OFFERS)}
_FUTURES = CONTEXT.index("futures")
SAVING_CAP_MIN = 60.0
MINUTES = 10.0  # scale of savings and scores
TIME_S = 3600.0
FAR_S = 40 * 60.0  # the longest trip of the city, about


def observation_space(customers: int) -> spaces.Dict:
    """The parts of an observation; `bias` is added to the policy's logits (the soft mask)."""
    return spaces.Dict(
        {
            "accepted": spaces.Box(-np.inf, np.inf, (customers, len(ACCEPTED)), np.float32),
            "context": spaces.Box(-np.inf, np.inf, (len(CONTEXT),), np.float32),
            "offers": spaces.Box(-np.inf, np.inf, (NUM_OFFERS, len(OFFERS)), np.float32),
            "bias": spaces.Box(-np.inf, 0.0, (NUM_OFFERS,), np.float32),
            "action_mask": spaces.MultiBinary(NUM_OFFERS),
        }
    )


@dataclass(frozen=True)
class Menu:
    """The 16 offers of each environment's current request."""

    price_min: Array  # float64[N, 16]: minutes that the routes grow by; of a request that cannot be placed, its penalty
    feasible: Array  # bool[N, 16]
    p_accept: Array  # float64[N, 16]

    @property
    def saving_min(self) -> Array:
        """float64[N, 16]: minutes saved against no change, if the offer is accepted."""
        saving = self.price_min[:, [NO_CHANGE]] - self.price_min
        return np.asarray(np.clip(saving, -SAVING_CAP_MIN, SAVING_CAP_MIN))

    def expected_min(self, value_min: Array, patience: float, refusal: float) -> Array:
        """Expected net gain of each offer, float64[N, 16], when being accepted is worth `value_min` [N, 16]."""
        gain = self.p_accept * (value_min - patience * OFFER_MIN) - refusal * (1 - self.p_accept)
        gain[:, NO_CHANGE] = 0.0
        return np.asarray(gain)


def make_menu(bookings: Bookings, extra_s: Array, status: Array, p_accept: Array) -> Menu:
    """Prices as the oracle gave them (int64[N, 16], seconds more), with penalties where nothing was found."""
    feasible = status == Status.OK
    penalty_s = turned_away_s(bookings.world.problem, bookings.now(bookings.requests))
    price_s = np.where(feasible, extra_s, penalty_s[:, None])
    return Menu(price_s / 60.0, feasible, np.asarray(p_accept, np.float64))


def observe(bookings: Bookings, days: Days, menu: Menu) -> dict[str, Array]:
    """`accepted` [N, C, 6], `context` [N, 30] and `offers` [N, 16, 14]; what looks ahead is 0 until `anticipate`."""
    world, rows = bookings.world, np.arange(bookings.num_days)
    travel = world.problem.travel_s
    current = bookings.now(bookings.requests)
    pickup, dropoff = current["pickup"][:, None], current["dropoff"][:, None]
    known = (np.arange(bookings.customers) < bookings.t[:, None]) & bookings.plans.served  # bool[N, C]
    others = bookings.requests
    apart = (others["pickup_open"] - current["pickup_open"][:, None]) / TIME_S  # hours
    agreed = np.where(bookings.accepted & known, bookings.offer, NO_CHANGE)
    earlier, later = OFFER_EARLIER_MIN[agreed] / 30.0, OFFER_LATER_MIN[agreed] / 30.0
    near_pickup = 1 - np.minimum(travel[others["pickup"], pickup], travel[others["dropoff"], pickup]) / FAR_S
    near_dropoff = 1 - np.minimum(travel[dropoff, others["pickup"]], travel[dropoff, others["dropoff"]]) / FAR_S
    columns = (known, np.clip(apart, -4, 4) / 4, earlier, later, near_pickup, near_dropoff)
    accepted = (np.stack(columns, -1) * known[..., None]).astype(np.float32)

    soon = known & (np.abs(apart) < 1.5)
    before, after = soon & (apart < 0), soon & (apart >= 0)
    hour = current["pickup_open"] / TIME_S
    purpose = np.zeros((bookings.num_days, 5))
    purpose[rows, bookings.now(bookings.purpose)] = 1
    mass_before, mass_after, mass_near = days.demand_mass(current["pickup_open"])
    minutes = earlier + later
    p = menu.p_accept
    context = np.column_stack(
        [
            1 - bookings.t / bookings.customers,
            hour / 24,
            np.sin(hour * (2 * np.pi / 24)),
            np.cos(hour * (2 * np.pi / 24)),
            travel[current["pickup"], current["dropoff"]] / FAR_S,
            current["size"] - 1.0,
            purpose,
            mass_before,
            mass_after,
            mass_near,
            before.sum(1) / 10,
            after.sum(1) / 10,
            (minutes * before).sum(1) / 10,
            (minutes * after).sum(1) / 10,
            (near_pickup * before).sum(1) / 5,
            (near_dropoff * after).sum(1) / 5,
            days.demand_near(current["pickup"], current["pickup_open"]) / 3,
            days.demand_near(current["dropoff"], current["dropoff_open"]) / 3,
            world.centrality[current["pickup"]],
            world.centrality[current["dropoff"]],
            np.minimum(menu.price_min[:, NO_CHANGE], SAVING_CAP_MIN) / 30,
            menu.feasible[:, NO_CHANGE],
            p[:, 0],
            p[:, 15],
            p[:, 3],
            np.zeros(len(p)),
        ]
    ).astype(np.float32)

    n = bookings.num_days
    saving = menu.saving_min / MINUTES
    myopic = menu.expected_min(menu.saving_min, *world.options.burden_rates) / MINUTES
    offers = np.empty((n, NUM_OFFERS, len(OFFERS)), np.float32)
    parts: tuple[Any, ...] = (
        *(OFFER_EARLIER_MIN / 30.0, OFFER_LATER_MIN / 30.0, OFFER_MIN > 0, menu.feasible, saving, p, myopic, 0.0),
        *(p * OFFER_EARLIER_MIN / 30.0, p * OFFER_LATER_MIN / 30.0, p * saving, 1 - p, 0.0, 0.0),
    )
    for column, part in enumerate(parts):
        offers[:, :, column] = part
    return {"accepted": accepted, "context": context, "offers": offers}


def anticipate(
    obs: dict[str, Array], menu: Menu, value_min: Array | None, future_min: Array | None, rates: tuple[float, float]
) -> None:
    """Write into an observation what offers are worth by the day's end if accepted, float64[N, 16] each.

    `value_min` as the lookahead predicts it, `future_min` [N, futures, 16] as sampled futures say; None: not asked.
    """
    offers = obs["offers"]
    if value_min is not None:
        offers[:, :, OFFER_COLUMN["lookahead"]] = menu.expected_min(value_min, *rates) / MINUTES
        offers[:, :, OFFER_COLUMN["value"]] = value_min / MINUTES
    if future_min is not None:
        note_futures(obs, future_min.mean(1), future_min.shape[1])


def note_futures(obs: dict[str, Array], mean_min: Array, futures: Any) -> None:
    """Write the mean over futures [N, 16] into an observation, and how far it may be trusted."""
    obs["offers"][:, :, OFFER_COLUMN["future"]] = mean_min / MINUTES
    obs["context"][:, _FUTURES] = futures / (futures + 8)
