"""The rollout that the agent plays itself: `rollout:agent`, as slow as thorough.

All 16 offers are priced in futures whose later requests the agent negotiates, request by request: one step of policy
iteration. The best four are then each played for themselves: the rider has accepted, and the agent negotiates what is
still to come with that in its plans; beside them the same futures with no change. Half of them drop out, the others
meet new futures, and so on: sequential halving (Karnin et al. 2013). All offers meet the same callers in the same moods
and the same draws of the search.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.policies.futures import PRICE_ITERATIONS, callers, draws, savings_min
from shoal.rides.policies.onward import BUILD_ITERATIONS, Act, Onward
from shoal.rides.policies.thinking import Scores, Thinking
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS, OFFER_MIN

if TYPE_CHECKING:
    from shoal.rides.bookings import Bookings
    from shoal.rides.env import RidesVectorEnv

FUTURES = 16  # of all offers at once
FINALISTS = (4, 2)  # offers played for themselves, round by round
PLAYED = 8  # futures a round
POLISH = 30  # iterations on the day that a future has come to
_MOST_ROWS = 2048


class Halving(Thinking):
    """A policy that thinks in futures that `act` negotiates, and then plays its best offers to the end one by one.

    `act` returns the agent's offers int64[N].
    """

    build, polish = BUILD_ITERATIONS, POLISH

    def __init__(
        self,
        act: Act,
        scores: Scores,
        futures: int = FUTURES,
        *,
        played: int = PLAYED,
        judgement: float | None = None,
    ) -> None:
        super().__init__(scores, futures, judgement=judgement)
        self.act, self.played = act, played
        self._onward = Onward(self.build)

    def net_min(self, env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
        """Expected net gain of each offer, float64[N, 16]: of those played for themselves with that counted in."""
        net = super().net_min(env, observations)
        counted = np.full(net.shape, self.futures + self.worth(env))  # futures behind each figure
        going_on = np.flatnonzero(env.bookings.t < env.bookings.customers - 1)  # who is last has no future
        for number, finalists in enumerate(FINALISTS if going_on.size else ()):
            changes = np.where(np.arange(NUM_OFFERS) == NO_CHANGE, -np.inf, net[going_on])
            best = np.argsort(-changes, axis=1, kind="stable")[:, :finalists]
            low = self.futures + number * self.played  # futures that nobody has met
            gain = self._gains(env, going_on, best, np.arange(low, low + self.played))
            rows = going_on[:, None]
            before = counted[rows, best]
            net[rows, best] = (before * net[rows, best] + self.played * gain) / (before + self.played)
            counted[rows, best] += self.played
        return net

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

    def _gains(self, env: RidesVectorEnv, days: Array, offers: Array, numbers: Array) -> Array:
        """Expected net gain of these offers [K, F] to days[k] over futures of these numbers, against no change."""
        return self._gain(env, days, offers, self._worth(env, days, offers, numbers).mean(2))

    def _gain(self, env: RidesVectorEnv, days: Array, offers: Array, worth: Array) -> Array:
        """Expected net gain of these offers when an acceptance is worth so many minutes, all of them [K, F]."""
        patience, refusal = env.options.burden_rates
        p = env.menu.p_accept[days[:, None], offers]
        return np.asarray(p * (worth - patience * OFFER_MIN[offers]) - refusal * (1 - p))

    def _worth(
        self, env: RidesVectorEnv, days: Array, offers: Array, numbers: Array, until_s: float | None = None
    ) -> Array:
        """Minutes that the rest of the day is better with these offers accepted, float64[K, F, futures]."""
        worth = np.empty((*offers.shape, len(numbers)))
        t_of = env.bookings.t[days]
        for t in np.unique(t_of).tolist():
            here = np.flatnonzero(t_of == t)
            made = np.concatenate([offers[here], np.full((len(here), 1), NO_CHANGE)], 1)
            net = self._ends(env, days[here], made, numbers, t, until_s)
            worth[here] = net[:, :-1] - net[:, -1:]
        return worth

    def _ends(
        self, env: RidesVectorEnv, days: Array, offers: Array, numbers: Array, t: int, until_s: float | None = None
    ) -> Array:
        """What days come to when these offers are accepted, in minutes less than nothing: float64[K, F, futures]."""
        shape = *offers.shape, len(numbers)
        keys, which = (
            np.broadcast_to(one.reshape(len(days), 1, -1), shape).ravel() for one in draws(env, days, numbers)
        )
        source = np.broadcast_to(days[:, None, None], shape).ravel()
        own, _ = self._begun(env, source, keys, which, t, without=False)
        own.put(np.broadcast_to(offers[:, :, None], shape).ravel(), np.ones(len(source), np.bool_), self.build)
        self._onward.go_on(self.act, own.customers - t - 1, until_s)
        env.oracle.polish(own.plans, keys, self.polish)
        patience, refusal = env.options.burden_rates
        later = np.arange(own.customers) > t
        burden = patience * (own.agreed_min() * later).sum(1) + refusal * (own.refused() & later).sum(1)
        return np.asarray(-own.cost_s() / 60.0 - burden).reshape(shape)
