"""Defenders against red agents: whole episodes inside one kernel, or one beside any vector environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.cage2.defenders.baselines import HAND, d1, d2, noisy, random, react_restore, sleep
from shoal.cage2.defenders.decoy_first import decoy_first
from shoal.cage2.simulator.env import HORIZONS
from shoal.cage2.simulator.machine import compiled
from shoal.cage2.simulator.memory import forget, remember_bits
from shoal.cage2.simulator.network import NUM_BITS, is_final
from shoal.cage2.simulator.red_agents import REDS
from shoal.cage2.simulator.step import STATE, advance, start, write_bits
from shoal.compiled.random import RNG, begin
from shoal.core.seeds import Stream, env_keys

DEFENDERS = ("sleep", "random", "react-restore", "d1", "d2", "noisy", "decoy-first")

# One episode in play: the network, the defender, and a stream of chance for each.
TABLE = np.dtype([("game", STATE), ("hand", HAND), ("game_rng", RNG), ("hand_rng", RNG)], align=True)


def decide(defender: int, hand: Any, bits: Any, rng: Any) -> Any:
    """The action of DEFENDERS[defender]. One kernel for all of them: each would take seconds to compile."""
    if defender == 1:
        return random(hand, bits, rng)
    if defender == 2:
        return react_restore(hand, bits, rng)
    if defender == 3:
        return d1(hand, bits, rng)
    if defender == 4:
        return d2(hand, bits, rng)
    if defender == 5:
        return noisy(hand, bits, rng)
    if defender == 6:
        return decoy_first(hand, bits, rng)
    return sleep(hand, bits, rng)


def play_episodes(tables: Any, keys: Any, defender: int, red: int, final: int, horizons: Any, totals: Any) -> None:
    """Play one episode per key; totals float64[episode, horizon] gets the return at each horizon."""
    bits = np.zeros(NUM_BITS, np.uint8)
    for i in range(keys.shape[0]):
        table = tables[0]
        begin(table.game_rng, keys[i], np.uint64(0))
        begin(table.hand_rng, keys[i], np.uint64(1))
        start(table.game, red)
        table.game.final = final
        forget(table.hand.memory)
        table.hand.next = 0
        write_bits(table.game, bits)
        cost = 0
        for k in range(horizons.shape[0]):
            while table.game.step < horizons[k]:
                action = decide(defender, table.hand, bits, table.hand_rng)
                cost += advance(table.game, table.game_rng, action)
                write_bits(table.game, bits)
                remember_bits(table.hand.memory, bits, action)
            totals[i, k] = -cost / 10.0


def act_all(defender: int, hands: Any, rngs: Any, bits: Any, begun: Any, actions: Any) -> None:
    """One action of every defender: bits uint8[N, >= 52], begun bool[N], actions int64[N] old in, new out."""
    for i in range(actions.shape[0]):
        if begun[i]:
            forget(hands[i].memory)
            hands[i].next = 0
        else:
            remember_bits(hands[i].memory, bits[i], actions[i])
        actions[i] = decide(defender, hands[i], bits[i], rngs[i])


def number_of(defender: str) -> int:
    """A baseline's place in DEFENDERS; ValueError lists them."""
    if defender not in DEFENDERS:
        raise ValueError(f"defender: expected one of {', '.join(DEFENDERS)}, got {defender!r}")
    return DEFENDERS.index(defender)


def play(
    defender: str,
    red: str,
    episodes: int,
    seed: int = 0,
    horizons: Sequence[int] = HORIZONS,
    rules: str = "present",
) -> np.ndarray:
    """Returns of a defender against a red agent: float64[episode, horizon].

    Shorter horizons are prefixes of the same episodes, as in the reference scores (docs/cage2-recordings.md). Episode
    i depends on (seed, i) alone.

    >>> play("sleep", "sleep", episodes=2).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if red not in REDS:
        raise ValueError(f"red: expected one of {', '.join(REDS)}, got {red!r}")
    if episodes < 1:
        raise ValueError(f"episodes: expected at least 1, got {episodes}")
    steps = np.array(horizons, np.int64)
    if len(steps) == 0 or steps[0] < 1 or (np.diff(steps) <= 0).any():
        raise ValueError(f"horizons: expected ascending numbers of steps >= 1, got {tuple(horizons)}")
    number, final = number_of(defender), is_final(rules)
    totals = np.zeros((episodes, len(steps)), np.float64)
    keys = env_keys(seed, episodes, Stream.EVALUATE)
    compiled(play_episodes)(np.zeros(1, TABLE), keys, number, REDS.index(red), final, steps, totals)
    return totals


class Defender:
    """A baseline for each of N environments of any backend that show Blue's bits; features may follow them.

    >>> defender = Defender("d1", num_envs=2)
    >>> defender.act(np.zeros((2, 52), np.uint8), begun=np.array([True, True])).tolist()
    [0, 0]
    """

    def __init__(self, name: str, num_envs: int, seed: int = 0) -> None:
        self._number = number_of(name)
        self._hands = np.zeros(num_envs, HAND)
        self._rngs = np.zeros(num_envs, RNG)
        self._rngs["key"] = env_keys(seed, num_envs, Stream.ACT)
        self._actions = np.zeros(num_envs, np.int64)

    def act(self, bits: np.ndarray, begun: np.ndarray) -> np.ndarray:
        """int64[N], for observations uint8[N, 52 or more]; `begun` marks the first one of an episode."""
        bits = np.ascontiguousarray(bits, np.uint8)
        begun = np.ascontiguousarray(begun, np.bool_)
        compiled(act_all)(self._number, self._hands, self._rngs, bits, begun, self._actions)
        return self._actions.copy()

    def took(self, actions: np.ndarray) -> None:
        """Somebody else's actions int64[N] were taken instead: remember those. (d2's list goes on all the same.)"""
        self._actions[:] = actions
