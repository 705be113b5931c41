"""What policies made of the same days, as arrays: the record that a contest leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.rides.flexibility.calibration import Calibration
from shoal.rides.options import RidesOptions
from shoal.rides.routing.problem import NO_CHANGE, OFFER_MIN
from shoal.rides.world.world import World, make_world

Array = np.ndarray[Any, Any]
BASE = "none"  # the day without offers, under this name in every contest


@dataclass(frozen=True)
class Played:
    """What one policy made of all the days: row d is day d, column c its c-th request."""

    requests: Array  # REQUEST[D, C], windows as agreed
    offer: Array  # int8[D, C]
    accepted: Array  # bool[D, C]
    served: Array  # bool[D, C]
    stops: Array  # int16[D, V, 2C], routes by the own oracle
    lengths: Array  # int16[D, V]
    ride_s: Array  # int64[D, C], on board by these routes; 0 for those turned away
    cost_s: Array  # int64[D], travel and penalties by the own oracle
    reference_s: Array | None = None  # int64[D], the same by the reference
    reference_unserved: Array | None = None  # int64[D]
    reference_errors: int = 0  # days on which the reference failed: they count as if nobody was driven
    offered: Calibration = field(default_factory=Calibration)  # P(accept) of the offers made, and the answers
    menu: Calibration = field(default_factory=Calibration)  # of all 15 changes, offered or not

    @property
    def agreed_min(self) -> Array:
        """int64[D, C]: minutes that each rider agreed to."""
        return np.asarray(np.where(self.accepted, OFFER_MIN[self.offer], 0), np.int64)

    @property
    def refused(self) -> Array:
        """bool[D, C]: offers made and refused."""
        return np.asarray(~self.accepted & (self.offer != NO_CHANGE))

    def total_s(self, price: str) -> Array:
        """int64[D]: what the days cost by "own" or "reference" prices."""
        if price == "own":
            return self.cost_s
        if self.reference_s is None:
            raise ValueError("these days were not priced by the reference: give contest() a reference")
        return self.reference_s

    def routes(self, day: int) -> list[list[int]]:
        """The stops of every vehicle on one day."""
        return [row[:length].tolist() for row, length in zip(self.stops[day], self.lengths[day], strict=True)]


@dataclass(frozen=True)
class Contest:
    """All policies on the same days; `played[BASE]` is the day without offers."""

    options: RidesOptions
    seed: int
    asked: Array  # REQUEST[D, C], windows as asked
    rider: Array  # int32[D, C]
    direct_s: Array  # int64[D, C]
    kind: Array  # int8[D, C], the riders' hidden types
    played: dict[str, Played]
    prices: tuple[str, ...]  # "own" and, where there was a reference, "reference"

    @property
    def world(self) -> World:
        """The city and its riders."""
        return make_world(self.options)

    def saved_min(self, name: str, price: str = "own") -> Array:
        """float64[D]: route minutes saved against the same day without offers."""
        return np.asarray((self.played[BASE].total_s(price) - self.played[name].total_s(price)) / 60.0)

    def burden_min(self, name: str) -> Array:
        """float64[D]: what bothering riders costs, in route minutes."""
        patience, refusal = self.options.burden_rates
        play = self.played[name]
        return np.asarray(patience * play.agreed_min.sum(1) + refusal * play.refused.sum(1))

    def net_min(self, name: str, price: str = "own") -> Array:
        """float64[D]: minutes saved net of burden, the primary measure."""
        return np.asarray(self.saved_min(name, price) - self.burden_min(name))
