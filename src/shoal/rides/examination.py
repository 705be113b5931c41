"""How well the agent does while it trains, on a few days of held-out riders, beside the policies to beat.

The days are always the same and are none of those of `shoal evaluate`; they are planned by the training's own oracle,
and searched once more when they are over, so that luck of the search does not hide what offers do. Nothing is chosen by
them: they are for the person who watches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shoal.compiled.random import mix
from shoal.core.arrays import Array
from shoal.core.protocols import Acting
from shoal.core.seeds import Stream, episode_seed
from shoal.rides.knowledge import settle
from shoal.rides.observe import OFFER_COLUMN
from shoal.rides.options import RidesOptions

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv

SEED = 0x5EE  # of these days; `shoal evaluate` counts its seeds from 0
DAYS = 256  # two policies that are a minute and a half apart can just be told apart
POLISH = 300  # iterations on a day that is over
_OFTEN, _EVERY = (0, 1, 2, 4), 8  # epochs after which it is held: most happens at the beginning


def is_due(epoch: int) -> bool:
    """Whether to look after this epoch."""
    return epoch in _OFTEN or epoch % _EVERY == 0


class Examination:
    """The days, and what the policies to beat make of them; made when it is first held."""

    def __init__(self, options: RidesOptions, days: int, threads: int) -> None:
        self.days, self._threads = days, threads
        self._options = replace(options, background=False, credit="rewards")
        self._env: RidesVectorEnv | None = None
        self.levels: dict[str, float] = {}  # net gain of the policies to beat, minutes a day
        self._base_s = np.zeros(days, np.int64)  # the days without offers

    def hold(self, policy: Acting, flexibility: dict[str, Array]) -> dict[str, float]:
        """Mean net gain a day in minutes: of the most probable offers, and of offers sampled as in training."""

        def offers(observations: dict[str, Array]) -> Array:
            likely, sampled = (
                policy({name: part[rows] for name, part in observations.items()}, deterministic=sure, batched=True)
                for rows, sure in ((slice(self.days), True), (slice(self.days, None), False))
            )
            return np.concatenate([likely, sampled])

        if self._env is None:
            self._env = self._begin()
        settle(self._env, flexibility)
        likely, sampled = self._play(self._env, offers)
        return {"held_out/net_min": likely, "held_out/sampled_min": sampled}

    def close(self) -> None:
        """End its threads."""
        if self._env is not None:
            self._env.close()

    def _begin(self) -> RidesVectorEnv:
        """Let the policies to beat play the days, then make the agent's own environment."""
        from shoal.rides.policies.simple import best_or_none

        def offers(observations: dict[str, Array]) -> Array:
            scores = observations["offers"]
            halves = (("myopic", slice(self.days)), ("lookahead", slice(self.days, None)))
            return np.concatenate([best_or_none(scores[rows, :, OFFER_COLUMN[name]]) for name, rows in halves])

        env = self._make(replace(self._options, start="lookahead", futures=0), with_base=True)
        self.levels = dict(zip(("myopic", "lookahead"), self._play(env, offers), strict=True))
        env.close()
        return self._make(self._options, with_base=False)

    def _make(self, options: RidesOptions, *, with_base: bool) -> RidesVectorEnv:
        from shoal.rides.bookings import Bookings
        from shoal.rides.env import RidesVectorEnv

        env = RidesVectorEnv(2 * self.days, options, threads=self._threads, stream=Stream.EVALUATE)
        env.bookings = Bookings(env.world, 2 * self.days, env.oracle, with_base=with_base)
        return env

    def _play(self, env: RidesVectorEnv, offers: Callable[[dict[str, Array]], Array]) -> tuple[float, float]:
        """The days twice over, side by side: the mean net gain of the first half of the rows and of the second."""
        seeds = [episode_seed(SEED, day, 0, Stream.EVALUATE, scheme=1) for day in range(self.days)]
        observations, _ = env.reset(seed=seeds + seeds)
        bookings = env.bookings
        while True:
            bookings.book(offers(observations), env.options.iterations)
            if bookings.t[0] == bookings.customers:
                break
            observations = env.look()
        keys = mix(bookings.step_keys())
        env.oracle.polish(bookings.plans, keys, POLISH)
        if bookings.base is not None:
            env.oracle.polish(bookings.base, keys, POLISH)
            self._base_s = bookings.base_cost_s()[: self.days]
        patience, refusal = env.options.burden_rates
        burden_min = patience * bookings.agreed_min().sum(1) + refusal * bookings.refused().sum(1)
        net_min = (np.tile(self._base_s, 2) - bookings.cost_s()) / 60.0 - burden_min
        return float(net_min[: self.days].mean()), float(net_min[self.days :].mean())
