"""Days that an agent negotiates to the end by itself: what would come after a decision, as it would go about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.core.arrays import Array
from shoal.core.seeds import Stream
from shoal.rides.bookings import Bookings

if TYPE_CHECKING:
    from shoal.rides.env import RidesVectorEnv

Act = Callable[["RidesVectorEnv", dict[str, Array]], Array]
BUILD_ITERATIONS = 2  # ruin-and-recreate iterations after each later request


class OutOfTime(Exception):
    """These days cannot be played to the end in time."""


class Onward:
    """An environment beside the real one, with days of its own for as long as they are needed.

    The agent sees there what it sees in the real one, less futures. `build_iterations`: of the search after each
    request.
    """

    def __init__(self, build_iterations: int = BUILD_ITERATIONS) -> None:
        self.build_iterations = build_iterations
        self._world: RidesVectorEnv | None = None

    def begin(self, env: RidesVectorEnv, count: int) -> Bookings:
        """So many empty days, to be filled in by the caller; planned by the oracle of `env`."""
        world = self._of(env)
        world.num_envs = count
        world.bookings = Bookings(world.world, count, env.oracle, with_base=False)
        return world.bookings

    def go_on(self, act: Act, requests: int, until_s: float | None = None) -> None:
        """Negotiate so many requests of every day; OutOfTime when the next would not be done by `until_s`, as
        `time.monotonic()` counts."""
        world = self._world
        assert world is not None
        began_s = time.monotonic()
        for done in range(requests):
            spent_s = time.monotonic() - began_s
            if until_s is not None and began_s + spent_s * (1 + 1 / max(1, done)) > until_s:
                raise OutOfTime
            world.bookings.book(act(world, world.look()), self.build_iterations)

    def close(self) -> None:
        """End its threads."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def _of(self, env: RidesVectorEnv) -> RidesVectorEnv:
        from shoal.rides.env import RidesVectorEnv

        options = replace(
            env.options, type_mix=env.believed.type_mix, acceptance=env.believed.acceptance,
            futures=0, held_out_days=0, credit="rewards", background=False,
        )  # fmt: skip
        if self._world is not None and self._world.options != options:  # the next world of a shift test
            self.close()
        if self._world is None:
            self._world = RidesVectorEnv(1, options, stream=Stream.TRAIN, again=True)
            self._world.exploring = False
            self._world.oracle.close()
        self._world.oracle, self._world.flexibility = env.oracle, env.flexibility
        return self._world
