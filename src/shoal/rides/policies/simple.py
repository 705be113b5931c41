"""Who to beat: policies that play days of `RidesVectorEnv`, from making no offer at all to knowing everything.

A policy is called with the environment and its last observation and returns one offer for every day. None of them keeps
state that matters: the same day at the same step gets the same offer, whatever is beside it in the batch.

>>> sorted(POLICIES)[:4]
['everything', 'fixed', 'hindsight', 'informed']
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.compiled.random import mix
from shoal.core.seeds import Stream, episode_seed
from shoal.rides.policies.futures import rollout
from shoal.rides.policies.hindsight import hindsight
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.observe import Menu
    from shoal.rides.options import RidesOptions

Array = np.ndarray[Any, Any]
Policy = Callable[["RidesVectorEnv", dict[str, Array]], Array]

EVERYTHING = 3  # 30 minutes earlier and 30 later
_RANDOM = np.uint64(0xD1B54A32D192ED03)  # sets the draws of the random policy apart from the oracle's
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


def none() -> Policy:
    """Never make an offer."""
    return constant(NO_CHANGE)


def everything() -> Policy:
    """Ask everyone for everything."""
    return constant(EVERYTHING)


def constant(offer: int) -> Policy:
    """The same offer to everyone."""
    if not 0 <= offer < NUM_OFFERS:
        raise ValueError(f"expected an offer of 0 to {NUM_OFFERS - 1}, got {offer}")
    return lambda env, obs: np.full(env.num_envs, offer, np.int64)


def random(seed: int = 0) -> Policy:
    """Any of the 16 offers with the same chance: a function of seed, day and step."""
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"expected a seed of 0 to 2**64 - 1, got {seed}")

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        with np.errstate(over="ignore"):
            word = mix(env.bookings.step_keys() + mix(np.uint64(seed) * _INCREMENT + _RANDOM))
        return np.asarray(word >> np.uint64(60), np.int64)  # the top 4 of 64 bits

    return choose


def fixed(offer: int | None = None) -> Policy:
    """The one offer that does best when made to everyone; without `offer`, the best on days of training riders."""
    if offer is not None:
        return constant(offer)
    return lambda env, obs: np.full(env.num_envs, best_fixed_offer(env.options), np.int64)


@functools.lru_cache(maxsize=32)
def best_fixed_offer(options: RidesOptions, days: int = 64, iterations: int = 10, seed: int = 0) -> int:
    """The fixed change with the largest mean net gain over training days; no change is not a candidate."""
    from shoal.rides.bookings import Bookings
    from shoal.rides.routing.oracle import RoutingOracle
    from shoal.rides.world.world import make_world

    world = make_world(options)
    source = world.days("train")
    drawn = [source.draw(episode_seed(seed, day, 0, Stream.TRAIN)) for day in range(days)]
    bookings = Bookings(world, days * NUM_OFFERS, RoutingOracle(world.problem), with_base=False)
    bookings.begin(np.arange(days * NUM_OFFERS), [day for day in drawn for _ in range(NUM_OFFERS)])
    offers = np.tile(np.arange(NUM_OFFERS), days)
    for _ in range(bookings.customers):
        bookings.book(offers, iterations)
    patience, refusal = options.burden_rates
    loss_min = bookings.cost_s() / 60 + patience * bookings.agreed_min().sum(1) + refusal * bookings.refused().sum(1)
    mean = loss_min.reshape(days, NUM_OFFERS).mean(0)
    mean[NO_CHANGE] = np.inf
    return int(mean.argmin())


def max_change(threshold: float = 0.7) -> Policy:
    """The most minutes that are accepted with at least this probability; among equals the likeliest."""
    if not 0 < threshold <= 1:
        raise ValueError(f"expected a threshold above 0 and at most 1, got {threshold}")
    return lambda env, obs: most_minutes(env.menu.p_accept, threshold)


def most_minutes(p_accept: Array, threshold: float) -> Array:
    """Offers int64[...] with the most minutes among those with P of at least `threshold`, from P [..., 16].

    >>> p = np.full((1, 16), 0.5); p[0, [8, 12, 13]] = 0.8, 1.0, 0.9
    >>> most_minutes(p, 0.7)
    array([13])
    """
    score = np.where(p_accept >= threshold, OFFER_MIN + p_accept, -1.0)  # minutes come in tens: P only breaks ties
    score[..., NO_CHANGE] = 0.0
    return np.asarray(score.argmax(-1), np.int64)


def max_expected() -> Policy:
    """The most expected minutes: argmax of P times minutes."""
    return lambda env, obs: best_or_none(env.menu.p_accept * OFFER_MIN)


def myopic(prices: str | None = None) -> Policy:
    """The largest P x saving less the expected burden.

    By the environment's own menu, or by "insertion" or "pooled" prices of its oracle.
    """
    if prices not in (None, "insertion", "pooled"):
        raise ValueError(f"expected prices of insertion, pooled or None (the environment's), got {prices!r}")

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        menu = env.menu if prices in (None, env.options.prices) else _other_menu(env, str(prices))
        return best_or_none(menu.expected_min(menu.saving_min, *env.options.burden_rates))

    return choose


def _other_menu(env: RidesVectorEnv, prices: str) -> Menu:
    """The menu with the prices that the environment does not show."""
    from shoal.rides.observe import make_menu

    bookings, effect = env.bookings, env.options.offer_effect
    request = bookings.now(bookings.requests)
    if prices == "pooled":
        total_s, status = env.oracle.pooled_menu(bookings.plans, request, mix(bookings.step_keys()), effect)
        extra_s = total_s - bookings.plans.cost_s[:, None]
    else:
        extra_s, status = env.oracle.insertion_menu(bookings.plans, request, effect)
    return make_menu(bookings, extra_s, status, env.menu.p_accept)


def lookahead() -> Policy:
    """The largest expected net gain at the end of the day, as the network of lookahead.py predicts it."""

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        from shoal.rides.observe import OFFER_COLUMN

        if env.lookahead is None:
            raise ValueError(f"lookahead: expected an environment with start='lookahead', got {env.options.start!r}")
        return best_or_none(obs["offers"][:, :, OFFER_COLUMN["lookahead"]])

    return choose


def taught() -> Policy:
    """What training starts from by default: the network as it was taught from sampled futures."""

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        import torch

        from shoal.rides.policies.network import taught_network

        if env.lookahead is None:
            raise ValueError(f"taught: expected an environment with start='taught', got {env.options.start!r}")
        options = env.options
        network = taught_network(options.customers, options.prices, options.start_temperature)
        with torch.inference_mode():
            seen = {name: torch.from_numpy(part) for name, part in obs.items()}
            return np.asarray(network.policy(seen).argmax(1).numpy())

    return choose


def informed() -> Policy:
    """Knows the answers: of what the rider would accept, the largest saving on the menu less the burden."""

    def choose(env: RidesVectorEnv, obs: dict[str, Array]) -> Array:
        patience, _ = env.options.burden_rates
        gain = env.menu.saving_min - patience * OFFER_MIN
        return best_or_none(np.where(would_accept(env), gain, -np.inf))

    return choose


def would_accept(env: RidesVectorEnv) -> Array:
    """bool[N, 16]: the offers that the current riders would accept."""
    bookings = env.bookings
    chance = env.world.true_probability(bookings.now(bookings.rider), bookings.now(bookings.purpose))
    accepts = bookings.now(bookings.mood)[:, None] < chance
    accepts[:, NO_CHANGE] = True
    return np.asarray(accepts)


def best_or_none(score: Array) -> Array:
    """argmax over the 16 offers, int64[N]; no change unless another offer is strictly better."""
    best = score.argmax(1)
    better = np.take_along_axis(score, best[:, None], 1)[:, 0] > score[:, NO_CHANGE]
    return np.asarray(np.where(better, best, NO_CHANGE), np.int64)


POLICIES: dict[str, Callable[..., Policy]] = {
    "none": none,
    "random": random,
    "everything": everything,
    "fixed": fixed,
    "max-change": max_change,
    "max-expected": max_expected,
    "myopic": myopic,
    "lookahead": lookahead,
    "taught": taught,
    "rollout": rollout,
    "informed": informed,
    "hindsight": hindsight,
}
