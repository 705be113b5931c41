"""The challenge's score: means over {bline, meander, sleep} x {30, 50, 100} steps and their sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shoal.cage2.defenders.play import Defender
from shoal.cage2.options import environment
from shoal.cage2.simulator.env import HORIZONS
from shoal.cage2.simulator.network import FINAL_RULES, RULES
from shoal.cage2.simulator.red_agents import REDS
from shoal.core.seeds import Stream
from shoal.core.statistics import normal, standard_error
from shoal.vector.make import make_vec

CHALLENGE = "https://github.com/cage-challenge/cage-challenge-2"
CARDIFF_ISSUE = "https://github.com/john-cardiff/-cyborg-cage-2/issues/1"
# Sums that others have published, 1,000 episodes a cell; scores under different rules are not comparable.
PUBLISHED = (
    {"name": "CardiffUni", "sum": -54.57, "rules": FINAL_RULES, "source": CHALLENGE},
    {"name": "Keeping it RL, ensemble of ensembles", "sum": -56.9, "rules": FINAL_RULES, "source": CHALLENGE},
    {"name": "Mindrake", "sum": -57.05, "rules": FINAL_RULES, "source": CHALLENGE},
    {"name": "Keeping it RL, plain PPO", "sum": -73.98, "rules": FINAL_RULES, "source": CHALLENGE},
    {"name": "the challenge's BlueReactRestore", "sum": -823.89, "rules": FINAL_RULES, "source": CHALLENGE},
)
# Not a row of any ranking: an agent trained under older rules, played by a user in a later version.
CITED = {"name": "CardiffUni's agent, trained under older rules", "sum": -86.03, "source": CARDIFF_ISSUE}
CYBORG_ENVS = 16  # whatever the machine: which episodes are played must not depend on its cores
SIMULATORS = {"shoal": "shoal, compiled", "cyborg": "CybORG"}


def rollout(
    act: Callable[[Any, np.ndarray], np.ndarray] | str,
    red: str,
    episodes: int,
    seed: int = 0,
    features: str = "memory",
    mask: str = "useful",
    num_envs: int = 1000,
    simulator: str = "shoal",
    order: str | int = "none",
    rules: str | None = None,
    played: Callable[[int], None] = lambda episodes: None,
) -> np.ndarray:
    """Returns of any policy against a red agent: float64[episode, 3], at 30, 50 and 100 steps.

    `act(observations, begun) -> actions`, or a scripted defender's name; `begun` bool[N] marks first observations. The
    policy is not told the horizon, so the shorter ones are prefixes of the same episodes. Evaluation seeds are never
    training's. With simulator="cyborg" the episodes are played in the real CybORG, in worker processes; `played` hears
    how many episodes have come to their end. `rules` ("present" or "final") are the compiled simulator's.
    """
    if episodes < 1:
        raise ValueError(f"episodes: expected at least 1, got {episodes}")
    num_envs = min(num_envs if simulator == "shoal" else CYBORG_ENVS, episodes)
    longest = max(HORIZONS)
    if isinstance(act, str):
        act, features, mask = Defender(act, num_envs, seed).act, "plain", "none"
    options = {"horizon": longest, "red": red, "features": features, "mask": mask, "order": order}
    if simulator == "shoal":
        options["rules"] = rules or "present"
    env = environment(simulator, **options)
    backend = "compiled" if simulator == "shoal" else "process"
    envs = make_vec(env, num_envs, backend=backend, stream=Stream.EVALUATE)
    try:
        batches = _play(envs, act, episodes, seed, played)
    finally:
        envs.close()
    return np.concatenate(batches)[:episodes]


def _play(
    envs: Any,
    act: Callable[[Any, np.ndarray], np.ndarray],
    episodes: int,
    seed: int,
    played: Callable[[int], None],
) -> list[np.ndarray]:
    """float64[environment, 3] per batch of whole episodes."""
    num_envs, longest = envs.num_envs, max(HORIZONS)
    batches = []
    for batch in range(-(-episodes // num_envs)):
        observations, _ = envs.reset(seed=seed if batch == 0 else None)
        begun = np.ones(num_envs, np.bool_)
        tenths = np.zeros((num_envs, longest), np.int64)
        for step in range(longest):
            observations, rewards, *_ = envs.step(act(observations, begun))
            tenths[:, step] = np.rint(rewards * 10)
            begun = np.zeros(num_envs, np.bool_)
        batches.append(np.stack([tenths[:, :h].sum(axis=1) / 10 for h in HORIZONS], axis=1))
        played(min(num_envs, episodes - batch * num_envs))
    return batches


def summarise(returns: Mapping[str, np.ndarray], rules: str = RULES, simulator: str = "shoal") -> dict[str, Any]:
    """The nine cells and their sum, from float64[episode, 3] per red agent; intervals are 95 %, normal.

    `rules` and `simulator` say where the episodes were played.

    >>> zero = {red: np.zeros((4, 3)) for red in REDS}
    >>> summarise(zero)["sum"]["mean"]
    0.0
    """
    missing = [red for red in REDS if red not in returns]
    if missing:
        raise ValueError(f"returns: expected all of {', '.join(REDS)}, missing {', '.join(missing)}")
    cells = []
    for red in REDS:
        for column, horizon in enumerate(HORIZONS):
            values = returns[red][:, column]
            cells.append({"red": red, "horizon": horizon, **_interval(values), **_tail(values)})
    # The three horizons of one episode are one observation: their sum carries the covariance.
    sums = [_interval(returns[red].sum(axis=1)) for red in REDS]
    mean, error = sum(s["mean"] for s in sums), float(np.sqrt(sum(s["se"] ** 2 for s in sums)))
    total = _cell(mean, error)
    return {
        "rules": rules, "simulator": simulator, "cells": cells, "sum": total,
        "published": list(PUBLISHED), "cited": [CITED],
    }  # fmt: skip


def _interval(values: np.ndarray) -> dict[str, float]:
    return _cell(float(values.mean()), standard_error(values))


def _cell(mean: float, error: float) -> dict[str, float]:
    low, high = normal(mean, error)
    return {"mean": mean, "se": error, "low": low, "high": high}


def _tail(values: np.ndarray) -> dict[str, float | int]:
    """Rare disasters hide in means."""
    low, middle = (float(q) for q in np.quantile(values, (0.05, 0.5)))
    return {"episodes": len(values), "q05": low, "median": middle, "worst": float(values.min())}
