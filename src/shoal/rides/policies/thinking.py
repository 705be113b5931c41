"""Thinking before each offer: many sampled futures of the day, weighed against the agent's own judgement.

The network has been taught what futures come to, and has seen some of this very day's. What more of them say is weighed
by what either side is known to be wrong by: the judgement counts as so many futures (benchmarks/rides/rides_ceiling.py
measures how many), so that a few futures hardly move it and hundreds nearly replace it. The later riders of a future
are asked generously: a future that the agent negotiates itself says as much of the truth and takes fifteen times as
long (docs/rides.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.arrays import Array
from shoal.rides.policies.futures import TRUST, future_values
from shoal.rides.policies.simple import best_or_none

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv

Scores = Callable[["RidesVectorEnv", dict[str, Array]], Array]
JUDGEMENT, SHOWN = 16.0, 2.0  # futures that the agent's own judgement is worth, and more for each that it was shown
MOST_FUTURES = 1024
ROUND = 64  # futures at a time at the desk, until its time is up


class Thinking:
    """A policy that samples futures of the day before it decides. `scores` is the agent's own judgement: the net gain
    in minutes that it expects of each offer, float64[N, 16]."""

    def __init__(
        self, scores: Scores, futures: int, *, judgement: float | None = None, seconds: float | None = None
    ) -> None:
        if futures < 1 or (judgement is not None and judgement < 0):
            raise ValueError(f"expected at least 1 future and a judgement of at least 0, got {futures}, {judgement}")
        self.scores, self.futures, self.judgement, self.seconds = scores, futures, judgement, seconds
        self.thought = 0  # futures played before the last offer
        self.saves_min: Array  # float64[N, 16], what an acceptance saves on average over them

    def __call__(self, env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
        """The offers int64[N] that are best on average over futures and the agent's own judgement."""
        return best_or_none(self.net_min(env, observations))

    def net_min(self, env: RidesVectorEnv, observations: dict[str, Array]) -> Array:
        """Expected net gain of each offer, float64[N, 16]."""
        self.saves_min = self._saving_min(env).mean(1)
        gain = env.menu.expected_min(TRUST * self.saves_min, *env.options.burden_rates)
        weight = self.thought / (self.thought + self.worth(env))
        net = weight * gain + (1 - weight) * self.scores(env, observations)
        return np.where(observations["action_mask"].astype(np.bool_), net, -np.inf)

    def worth(self, env: RidesVectorEnv) -> float:
        """Futures that the agent's own judgement counts as."""
        return JUDGEMENT + SHOWN * env.options.futures if self.judgement is None else self.judgement

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

    def _futures(self, env: RidesVectorEnv, numbers: Array) -> Array:
        """Of futures with these numbers; those that the network was shown come before them."""
        return future_values(env, len(numbers), first=env.options.futures + int(numbers[0]))
