"""What all days of a run share: the city, its riders, the fleet, and the source of days."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.rides.options import RidesOptions
from shoal.rides.routing.problem import OFFER_EARLIER_MIN, OFFER_LATER_MIN, Problem
from shoal.rides.world.answers import accept_probability, rule_accepts
from shoal.rides.world.city import City, san_francisco
from shoal.rides.world.days import Days
from shoal.rides.world.riders import Riders, draw_riders

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class World:
    """One city with its riders and fleet."""

    options: RidesOptions
    city: City
    riders: Riders
    problem: Problem
    notice: str = ""  # what whoever trains or evaluates here should know beforehand

    @functools.cached_property
    def centrality(self) -> Array:
        """float64[Z]: mean travel to and from a zone, in units of 40 minutes."""
        travel = self.problem.travel_s
        return np.asarray((travel.mean(0) + travel.mean(1)) / 2 / 2400)

    def days(self, split: str, *, again: bool = False) -> Days:
        """The source of days of a split: train, held_out or all. Where nobody is held out, all riders call in each.

        `again`: a rider may call more than once a day, as at the booking desk.
        """
        options = self.options
        return Days(
            self.city,
            self.riders,
            customers=options.customers,
            split=split if self.riders.held_out.any() else "all",
            type_mix=options.type_mix or None,
            again=again,
        )

    def true_probability(self, rider: Array, purpose: Array) -> Array:
        """P(accept) of each of the 16 offers under the truth, float64[..., 16]."""
        riders = self.riders
        kind, effect = riders.kind[rider][..., None], riders.effect[rider][..., None]
        if self.options.acceptance == "rule":
            return np.asarray(rule_accepts(kind, OFFER_EARLIER_MIN, OFFER_LATER_MIN), np.float64)
        return np.asarray(
            accept_probability(kind, effect, np.asarray(purpose)[..., None], OFFER_EARLIER_MIN, OFFER_LATER_MIN)
        )


@functools.lru_cache(maxsize=8)
def make_world(options: RidesOptions) -> World:
    """Build or load what the options name."""
    if options.city:
        from shoal.rides.world.files import load_city

        city = load_city(options.city, options.zones or None)
    else:
        city = san_francisco()
    if options.riders:
        from shoal.rides.world.files import load_riders

        riders = load_riders(options.riders, city, options.trips or None)
    else:
        held_out = max(1, options.population // 5)
        riders = draw_riders(city, seed=options.population_seed, count=options.population, held_out=held_out)
    riders, notice = _held_out_if_enough(riders, options.customers)
    problem = Problem(city.travel_s, city.depot, vehicles=options.vehicles, capacity=options.capacity)
    return World(options, city, riders, problem, notice)


def _held_out_if_enough(riders: Riders, customers: int) -> tuple[Riders, str]:
    """The riders, nobody held out where either part is too few for a day: then days alone are; and what to say of it.

    A rider calls once on a simulated day, so that a day takes as many riders as it has requests.
    """
    held_out = int(riders.held_out.sum())
    if not held_out or min(held_out, riders.count - held_out) >= customers:
        return riders, ""
    notice = (
        f"of {riders.count} riders {held_out} would be held out for evaluation, but each of the {customers} requests "
        f"of a day takes another rider: too few on one side. So nobody is held out: all {riders.count} riders train, "
        "and an evaluation plays new days of the same riders. To learn how it does with riders it has never met, take "
        f"{5 * customers} riders or more, or fewer --customers"
    )
    nobody = replace(riders, held_out=np.zeros(riders.count, np.bool_))
    return nobody, notice if customers <= riders.count else ""  # a day that is refused anyway needs no note
