"""The days that the rides rows are measured on: held-out days of the default options, by number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from shoal.compiled.random import mix
from shoal.core.arrays import Array
from shoal.core.seeds import Stream, episode_seed
from shoal.rides.options import RidesOptions
from shoal.rides.routing.oracle import RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import Problem
from shoal.rides.world.days import Days
from shoal.rides.world.world import World, make_world

ITERATIONS = 30  # K of training
PEAK_S = (7 * 3600, 9 * 3600)
# At 30 requests in two hours nine days of ten cannot be driven with five vehicles; at 24 about half can.
PEAK_CUSTOMERS = 24
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


def world() -> World:
    """San Francisco with its riders and fleet."""
    return make_world(RidesOptions())


def asked(numbers: Sequence[int]) -> Array:
    """REQUEST[n, 30]: these days as asked; day d is the d-th of a contest with seed 0."""
    source = world().days("held_out")
    return np.stack([source.draw(_seed(number)).requests for number in numbers])


def peak(numbers: Sequence[int]) -> Array:
    """REQUEST[n, 24]: days of which all pickups lie between seven and nine."""
    here = world()
    source = Days(here.city, here.riders, customers=PEAK_CUSTOMERS, split="held_out", peak_s=PEAK_S)
    return np.stack([source.draw(_seed(number)).requests for number in numbers])


def keys(numbers: Sequence[int], step: int, turn: int = 0) -> Array:
    """uint64[n]: the oracle's randomness, one for each day, step and turn."""
    with np.errstate(over="ignore"):
        day = mix(np.asarray(numbers, np.uint64) * _INCREMENT + np.uint64(turn))
        found: Array = mix(day + np.uint64(step) * _INCREMENT)
    return found


def booked(
    oracle: RoutingOracle, numbers: Sequence[int], days: Array, turn: int = 0, steps: int | None = None
) -> Plans:
    """The days planned request by request as they come, the first `steps` of them."""
    plans = Plans(oracle.problem, *days.shape)
    for step in range(days.shape[1] if steps is None else steps):
        oracle.add(plans, days[:, step], keys(numbers, step, turn), ITERATIONS)
    return plans


def fingerprint(problem: Problem, requests: Array) -> str:
    """What a stored figure about a day is about: another city, fleet or day has another one."""
    numbers = (problem.depot, problem.vehicles, problem.capacity, problem.open_s, problem.close_s)
    digest = hashlib.sha256(repr(tuple(map(int, numbers))).encode())
    digest.update(np.ascontiguousarray(problem.travel_s, "<i4").tobytes())
    digest.update(np.ascontiguousarray(requests).tobytes())
    return digest.hexdigest()[:16]


def _seed(number: int) -> int:
    return episode_seed(0, number, 0, Stream.EVALUATE, scheme=1)
