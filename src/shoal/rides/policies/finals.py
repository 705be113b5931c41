"""Thinking before an offer in a closed loop: the agent's best three offers, each played to the end of the day.

The rider has accepted, and the agent as it is negotiates every later call of a sampled future with that in its plans;
beside the three runs the same future with the request booked as asked. All four meet the same callers in the same moods
and the same draws of the search, so their differences carry little of the luck of a day. What the futures say is
weighed against the agent's own judgement, as in thinking.py; whoever is not among the three is not offered.

At the desk rounds grow for as long as the time lasts, to twice as many futures as there were before. A round that would
not end in time is not begun, and one that does not after all is given up: then what was known before decides.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.policies.futures import callers
from shoal.rides.policies.halving import Halving
from shoal.rides.policies.onward import Act, OutOfTime
from shoal.rides.policies.thinking import Scores
from shoal.rides.routing.problem import NO_CHANGE, NUM_OFFERS

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv

FINALISTS = 3
FUTURES = 6  # that end in 0.3 s at most of a day's 30 calls, on a core that is free: 4 at the first, 15 at the 25th
# The luck of the search is most of what such a future is wrong by: with 2 and 30 iterations, as in halving.py, its
# variance is three times as large for a fifth less time, and it says too little of room.
BUILD, POLISH = 30, 300
# The agent's judgement counts as twice as many of these futures as of those in which riders are asked generously: that
# is how much more they vary (both on 24 days of the taught policy).
JUDGEMENT, SHOWN = 32.0, 4.0
FIRST, MOST_FUTURES = 2, 256  # of the first round, and of all
_MOST_ROWS = 2048


class Finals(Halving):
    """A policy that plays its best offers to the end before it decides: `futures` times, or as often as `seconds`
    allow. `act` returns the agent's offers int64[N], `scores` its own judgement."""

    build, polish = BUILD, POLISH

    def __init__(
        self,
        act: Act,
        scores: Scores,
        futures: int = FUTURES,
        *,
        judgement: float | None = None,
        seconds: float | None = None,
    ) -> None:
        super().__init__(act, scores, futures, judgement=judgement)
        self.seconds = seconds

    def net_min(self, env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
        """Expected net gain of the finalists and of no change, float64[N, 16]; -inf elsewhere."""
        judged = np.where(observations["action_mask"].astype(np.bool_), self.scores(env, observations), -np.inf)
        self.thought, self.saves_min = 0, np.full(judged.shape, np.nan)
        going_on = np.flatnonzero(env.bookings.t < env.bookings.customers - 1)  # who is last has no future
        if not going_on.size:
            return judged
        rows = going_on[:, None]
        changes = np.where(np.arange(NUM_OFFERS) == NO_CHANGE, -np.inf, judged[going_on])
        best = np.argsort(-changes, axis=1, kind="stable")[:, :FINALISTS]
        worth = self._in_time(env, going_on, best)
        self.thought = worth.shape[2]
        if not self.thought:
            return judged
        allowed = np.isfinite(judged[rows, best])
        self.saves_min[rows, best] = np.where(allowed, worth.mean(2), np.nan)
        self.saves_min[going_on, NO_CHANGE] = 0.0
        weight = self.thought / (self.thought + self.worth(env))
        net = judged.copy()
        net[going_on] = np.where(np.arange(NUM_OFFERS) == NO_CHANGE, judged[going_on], -np.inf)
        net[rows, best] = weight * self._gain(env, going_on, best, worth.mean(2)) + (1 - weight) * judged[rows, best]
        return net

    def worth(self, env: RidesVectorEnv) -> float:
        """Futures that the agent's own judgement counts as."""
        return JUDGEMENT + SHOWN * env.options.futures if self.judgement is None else self.judgement

    def _in_time(self, env: RidesVectorEnv, days: Array, offers: Array) -> Array:
        """What these offers [K, F] save in each future that there was time for, float64[K, F, futures]."""
        first = env.options.futures  # the network was shown those before
        if self.seconds is None:
            return self._in_parts(env, days, offers, np.arange(first, first + self.futures))
        self._onward.begin(env, 1)  # made once, and not in the time of an answer
        callers(env.believed)
        until_s = time.monotonic() + self.seconds
        found = [np.zeros((*offers.shape, 0))]
        done, count = 0, min(FIRST, self.futures)
        while count:
            began_s = time.monotonic()
            try:
                numbers = np.arange(first + done, first + done + count)
                found.append(self._worth(env, days, offers, numbers, until_s=until_s))
            except OutOfTime:
                break
            now_s, done = time.monotonic(), done + count
            fit = int((until_s - now_s) / (now_s - began_s) * count)  # a larger round takes less time a future ...
            count = min(2 * done, fit, self.futures - done) if fit >= count else 0  # ... a smaller one more
        return np.concatenate(found, 2)

    def _in_parts(self, env: RidesVectorEnv, days: Array, offers: Array, numbers: Array) -> Array:
        """Of many days, a few at a time."""
        size = max(1, _MOST_ROWS // (len(numbers) * (FINALISTS + 1)))
        parts = range(0, len(days), size)
        return np.concatenate(
            [self._worth(env, days[low : low + size], offers[low : low + size], numbers) for low in parts]
        )
