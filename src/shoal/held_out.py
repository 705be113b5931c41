"""Playing held-out episodes: which ones, by whom and for how long. The same episodes give the same bits whatever the
number of environments and the backend."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from shoal.core.arrays import Array, Layout
from shoal.core.errors import EnvFault
from shoal.core.machine import usable_cores
from shoal.core.protocols import parts_of
from shoal.core.seeds import Stream, episode_seed, word
from shoal.learn.deploy import DeployedPolicy
from shoal.learn.said import Sayings
from shoal.vector.adapt import Stepper
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv

Say = Callable[[str], None]

MOST_STEPS = 20_000  # of an episode that nothing else ends
# Rows of a call of the network, always: a matrix product of another height may round otherwise, so the score would
# depend on how many environments play.
_ROWS = 16
_SEVERAL, _SEVERAL_COMPILED = 16, 64  # environments; a network is asked for all of them at once
_BUILD_S = 2.0  # environments are built one after the other: no more of them than this allows
_SLOW_STEP_S = 1e-3  # from here on, worker processes are worth their hand-off
_TRIAL_STEPS = 20


@dataclass(frozen=True)
class Episodes:
    """What came of so many episodes, in the order of their seeds."""

    returns: Array  # float64[E]
    lengths: Array  # int64[E]
    unfinished: Array  # bool[E]: cut at the limit of steps; the return is the one so far
    tallies: Array | None  # TALLY[E] of an environment that judges compliance with an order
    said: Sayings  # numbers of the episodes' last infos


def held_out_seeds(seed: int, episodes: int, scheme: int, block: int = 0) -> list[int]:
    """The seeds of so many episodes that no training shares. `scheme` is that of the training. Block 0 is for the score
    of a run; whatever chooses among its checkpoints plays others."""
    return [episode_seed(seed, block, number, Stream.EVALUATE, scheme) for number in range(episodes)]


def play(
    policy: DeployedPolicy,
    stepper: Stepper,
    seeds: Sequence[int],
    seed: int = 0,
    *,
    deterministic: bool = True,
    max_steps: int = MOST_STEPS,
    heard: Callable[[int, int], None] = lambda episodes, steps: None,
) -> Episodes:
    """One episode for each of `seeds`, by whichever environment is free. An episode is cut after `max_steps`.

    `seed` decides what is sampled, for each episode apart. `heard` is told how many episodes and steps are done.
    """
    num_envs = stepper.env.num_envs
    actor = _Actor(policy, num_envs, seed, deterministic)
    parts = parts_of(stepper.env)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    unfinished, tallies = np.zeros(len(seeds), np.bool_), None
    said = Sayings(len(seeds))
    playing = np.arange(num_envs)  # int64[N]: which episode; -1 where there is nothing left to play
    playing[playing >= len(seeds)] = -1
    started, over, steps = int((playing >= 0).sum()), 0, 0
    now = [seeds[episode] for episode in playing.tolist()]  # an idle environment plays some other one again, unheard
    rows = stepper.layout.allocate(num_envs)
    stepper.restart(now, np.ones(num_envs, np.bool_), rows)
    actor.begin(np.flatnonzero(playing >= 0), playing)
    total, length = np.zeros(num_envs), np.zeros(num_envs, np.int64)
    while over < len(seeds):
        outcome = stepper.step(actor.act(rows), rows)
        valid = np.ones(num_envs, np.bool_) if outcome.valid is None else outcome.valid
        total += np.where(valid, outcome.rewards, 0.0)
        length += valid
        steps += num_envs
        ended = outcome.terminated | outcome.truncated
        judged = parts.take_episodes() if ended.any() else None
        leaving = np.flatnonzero((ended | (length >= max_steps)) & (playing >= 0))
        if not leaving.size:
            heard(over, steps)
            continue
        for one in () if judged is None else judged:
            if playing[one["env"]] >= 0:
                tallies = np.zeros(len(seeds), one["tally"].dtype) if tallies is None else tallies
                tallies[playing[one["env"]]] = one["tally"]
        done = playing[leaving]
        if outcome.last is not None:
            ended_now, numbers = outcome.last
            places = np.flatnonzero(playing[ended_now] >= 0)
            said.add(playing[ended_now[places]], places, numbers)
        returns[done], lengths[done], unfinished[done] = total[leaving], length[leaving], ~ended[leaving]
        over += len(leaving)
        playing[leaving] = -1
        begun = leaving[: len(seeds) - started]
        if begun.size:
            playing[begun] = np.arange(started, started + len(begun))
            started += len(begun)
            mask = np.zeros(num_envs, np.bool_)
            mask[begun] = True
            for env in begun:
                now[env] = seeds[playing[env]]
            stepper.restart(now, mask, rows)
            actor.begin(begun, playing)
            total[begun], length[begun] = 0.0, 0
        heard(over, steps)
    return Episodes(returns, lengths, unfinished, tallies, said)


class _Actor:
    """Asks the network in calls of one size, and samples each episode's actions from its own stream."""

    def __init__(self, policy: DeployedPolicy, num_envs: int, seed: int, deterministic: bool) -> None:
        self._policy, self._seed, self._deterministic = policy, seed, deterministic
        kind = policy.agent.kind
        self._generators = [torch.Generator() for _ in range(num_envs)]
        self._noise = torch.zeros((num_envs, _ROWS, kind.num_noise))  # so many steps ahead
        self._at = np.zeros(num_envs, np.int64)
        starts = range(0, num_envs, _ROWS)
        self._blocks = [(np.arange(low, low + _ROWS) % num_envs, min(_ROWS, num_envs - low)) for low in starts]

    def begin(self, envs: Array, playing: Array) -> None:
        """New episodes in these environments."""
        for env in envs:
            self._generators[env].manual_seed(word(self._seed, Stream.EVALUATE, 0, int(playing[env]), 1))
            self._at[env] = 0

    def act(self, rows: list[Array]) -> Array:
        """An action for each environment."""
        noise = None if self._deterministic else self._next_noise()
        parts = []
        for rows_of_block, count in self._blocks:
            own = None if noise is None else noise[rows_of_block]
            actions = self._policy.act([leaf[rows_of_block] for leaf in rows], self._deterministic, own)
            parts.append(actions[:count])
        return np.concatenate(parts)

    def _next_noise(self) -> torch.Tensor:
        at = self._at % _ROWS
        for env in np.flatnonzero(at == 0):
            self._noise[env] = self._policy.agent.kind.noise((_ROWS,), self._generators[env])
        self._at += 1
        return self._noise[torch.arange(len(at)), torch.from_numpy(at)]


