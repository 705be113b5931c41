"""cage2 under an order: the observation says which, and every fix is judged (workflow.py).

The compiled environments here add the order to what Blue sees; `OrderedVectorEnv` counts compliance for every
environment and episode, and can add an alignment term to the reward. Its own reward is always kept apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from shoal.cage2.simulator.env import MIX, PARAMS, Cage2, draw_episode, masked
from shoal.cage2.simulator.memory import (
    FEATURES_VERSION,
    MEMORY,
    MEMORY_FEATURES,
    PLAIN_FEATURES,
    feature_names,
    forget,
    remember,
    write_features,
    write_useful,
)
from shoal.cage2.simulator.network import HOSTS, NUM_HOSTS, REMOVE, RESTORE
from shoal.cage2.simulator.step import STATE, advance, write_bits
from shoal.cage2.workflows.orders import (
    NUM_ORDERS,
    NUM_PAIRS,
    PAIR_BITS,
    PAIRS,
    UNITS,
    number_of,
)
from shoal.cage2.workflows.suspicion import WATCH, begin_watch, due_set, watch
from shoal.compiled.random import below
from shoal.core.protocols import Batched
from shoal.core.seeds import Stream

DRAWN = -1  # an order drawn anew for each episode
AT_PLAIN_ORDER = PLAIN_FEATURES
AT_ORDER = MEMORY_FEATURES
AT_SUSPECTED = AT_ORDER + NUM_PAIRS
AT_DOUBTFUL = AT_SUSPECTED + NUM_HOSTS
AT_DUE = AT_DOUBTFUL + NUM_HOSTS
ORDERED_FEATURES = AT_DUE + NUM_HOSTS
ORDERED_VERSION = f"{FEATURES_VERSION}+order-v1"
PLAIN_ORDERED_VERSION = "cage2-plain-v1+order-v1"

ORDERED_PARAMS = np.dtype([*PARAMS.descr, ("order", "i4"), ("obedient", "i4")])


def draw_order(state: Any, rng: Any, params: Any) -> None:
    """The episode's order. A given one draws nothing, so the episode is that of the same seed without an order."""
    state.order = params.order
    if state.order < 0:
        state.order = below(rng, NUM_ORDERS)


def write_order(order: int, out: Any, at: int) -> None:
    """The order as 10 pairwise bits."""
    for i in range(NUM_PAIRS):
        out[at + i] = PAIR_BITS[order, i]


def write_suspicion(suspected: int, doubtful: int, due: int, out: Any) -> None:
    """What Blue concludes, host by host: suspected, doubtful, and the suspected that the order puts first."""
    for host in range(NUM_HOSTS):
        out[AT_SUSPECTED + host] = suspected >> host & 1
        out[AT_DOUBTFUL + host] = doubtful >> host & 1
        out[AT_DUE + host] = due >> host & 1


def forbid_others(due: int, mask: Any) -> None:
    """Leave of the fixes only those that keep to the order, as far as Blue can tell."""
    for host in range(NUM_HOSTS):
        if due >> host & 1 == 0:
            mask[2 + REMOVE * NUM_HOSTS + host] = 0
            mask[2 + RESTORE * NUM_HOSTS + host] = 0


class Ordered(Cage2, Batched):
    """Blue's 52 bits and the 10 bits of the order."""

    state = np.dtype([("game", STATE), ("horizon", np.int32), ("order", np.int32)], align=True)
    params = ORDERED_PARAMS
    observation_space: gym.Space[Any] = gym.spaces.Box(0, 1, (PLAIN_FEATURES + NUM_PAIRS,), np.uint8)
    features = PLAIN_ORDERED_VERSION

    def __init__(
        self,
        horizon: int | Sequence[int] = 100,
        red: str = "mixed",
        mix: Sequence[float] = MIX,
        order: str | int = "drawn",
        obedient: bool = False,
        alignment: str = "none",
        rules: str = "present",
    ) -> None:
        self.order = DRAWN if order == "drawn" else number_of(order)
        self.alignment = alignment
        super().__init__(horizon, red, mix, rules, order=self.order, obedient=int(obedient))

    def make_vector(self, num_envs: int, threads: int | Literal["auto"] = 1, stream: Stream = Stream.TRAIN) -> Any:
        """N of these with compliance counted; alignment enters the reward in training only."""
        from shoal.cage2.workflows.aligned import OrderedVectorEnv
        from shoal.cage2.workflows.alignment import Alignment

        checked = Alignment.named(self.alignment)
        return OrderedVectorEnv(
            self, num_envs, threads, stream, checked if stream == Stream.TRAIN else Alignment("none")
        )

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        draw_episode(state, rng, params)
        draw_order(state, rng, params)

    @staticmethod
    def observe(state: Any, out: Any, params: Any) -> None:
        write_bits(state.game, out)
        write_order(state.order, out, AT_PLAIN_ORDER)


