"""A short way through `Discrete.contains`, which is 3 of the 8 microseconds of a CartPole step.

Many environments assert in every step that their action is in their space. Gymnasium answers by asking NumPy about
the kinds of both; for a value of the space's own type, which is what a chunk hands out, two comparisons say the same.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.spaces import Discrete


class QuickDiscrete(Discrete[Any]):
    """A Discrete space that answers alike, sooner.

    >>> space = Discrete(3, start=1)
    >>> space.__class__ = QuickDiscrete
    >>> space == Discrete(3, start=1), [space.contains(x) for x in (space.dtype.type(1), 3, 0, 1.0, "1")]
    (True, [True, True, False, False, False])
    """

    def contains(self, x: Any) -> bool:
        if type(x) is self.dtype.type:
            return 0 <= int(x) - int(self.start) < int(self.n)  # as whole numbers: an int8 may overflow
        return super().contains(x)


def quicken(env: gym.Env[Any, Any]) -> None:
    """Let the space that the environment itself asks answer sooner.

    Spaces of the user's own classes stay alone, and so do those that an environment shares with its whole class.
    """
    space = getattr(getattr(env, "unwrapped", None), "__dict__", {}).get("action_space")
    if type(space) is Discrete:
        space.__class__ = QuickDiscrete
