"""Whole episodes of a scripted follower in one kernel, and what tallies say about compliance."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shoal.cage2.simulator.machine import compiled
from shoal.cage2.simulator.memory import forget, remember
from shoal.cage2.simulator.red import sessions
from shoal.cage2.simulator.red_agents import REDS
from shoal.cage2.simulator.step import STATE, advance, start
from shoal.cage2.workflows.follower import FOLLOWER, LITERAL, TEMPERS, follow
from shoal.cage2.workflows.orders import COUNTED, TALLY, Order, believed_set, count, fixed_host, number_of
from shoal.cage2.workflows.suspicion import begin_watch, watch
from shoal.compiled.random import RNG, begin, below, uniform
from shoal.core.seeds import Stream, env_keys
from shoal.core.statistics import normal, standard_error

TABLE = np.dtype([("game", STATE), ("hand", FOLLOWER), ("rng", RNG)], align=True)


def tally_step(tally: Any, game: Any, order: int, action: int) -> int:
    """Count Blue's action, before it takes effect, against the true state and against its belief."""
    host = fixed_host(action)
    tally.steps += 1
    count(tally.believed, order, believed_set(game.bits), host)
    return count(tally.true, order, sessions(game) & COUNTED, host)


def play_follower(
    tables: Any, keys: Any, order: int, temper: int, red: int, steps: int, costs: Any, tallies: Any
) -> None:
    """Play one episode per key: costs int64[episode] in tenths, tallies TALLY[episode]."""
    for i in range(keys.shape[0]):
        table = tables[0]
        begin(table.rng, keys[i], np.uint64(0))
        uniform(table.rng)  # the environment draws red and horizon first: so episode i is that of its seed there
        below(table.rng, 1)
        start(table.game, red)
        forget(table.hand.memory)
        begin_watch(table.hand.watch)
        tally = tallies[i]
        for _ in range(steps):
            action = follow(table.hand.memory, table.hand.watch, order, temper)
            tally_step(tally, table.game, order, action)
            costs[i] += advance(table.game, table.rng, action)
            remember(table.hand.memory, action, table.game.activity_host, table.game.activity)
            watch(table.hand.watch, table.hand.memory, table.game.bits)
            if temper == LITERAL:
                table.hand.watch.suspected = believed_set(table.game.bits)


@dataclass(frozen=True)
class Share:
    """A mean of per-episode values with its 95 % normal interval, which two values at least are needed for."""

    mean: float | None
    low: float | None
    high: float | None
    episodes: int

    @staticmethod
    def of(values: np.ndarray) -> Share:
        if len(values) == 0:
            return Share(None, None, None, 0)
        mean = float(values.mean())
        if len(values) == 1:
            return Share(mean, None, None, 1)
        return Share(mean, *normal(mean, standard_error(values)), len(values))

    def bounds(self) -> tuple[float, float, float]:
        """Mean, low and high, where there is an interval."""
        if self.mean is None or self.low is None or self.high is None:
            raise ValueError(f"an interval needs two episodes at least, got {self.episodes}")
        return self.mean, self.low, self.high


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole where there is a whole: an episode without one has no value, it is not 0."""
    some = whole > 0
    shares: np.ndarray = part[some] / whole[some]
    return shares


@dataclass(frozen=True)
class Conduct:
    """How a defender kept to an order, over episodes."""

    compliance: Share  # compliant / (compliant + violations), by the true state
    believed_compliance: Share  # the same against Blue's belief
    coverage: Share  # share of compromised host-steps that were answered
    wasted: Share  # share of fixes that were wasted
    compliant: int
    violations: int
    wasted_fixes: int

    @staticmethod
    def of(tallies: np.ndarray) -> Conduct:
        """From TALLY[episode]."""
        true, believed = tallies["true"], tallies["believed"]
        judged = true["compliant"] + true["violations"]
        believed_judged = believed["compliant"] + believed["violations"]
        return Conduct(
            compliance=Share.of(ratio(true["compliant"], judged)),
            believed_compliance=Share.of(ratio(believed["compliant"], believed_judged)),
            coverage=Share.of(ratio(true["answered"], true["held_steps"])),
            wasted=Share.of(ratio(true["wasted"], judged + true["wasted"])),
            compliant=int(true["compliant"].sum()),
            violations=int(true["violations"].sum()),
            wasted_fixes=int(true["wasted"].sum()),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def play(
    order: str | int | Order, red: str, episodes: int, seed: int = 0, temper: str = "thrifty", steps: int = 100
) -> tuple[np.ndarray, np.ndarray]:
    """The follower's returns float64[episode] and tallies TALLY[episode]; episode i depends on (seed, i) alone."""
    if red not in REDS:
        raise ValueError(f"red: expected one of {', '.join(REDS)}, got {red!r}")
    if temper not in TEMPERS:
        raise ValueError(f"temper: expected one of {', '.join(TEMPERS)}, got {temper!r}")
    if episodes < 1 or steps < 1:
        raise ValueError(f"expected at least 1 episode and 1 step, got {episodes} and {steps}")
    costs, tallies = np.zeros(episodes, np.int64), np.zeros(episodes, TALLY)
    keys = env_keys(seed, episodes, Stream.EVALUATE)
    compiled(play_follower)(
        np.zeros(1, TABLE), keys, number_of(order), TEMPERS.index(temper), REDS.index(red), steps, costs, tallies
    )
    return costs / -10.0, tallies


def label_states(states: Any, temper: int, actions: Any) -> None:
    """What a follower would do now in every ordered environment with memory: actions int64[N]."""
    for i in range(actions.shape[0]):
        actions[i] = follow(states[i].memory, states[i].watch, states[i].order, temper)
