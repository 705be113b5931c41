"""Policies against each other on the same held-out days: the same requests, riders and moods for each of them.

Every day is played by every policy, planned by the task's own oracle, and, where a reference is given, priced again by
that independent solver. The day on which no offer is ever made is the yardstick: it is played once, by the same
oracle from the same keys. Nothing is dropped: a request that nobody could place stays in every mean at its penalty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.core.seeds import Stream, episode_seed
from shoal.rides.bookings import Bookings
from shoal.rides.contest.record import BASE, Contest, Played
from shoal.rides.desk.timetable import ride_s, timetable
from shoal.rides.env import RidesVectorEnv
from shoal.rides.flexibility.calibration import Calibration
from shoal.rides.knowledge import settle
from shoal.rides.options import RidesOptions
from shoal.rides.routing.problem import NO_CHANGE, OFFER_MIN, Status
from shoal.rides.world.world import make_world
from shoal.runs.pace import Pace

Array = np.ndarray[Any, Any]
Policy = Callable[[RidesVectorEnv, dict[str, Array]], Array]

ITERATIONS = 300  # ruin-and-recreate iterations after each request: ten times those of training
BATCH = 256  # days at a time


@dataclass(frozen=True)
class Entrant:
    """A policy and what it needs: options of its own (what its observations show), what it learned of riders."""

    policy: Policy
    changes: Mapping[str, Any] = field(default_factory=dict)  # of RidesOptions; only those that change what is seen
    flexibility: dict[str, Array] | None = None  # state of a FlexibilityModel; None: the contest's


def contest(
    entrants: Mapping[str, Policy | Entrant],
    options: RidesOptions,
    *,
    days: int = 900,
    seed: int = 0,
    iterations: int = ITERATIONS,
    flexibility: dict[str, Array] | None = None,
    believed: RidesOptions | None = None,
    reference: Any = None,
    workers: int = 1,
    threads: int = 1,
    batch: int = BATCH,
    say: Callable[[str], None] = lambda text: None,
) -> Contest:
    """Play every entrant on the same held-out days. Day d depends on (options, seed, d) alone.

    `flexibility` is the state of a flexibility model for entrants without one of their own; by default what the riders'
    histories teach. What any of them knows of a held-out rider is that rider's history under `options`, no more.
    `believed` is the world that sampled futures come from, by default that of `options`: in a shift test the one before
    the shift, but for the number of customers. `reference` is a `routing.reference.Reference`, or None to save its
    time.
    """
    if days < 1 or batch < 1:
        raise ValueError(f"expected at least 1 day and a batch of at least 1, got {days} and {batch}")
    options = replace(options, iterations=iterations, futures=0)  # for who asks for none
    believed = replace(believed or options, customers=options.customers)
    world = make_world(options)
    # Scheme 1: the same days as ever; the environment draws each from its seed (env.py, _begin).
    seeds = [episode_seed(seed, day, 0, Stream.EVALUATE, scheme=1) for day in range(days)]
    parts = -(-days // batch)
    size = -(-days // parts)  # batches of one size: the last is filled up with days that are dropped again
    padded = seeds + seeds[:1] * (parts * size - days)
    chunks = [padded[low : low + size] for low in range(0, len(padded), size)]

    others = [name for name in entrants if name != BASE]
    pace = Pace((1 + len(others)) * days, "days priced by the reference", say)

    def priced(play: Played) -> Played:
        """At once, not after all have been played: so after the first days it can be said how long all will take."""
        return play if reference is None else _with_reference(play, reference, workers, pace, len(played) * days)

    played: dict[str, Played] = {}
    say(f"{BASE}: {days} days")
    env = _environment(options, {"start": "none"}, None, size, threads)
    base, booked = _play_all(_never, env, chunks, days, offers=False)
    env.close()
    played[BASE] = priced(base)
    for name in others:
        entrant = entrants[name]
        say(f"{name}: {days} days")
        one = entrant if isinstance(entrant, Entrant) else Entrant(entrant)
        env = _environment(options, one.changes, one.flexibility or flexibility, size, threads)
        env.believed = believed
        try:
            play, _ = _play_all(one.policy, env, chunks, days)
        finally:
            env.close()
        played[name] = priced(play)
    asked, rider = base.requests, booked["rider"]
    return Contest(
        options=options,
        seed=seed,
        asked=asked,
        rider=rider,
        direct_s=world.problem.travel_s[asked["pickup"], asked["dropoff"]].astype(np.int64),
        kind=world.riders.kind[rider],
        played=played,
        prices=("own",) if reference is None else ("own", "reference"),
    )


def histories_only(options: RidesOptions) -> dict[str, Array]:
    """The state of a flexibility model that has learned from the riders' histories alone."""
    env = RidesVectorEnv(1, replace(options, start="none"), stream=Stream.EVALUATE)
    state = env.flexibility.state()
    env.close()
    return state