def open_environments(
    made: Any,
    env_kwargs: dict[str, Any],
    num_envs: int | None,
    episodes: int,
    policy: DeployedPolicy,
    say: Say,
    apart: bool = False,
    **around: Any,
) -> VectorEnv[Any, Any, Any]:
    """Environments to play in; without `num_envs` as many as make it fast, and in processes where a step is slow, or
    `apart` asks for it: one that crashes must not take this process with it.

    `around` are the imports and wrappers of the run.
    """

    def make(count: int, backend: str = "auto") -> VectorEnv[Any, Any, Any]:
        return make_vec(made, count, backend=backend, stream=Stream.EVALUATE, env_kwargs=env_kwargs, **around)

    began = time.perf_counter()
    one = make(num_envs or min(episodes, 2 * usable_cores()), "process") if apart else make(1)
    build_s = time.perf_counter() - began
    try:
        check_observations(policy, one)
    except ValueError:
        one.close()
        raise
    if apart or num_envs == 1 or episodes == 1:
        return one
    if not isinstance(one, SerialVectorEnv):
        one.close()
        return make(num_envs or min(episodes, _SEVERAL_COMPILED))
    step_s, cores = _step_s(one, policy), usable_cores()
    slow = step_s > _SLOW_STEP_S and cores > 1
    count = num_envs or min(episodes, 2 * cores if slow else max(1, min(_SEVERAL, int(_BUILD_S / build_s))))
    if count == 1:
        return one
    one.close()
    if not slow:
        return make(count, "serial")
    try:
        return make(count, "process")
    except (EnvFault, TypeError, AttributeError, pickle.PicklingError) as error:
        say(f"the environments cannot be had in worker processes, one after the other then: {error}")
        return make(num_envs or 1, "serial")


def check_observations(policy: DeployedPolicy, envs: VectorEnv[Any, Any, Any]) -> None:
    """Rows go to the policy by position: every part must be of the same name, shape and type, in the same order."""
    trained, got = policy.agent.features.layout, Layout(envs.single_observation_space)
    if trained.leaves != got.leaves:
        raise ValueError(
            f"expected the observations that the run was trained on, {trained.space}, got {got.space}: evaluate it on "
            "the environment of the run (the order of a Dict's keys counts too)"
        )
    policy.check_features(parts_of(envs).features_version)


def _step_s(one: VectorEnv[Any, Any, Any], policy: DeployedPolicy) -> float:
    """Seconds of a step of the environment alone, in the median, under the policy's own actions: legal ones."""
    stepper = Stepper(one)
    rows = stepper.layout.allocate(1)
    stepper.restart([0], np.ones(1, np.bool_), rows)
    times = []
    for _ in range(_TRIAL_STEPS):
        action = policy.act(rows, True)
        began = time.perf_counter()
        stepper.step(action, rows)
        times.append(time.perf_counter() - began)
    return float(np.median(times))