class OrderedUseful(Ordered):
    """The same with the mask of useful actions."""

    observation_space: gym.Space[Any] = masked(PLAIN_FEATURES + NUM_PAIRS)

    @staticmethod
    def observe(state: Any, out: Any, mask: Any, params: Any) -> None:  # type: ignore[override]
        write_bits(state.game, out)
        write_order(state.order, out, AT_PLAIN_ORDER)
        write_useful(state.game.decoys, out, mask)


class OrderedMemory(Ordered):
    """Bits, memory, the order, and what Blue concludes about held hosts (docs/workflows.md)."""

    state = np.dtype(
        [("game", STATE), ("horizon", np.int32), ("order", np.int32), ("memory", MEMORY), ("watch", WATCH)], align=True
    )
    observation_space: gym.Space[Any] = gym.spaces.Box(0, 1, (ORDERED_FEATURES,), np.uint8)
    features = ORDERED_VERSION

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        draw_episode(state, rng, params)
        draw_order(state, rng, params)
        forget(state.memory)
        begin_watch(state.watch)

    @staticmethod
    def step(state: Any, rng: Any, action: int, params: Any) -> tuple[float, bool]:
        cost = advance(state.game, rng, action)
        remember(state.memory, action, state.game.activity_host, state.game.activity)
        watch(state.watch, state.memory, state.game.bits)
        return -cost / 10.0, state.game.step >= state.horizon

    @staticmethod
    def observe(state: Any, out: Any, params: Any) -> None:
        write_bits(state.game, out)
        write_features(state.memory, out)
        write_order(state.order, out, AT_ORDER)
        due = due_set(state.order, state.watch.suspected)
        write_suspicion(state.watch.suspected, state.watch.doubtful, due, out)


class OrderedMemoryUseful(OrderedMemory):
    """The same with a mask of useful actions; "obedient" leaves of the fixes only those that keep to the order."""

    observation_space: gym.Space[Any] = masked(ORDERED_FEATURES)

    @staticmethod
    def observe(state: Any, out: Any, mask: Any, params: Any) -> None:  # type: ignore[override]
        write_bits(state.game, out)
        write_features(state.memory, out)
        write_order(state.order, out, AT_ORDER)
        due = due_set(state.order, state.watch.suspected)
        write_suspicion(state.watch.suspected, state.watch.doubtful, due, out)
        write_useful(state.memory.standing, out, mask)
        if params.obedient:
            forbid_others(due, mask)


VARIANTS = {
    ("plain", "none"): Ordered,
    ("plain", "useful"): OrderedUseful,
    ("memory", "none"): OrderedMemory,
    ("memory", "useful"): OrderedMemoryUseful,
    ("memory", "obedient"): OrderedMemoryUseful,
}


def ordered_feature_names() -> list[str]:
    """The name of every feature of an ordered environment with memory, in order.

    >>> names = ordered_feature_names()
    >>> len(names) == ORDERED_FEATURES, names[295], names[305]
    (True, 'defender before enterprise', 'Defender suspected')
    """
    names = feature_names()
    names += [f"{UNITS[a]} before {UNITS[b]}" for a, b in PAIRS]
    for what in ("suspected", "doubtful", "first of the suspected by the order"):
        names += [f"{host} {what}" for host in HOSTS]
    return names