def _environment(
    options: RidesOptions,
    changes: Mapping[str, Any],
    flexibility: dict[str, Array] | None,
    size: int,
    threads: int,
) -> RidesVectorEnv:
    env = RidesVectorEnv(size, replace(options, **changes), threads=threads, stream=Stream.EVALUATE)
    env.bookings = Bookings(env.world, size, env.oracle, with_base=False)  # the base is the same for all: played once
    if flexibility is not None and env.options.knowledge == "learned":
        settle(env, flexibility)
    return env


def _never(env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
    return np.full(env.num_envs, NO_CHANGE, np.int64)


def _play_all(
    policy: Policy, env: RidesVectorEnv, chunks: list[list[int]], days: int, *, offers: bool = True
) -> tuple[Played, dict[str, Array]]:
    """Chunk by chunk; also who asked."""
    parts: list[dict[str, Array]] = []
    offered, menu = Calibration(), Calibration()
    for number, seeds in enumerate(chunks):
        real = min(len(seeds), days - number * len(seeds))
        parts.append(
            {name: rows[:real] for name, rows in _play(policy, env, seeds, real, offered, menu, offers).items()}
        )
    whole: dict[str, Any] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    rider = whole.pop("rider")
    return Played(**whole, offered=offered, menu=menu), {"rider": rider}


def _play(
    policy: Policy,
    env: RidesVectorEnv,
    seeds: list[int],
    real: int,
    offered: Calibration,
    menu: Calibration,
    offers: bool,
) -> dict[str, Array]:
    """One batch of whole days; the environment is asked for observations, and the bookings for everything else."""
    bookings = env.bookings
    observations, _ = env.reset(seed=seeds)
    for step in range(bookings.customers):
        chosen = np.asarray(policy(env, observations), np.int64)
        if offers:
            _compare(env, chosen, real, offered, menu)
        bookings.book(chosen, env.options.iterations)
        if step + 1 < bookings.customers and offers:
            observations = env.look()
    plans, problem = bookings.plans, env.world.problem
    agreed = bookings.agreed_requests()
    boarded = [ride_s(timetable(problem, agreed[day], plans.routes(day))) for day in range(bookings.num_days)]
    return {
        "requests": agreed,
        "offer": bookings.offer.copy(),
        "accepted": bookings.accepted.copy(),
        "served": plans.served.copy(),
        "stops": plans.stops.copy(),
        "lengths": plans.lengths.copy(),
        "ride_s": np.stack(boarded),
        "cost_s": bookings.cost_s().copy(),
        "rider": bookings.rider.copy(),
    }


def _compare(env: RidesVectorEnv, chosen: Array, real: int, offered: Calibration, menu: Calibration) -> None:
    """What the agent believes of the answers, beside the answers: of its offers, and of all it could have made."""
    bookings, p = env.bookings, env.menu.p_accept
    chance = env.world.true_probability(bookings.now(bookings.rider), bookings.now(bookings.purpose))
    answers = bookings.now(bookings.mood)[:, None] < chance  # bool[N, 16]
    rows = np.flatnonzero(chosen[:real] != NO_CHANGE)
    offered.add(p[rows, chosen[rows]], answers[rows, chosen[rows]])
    changes = OFFER_MIN > 0
    menu.add(p[:real, changes].ravel(), answers[:real, changes].ravel())


def _with_reference(play: Played, reference: Any, workers: int, pace: Pace, before: int) -> Played:
    """Priced by the independent solver; `before` is how many days of others have been."""
    priced = reference.price(list(play.requests), workers=workers, on_priced=lambda done, of: pace.at(before + done))
    return replace(
        play,
        reference_s=np.array([one.cost_s for one in priced], np.int64),
        reference_unserved=np.array([len(one.unserved) for one in priced], np.int64),
        reference_errors=sum(one.status != Status.OK for one in priced),
    )
