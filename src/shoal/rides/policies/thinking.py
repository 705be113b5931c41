"""Thinking before each offer: futures of the day in which the agent itself negotiates what is still to come.

The futures of futures.py ask everybody generously, because they do not know who will negotiate. Here the later requests
of each future are negotiated by the agent, request by request, and only then the present request is priced under
all 16 offers at once: one step of policy iteration. The agent's own judgement counts as so many futures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.policies.futures import PRICE_ITERATIONS, callers, draws, savings_min
from shoal.rides.policies.onward import Act, Onward
from shoal.rides.policies.simple import best_or_none
from shoal.rides.routing.problem import NUM_OFFERS

if TYPE_CHECKING:
    from shoal.rides.bookings import Bookings
    from shoal.rides.env import RidesVectorEnv

Scores = Callable[["RidesVectorEnv", dict[str, Array]], Array]
JUDGEMENT = 8.0  # futures that the agent's own judgement is worth
MOST_FUTURES = 64
ROUND = 4  # futures at a time at the desk, until its time is up
_MOST_ROWS = 2048


class Thinking:
    """A policy that plays futures of the day with `act` before it decides. `scores` is the agent's own judgement.

    `act` returns the agent's offers int64[N]; `scores` the net gain in minutes that it expects of each offer,
    float64[N, 16].
    """

    def __init__(
        self, act: Act, scores: Scores, futures: int, *, judgement: float = JUDGEMENT, seconds: float | None = None
    ) -> None:
        if futures < 1 or judgement < 0:
            raise ValueError(f"expected at least 1 future and a judgement of at least 0, got {futures}, {judgement}")
        self.act, self.scores, self.futures, self.judgement, self.seconds = act, scores, futures, judgement, seconds
        self.thought = 0  # futures played before the last offer
        self.saves_min: Array  # float64[N, 16], what an acceptance saves on average over them
        self._onward = Onward()

    def __call__(self, env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
        """The offers int64[N] that are best on average over futures and the agent's own judgement."""
        return best_or_none(self.net_min(env, observations))

    def net_min(self, env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
        """Expected net gain of each offer, float64[N, 16]."""
        self.saves_min = self._saving_min(env).mean(1)
        gain = env.menu.expected_min(self.saves_min, *env.options.burden_rates)
        weight = self.thought / (self.thought + self.judgement)
        net = weight * gain + (1 - weight) * self.scores(env, observations)
        return np.where(observations["action_mask"].astype(np.bool_), net, -np.inf)

    def _saving_min(self, env: RidesVectorEnv) -> Array:
        """Minutes that each accepted offer saves by the end of each future, float64[N, futures, 16]."""
        if self.seconds is None:
            self.thought = self.futures
            return self._futures(env, np.arange(self.futures))
        begin_s = time.monotonic()
        rounds: list[Array] = []
        while len(rounds) * ROUND < self.futures:
            rounds.append(self._futures(env, np.arange(len(rounds) * ROUND, (len(rounds) + 1) * ROUND)))
            spent_s = time.monotonic() - begin_s
            if spent_s * (1 + 1 / len(rounds)) > self.seconds:  # another round would not end in time
                break
        self.thought = len(rounds) * ROUND
        return np.concatenate(rounds, 1)

    def close(self) -> None:
        """End the threads of the futures."""
        self._onward.close()

    def _futures(self, env: RidesVectorEnv, numbers: Array) -> Array:
        bookings = env.bookings
        values = np.zeros((env.num_envs, len(numbers), NUM_OFFERS))
        size = max(1, _MOST_ROWS // len(numbers))
        for t in np.unique(bookings.t[bookings.t < bookings.customers]).tolist():
            rows = np.flatnonzero(bookings.t == t)
            for low in range(0, len(rows), size):
                part = rows[low : low + size]
                values[part] = self._played(env, part, numbers, t)
        return values

    def _played(self, env: RidesVectorEnv, days: Array, numbers: Array, t: int) -> Array:
        """The same request of these days, in futures that the agent plays to the end without it."""
        later = env.bookings.customers - t - 1
        own, keys = self._begun(env, np.repeat(days, len(numbers)), *draws(env, days, numbers), t, without=True)
        self._onward.go_on(self.act, later)
        request = np.repeat(env.bookings.now(env.bookings.requests)[days], len(numbers))
        return savings_min(env, own.plans, request, keys, PRICE_ITERATIONS).reshape(len(days), len(numbers), -1)

    def _begun(
        self, env: RidesVectorEnv, source: Array, keys: Array, which: Array, t: int, *, without: bool
    ) -> tuple[Bookings, Array]:
        """Futures of days `source`, all of them at request t: with that request, or without it and one shorter."""
        bookings, pool = env.bookings, callers(env.believed)
        own = self._onward.begin(env, len(source))
        first, last = (t, bookings.customers - 1) if without else (t + 1, bookings.customers)
        for name in ("requests", "rider", "purpose", "mood"):
            mine, known, later = (getattr(one, name) for one in (own, bookings, pool))
            mine[:, :first] = known[source, :first]
            mine[:, first:last] = later[which, t + 1 :]
        own.offer[:, :t], own.accepted[:, :t] = bookings.offer[source, :t], bookings.accepted[source, :t]
        own.key[:], own.t[:] = keys, t
        own.plans.copy_rows(bookings.plans, source, slice(None))
        return own, keys
