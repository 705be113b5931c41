"""What is known of riders: the model that every environment begins with, and what is added to it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.flexibility.model import FlexibilityModel
from shoal.rides.options import RidesOptions
from shoal.rides.routing.problem import NO_CHANGE
from shoal.rides.world.answers import ANSWER, PRIOR
from shoal.rides.world.days import histories
from shoal.rides.world.world import World, make_world

if TYPE_CHECKING:
    from shoal.rides.bookings import Bookings
    from shoal.rides.env import RidesVectorEnv


def answers_to(bookings: Bookings, offers: Array, accepted: Array) -> Array:
    """Answers to the real offers of this step, ANSWER[K], for the flexibility model; no change tells nothing."""
    made = offers != NO_CHANGE
    rows = np.zeros(int(made.sum()), ANSWER)
    request = bookings.now(bookings.requests)[made]
    rows["rider"], rows["purpose"] = bookings.now(bookings.rider)[made], bookings.now(bookings.purpose)[made]
    rows["pickup_open_s"] = request["pickup_open"]
    rows["direct_s"] = bookings.world.problem.travel_s[request["pickup"], request["dropoff"]]
    rows["offer"], rows["accepted"] = offers[made], accepted[made]
    return rows


@functools.lru_cache(maxsize=8)
def first_flexibility(options: RidesOptions) -> dict[str, Array]:
    """The state of a model that has learned from the riders' histories alone."""
    world = make_world(options)
    model = new_flexibility(world)
    for split in ("train", "held_out"):
        answers = histories(world.riders, options.population_seed, options.history, options.acceptance, split)
        if split == "train" and len(answers):
            model.add(answers)
            model.train()
        elif len(answers):
            model.observe_only(answers)
    return model.state()


def new_flexibility(world: World) -> FlexibilityModel:
    prior = PRIOR / PRIOR.sum()
    return FlexibilityModel(world.riders.profile_features(), seed=world.options.population_seed, prior=prior)


def figures_of_types(model: FlexibilityModel, world: World, riders: Array) -> dict[str, Any]:
    """How many riders it takes for each type, and how often it is right."""
    guess = model.type_probabilities(riders).argmax(1)
    return {
        "flexibility/types": "/".join(map(str, np.bincount(guess, minlength=4))),
        "flexibility/type_accuracy": float((guess == world.riders.kind[riders]).mean()),
    }


def settle(env: RidesVectorEnv, state: dict[str, Array]) -> None:
    """Give the environment a learned model, and of held-out riders only the histories that its options grant them."""
    riders, options = env.world.riders, env.options
    evidence = state["evidence"].copy()
    evidence[riders.held_out] = 0.0
    env.flexibility.set_state({**state, "evidence": evidence, "observed": np.zeros(0, np.uint8)})
    known = histories(riders, options.population_seed, options.history, options.acceptance, "held_out")
    env.flexibility.observe_only(known if len(known) else np.zeros(0, ANSWER))
