"""`shoal/Cage2-v0`: the challenge as a compiled environment, with its options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from shoal.cage2.simulator.memory import (
    FEATURES_VERSION,
    MEMORY,
    MEMORY_FEATURES,
    PLAIN_FEATURES,
    forget,
    remember,
    write_features,
    write_useful,
)
from shoal.cage2.simulator.network import NUM_ACTIONS, is_final
from shoal.cage2.simulator.red_agents import BLINE, MEANDER, REDS, SLEEPER
from shoal.cage2.simulator.step import STATE, advance, start, write_bits
from shoal.compiled.random import below, uniform
from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv
from shoal.core.protocols import Batched
from shoal.core.seeds import Stream

HORIZONS = (30, 50, 100)  # the challenge's
MAX_HORIZONS = 8
MAX_HORIZON = 30_000  # memory counts the steps of hosts in int16
MIX = (0.47, 0.47, 0.06)  # default shares of bline, meander, sleep in red="mixed"

PARAMS = np.dtype(
    [
        ("bline_below", "f8"),  # a uniform draw below this is bline ...
        ("meander_below", "f8"),  # ... else below this meander, else sleep
        ("horizons", "i4", (MAX_HORIZONS,)),
        ("num_horizons", "i4"),
        ("final", "i4"),  # the rules of the final leaderboard
    ]
)


def draw_episode(state: Any, rng: Any, params: Any) -> None:
    """Draw the red agent and the horizon of an episode and set up the network."""
    draw = uniform(rng)
    red = SLEEPER
    if draw < params.bline_below:
        red = BLINE
    elif draw < params.meander_below:
        red = MEANDER
    state.horizon = params.horizons[below(rng, params.num_horizons)]
    start(state.game, red)
    state.game.final = params.final


def masked(numbers: int) -> gym.spaces.Dict:
    """So many bits, and an action mask beside them."""
    bits = gym.spaces.Box(0, 1, (numbers,), np.uint8)
    return gym.spaces.Dict({"obs": bits, "action_mask": gym.spaces.MultiBinary(NUM_ACTIONS)})


class Cage2(CompiledEnv):
    """Blue's 52 bits and 145 actions. An episode *terminates* at its horizon: the score is a sum over it.

    - `horizon`: steps of an episode, or several from which each episode draws one with equal chance; the mean
      return over (30, 50, 100) is then a third of the leaderboard's sum for that red.
    - `rules`: "present", or "final", by which the published leaderboard was made (docs/cage2-rules.md).
    - `red`: "bline", "meander", "sleep", or "mixed", which draws one per episode with the shares `mix`.

    >>> env = Cage2(horizon=30, red="meander")
    >>> env.observation_space.shape, int(env.action_space.n)
    ((52,), 145)
    """

    state = np.dtype([("game", STATE), ("horizon", np.int32)], align=True)
    params = PARAMS
    observation_space: gym.Space[Any] = gym.spaces.Box(0, 1, (PLAIN_FEATURES,), np.uint8)
    action_space: gym.Space[Any] = gym.spaces.Discrete(NUM_ACTIONS)
    check_finite = False  # bits, and rewards that are tenths: there is nothing to check
    features = "cage2-plain-v1"

    def __init__(
        self,
        horizon: int | Sequence[int] = 100,
        red: str = "mixed",
        mix: Sequence[float] = MIX,
        rules: str = "present",
        **more: Any,
    ) -> None:
        self.horizons = _checked_horizons(horizon)
        self.shares = _checked_shares(red, mix)
        padded = [*self.horizons, *[1] * (MAX_HORIZONS - len(self.horizons))]
        super().__init__(
            bline_below=self.shares[0],
            meander_below=self.shares[0] + self.shares[1],
            horizons=padded,
            num_horizons=len(self.horizons),
            final=is_final(rules),
            **more,  # params that a subclass adds
        )

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        draw_episode(state, rng, params)

    @staticmethod
    def step(state: Any, rng: Any, action: int, params: Any) -> tuple[float, bool]:
        cost = advance(state.game, rng, action)
        return -cost / 10.0, state.game.step >= state.horizon

    @staticmethod
    def observe(state: Any, out: Any, params: Any) -> None:
        write_bits(state.game, out)


class Cage2Useful(Cage2):
    """The same with an action mask of the actions that could do any good (see `memory.write_useful`)."""

    observation_space: gym.Space[Any] = masked(PLAIN_FEATURES)

    @staticmethod
    def observe(state: Any, out: Any, mask: Any, params: Any) -> None:  # type: ignore[override]
        write_bits(state.game, out)
        write_useful(state.game.decoys, out, mask)


class Cage2Memory(Cage2):
    """The 52 bits and what Blue can remember of its observations and actions (table in docs/cage2-features.md)."""

    state = np.dtype([("game", STATE), ("horizon", np.int32), ("memory", MEMORY)], align=True)
    observation_space: gym.Space[Any] = gym.spaces.Box(0, 1, (MEMORY_FEATURES,), np.uint8)
    features = FEATURES_VERSION

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        draw_episode(state, rng, params)
        forget(state.memory)

    @staticmethod
    def step(state: Any, rng: Any, action: int, params: Any) -> tuple[float, bool]:
        cost = advance(state.game, rng, action)
        remember(state.memory, action, state.game.activity_host, state.game.activity)
        return -cost / 10.0, state.game.step >= state.horizon

    @staticmethod
    def observe(state: Any, out: Any, params: Any) -> None:
        write_bits(state.game, out)
        write_features(state.memory, out)


class Cage2MemoryUseful(Cage2Memory):
    """Memory features with an action mask of the actions that could do any good."""

    observation_space: gym.Space[Any] = masked(MEMORY_FEATURES)

    @staticmethod
    def observe(state: Any, out: Any, mask: Any, params: Any) -> None:  # type: ignore[override]
        write_bits(state.game, out)
        write_features(state.memory, out)
        write_useful(state.memory.standing, out, mask)


_VARIANTS = {
    ("plain", "none"): Cage2,
    ("plain", "useful"): Cage2Useful,
    ("memory", "none"): Cage2Memory,
    ("memory", "useful"): Cage2MemoryUseful,
}


def make(
    horizon: int | Sequence[int] = 100,
    red: str = "mixed",
    features: str = "memory",
    mask: str = "useful",
    mix: Sequence[float] = MIX,
    order: str | int = "none",
    alignment: str = "none",
    rules: str = "present",
) -> Cage2:
    """The environment that the options describe; ValueError names a wrong one and what it may be.

    `order` is "none", "drawn" (anew for each episode) or a workflow (workflow.number_of): see ordered.py. `alignment`
    says what an order adds to the reward of training environments: see aligned.py.

    >>> type(make(red="bline", features="plain", mask="none")).__name__
    'Cage2'
    """
    if features not in ("plain", "memory"):
        raise ValueError(f"features: expected plain or memory, got {features!r}")
    if order != "none":
        from shoal.cage2.workflows.ordered import VARIANTS

        if (features, mask) not in VARIANTS:
            raise ValueError(f"mask: expected none, useful or (with memory) obedient under an order, got {mask!r}")
        return VARIANTS[features, mask](horizon, red, mix, order, mask == "obedient", alignment, rules)
    if mask not in ("none", "useful"):
        raise ValueError(f"mask: expected none or useful, got {mask!r}; obedient needs an order")
    return _VARIANTS[features, mask](horizon, red, mix, rules)


def make_vec(
    num_envs: int = 1,
    threads: int | Literal["auto"] = 1,
    stream: Stream = Stream.TRAIN,
    **options: Any,
) -> CompiledVectorEnv:
    """`vector_entry_point` of shoal/Cage2-v0: N environments, one kernel; `options` as in `make`."""
    made = make(**options)
    if isinstance(made, Batched):  # under an order, compliance is counted
        counting = made.make_vector(num_envs, threads, stream)
        assert isinstance(counting, CompiledVectorEnv)
        return counting
    return CompiledVectorEnv(made, num_envs, threads=threads, stream=stream)


def _checked_horizons(horizon: int | Sequence[int]) -> tuple[int, ...]:
    given = (horizon,) if isinstance(horizon, int | np.integer) else tuple(horizon)
    horizons = tuple(int(h) for h in given)
    if not 1 <= len(horizons) <= MAX_HORIZONS:
        raise ValueError(f"horizon: expected 1 to {MAX_HORIZONS} numbers of steps, got {len(horizons)}")
    for h in horizons:
        if not 1 <= h <= MAX_HORIZON:
            raise ValueError(f"horizon: expected 1 to {MAX_HORIZON} steps, got {h}; the challenge uses 30, 50 and 100")
    return horizons


def _checked_shares(red: str, mix: Sequence[float]) -> tuple[float, float, float]:
    if red in REDS:
        bline, meander, sleep = (1.0 if name == red else 0.0 for name in REDS)
        return bline, meander, sleep
    if red != "mixed":
        raise ValueError(f"red: expected one of {', '.join(REDS)}, mixed; got {red!r}")
    shares = [float(share) for share in mix]
    if len(shares) != len(REDS) or min(shares) < 0 or not 0 < sum(shares) < float("inf"):
        raise ValueError(f"mix: expected three shares >= 0 for {', '.join(REDS)} with a sum > 0, got {tuple(mix)}")
    total = sum(shares)
    return shares[0] / total, shares[1] / total, shares[2] / total
