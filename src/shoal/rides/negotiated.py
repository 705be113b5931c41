"""Credit from days that the agent negotiates once more: policy iteration on what really came later.

The rebuilt day (credit.py) holds fixed what later riders agreed to, which fits the request as it was answered then.
Here the day goes on without the request: the agent, as it is now, negotiates the later ones again, with the riders who
called and in their moods, and only then the request is priced under all 16 offers. Every later request costs a
look at its prices, so that a request takes about fifteen times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.arrays import Array
from shoal.core.protocols import Acting
from shoal.rides.bookings import Bookings
from shoal.rides.credit import RebuiltDays, priced_min
from shoal.rides.policies.onward import Act, Onward
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import NUM_OFFERS

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv


class Called(NamedTuple):
    """One day as it was called in, and what was offered."""

    requests: Array  # REQUEST[C], as asked
    rider: Array
    purpose: Array
    mood: Array
    offer: Array
    accepted: Array


class NegotiatedDays(RebuiltDays):
    """As RebuiltDays, with the later requests negotiated again; `of` says by whom."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self._onward = Onward()
        self._env: RidesVectorEnv | None = None
        self._act: Act | None = None

    def of(self, env: RidesVectorEnv, policy: Acting) -> RebuiltDays:
        """With the most probable offers of this policy to the later requests."""
        self._env, self._act = env, lambda world, observations: policy(observations, batched=True)
        return self

    def keep(self, rows: Array, bookings: Bookings) -> list[Any]:
        """Of each of these days what it takes to play it once more."""
        arrays = [getattr(bookings, name)[rows] for name in Called._fields]
        return [Called(*parts) for parts in zip(*arrays, strict=True)]

    def savings_min(self, days: Plans, kept: list[Any], t: Array, request: Array, key: Array) -> Array:
        """Minutes that each accepted offer to request t[k] saves by the end of its day, float64[K, 16]."""
        assert self._env is not None
        assert self._act is not None
        return replayed_min(self._env, self._onward, self._act, days, kept, t, request, key)

    def close(self) -> None:
        """End the threads of the days played."""
        self._onward.close()


def replayed_min(
    env: RidesVectorEnv, onward: Onward, act: Act, days: Plans, kept: list[Any], t: Array, request: Array, key: Array
) -> Array:
    """Minutes that each accepted offer saves at the end of days that are played on without the request."""
    found = np.empty((len(t), NUM_OFFERS))
    for now in np.unique(t).tolist():
        rows = np.flatnonzero(t == now)
        own = onward.begin(env, len(rows))
        customers = own.customers
        for name in ("requests", "rider", "purpose", "mood"):
            mine, known = getattr(own, name), np.stack([getattr(kept[row], name) for row in rows])
            mine[:, :now], mine[:, now : customers - 1] = known[:, :now], known[:, now + 1 :]
        for name in ("offer", "accepted"):
            getattr(own, name)[:, :now] = np.stack([getattr(kept[row], name) for row in rows])[:, :now]
        own.key[:], own.t[:] = key[rows], now
        own.plans.copy_rows(days, rows, slice(None))
        onward.go_on(act, customers - 1 - now)
        found[rows] = priced_min(env.oracle, own.plans, request[rows], key[rows], env.options.offer_effect)
    return found
