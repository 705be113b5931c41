"""A run of environments stepped one after another in this process.

`serial` is one chunk that holds every environment; `process` is one chunk per worker and slice. All that
must hold on every backend is therefore written once, here: every episode starts with a seed of its own,
terminated is not truncated, the true final observation is kept, and nothing ill-formed enters the block.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from shoal.vector.block import Block
from shoal.vector.errors import EnvFault, EnvRaised, NotFinite
from shoal.vector.layout import check_flag, check_scalar
from shoal.vector.seeding import Stream, episode_seed

EnvFactory = Callable[[], gym.Env[Any, Any]]
Infos = list[tuple[int, dict[str, Any], dict[str, Any] | None]]  # (environment, info, final info)
_LOCAL_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)


class Chunk:
    """Environments `first .. first + len(factories)` of a batch, writing into their rows of `block`."""

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        first: int,
        block: Block,
        *,
        stream: Stream = Stream.TRAIN,
        restart: bool = False,
        check_finite: bool = True,
        worker: int = 0,
    ) -> None:
        self.factories, self.first, self.block, self.stream = factories, first, block, stream
        self.restart, self.check_finite, self.worker = restart, check_finite, worker
        self.rows = slice(first, first + len(factories))
        self.indices = range(first, first + len(factories))
        self.steppers: list[Callable[[Any], Any]] = []  # bound step methods: one look-up less per step
        self.limits: list[int] = []
        self.envs: list[gym.Env[Any, Any]] = []
        self.elapsed = [0] * len(factories)
        self.faults: list[EnvFault] = []  # faults survived since the caller last looked
        self._discrete = isinstance(block.action_layout.space, gym.spaces.Discrete)
        self._store = _writer(block)
        for local in range(len(factories)):
            block.current[worker] = first + local
            with self._guard(local, "while being built"):
                env = factories[local]()
                self._check_spaces(env)
            self.envs.append(env)
            inner, limit = strip(env)
            self.steppers.append(inner.step)
            self.limits.append(limit)
        block.current[worker] = -1

    # -- what a backend calls ------------------------------------------------------------------

    def reset(self, options: dict[str, Any] | None = None) -> Infos:
        """Start the next episode of every environment whose `reset_mask` is set."""
        infos: Infos = []
        self._read_seed_roots()
        for local in range(len(self.envs)):
            if self.block.reset_mask[self.first + local]:
                info = self._start_episode(local, options)
                if info:
                    infos.append((self.first + local, dict(info), None))
        if self.check_finite:
            self._quarantine_not_finite("after reset", [])
        self._publish()
        return infos

    def step(self) -> Infos:
        """Step every environment with its row of `block.actions`; an episode that ends starts anew."""
        block, elapsed, limits, current, worker = self.block, self.elapsed, self.limits, self.block.current, self.worker
        rewards: list[float] = []
        ends: list[tuple[int, bool, bool]] = []
        infos: Infos = []
        block.restarted[self.rows] = False
        for local, (index, step, action) in enumerate(zip(self.indices, self.steppers, self._actions(), strict=True)):
            current[worker] = index
            try:
                observation, reward, terminated, truncated, info = step(action)
                self._store(observation, index)
                rewards.append(reward if type(reward) is float else check_scalar(reward, "a reward"))
                elapsed[local] += 1
                if elapsed[local] >= limits[local]:
                    truncated = True
                if terminated is not False or truncated is not False:
                    terminated = check_flag(terminated, "terminated")
                    truncated = check_flag(truncated, "truncated")
                    if terminated or truncated:
                        ends.append((local, terminated, truncated))
                if info:
                    infos.append((index, info, None))
            except Exception as error:  # whatever an environment throws
                del rewards[local:]
                rewards.append(0.0)
                self._revive(local, self._fault(local, error, "in step"))
        block.rewards[self.rows] = rewards
        block.terminated[self.rows] = False
        block.truncated[self.rows] = block.restarted[self.rows]
        if self.check_finite:
            self._quarantine_not_finite("in step", ends)
        if ends:
            infos = self._end_episodes(ends, infos)
            if self.check_finite:
                self._quarantine_not_finite("after reset", [])
        self._publish()
        current[worker] = -1
        return infos

    def replay(self, local: int, episode: int, actions: Sequence[Any]) -> None:
        """Reach an unfinished episode again: reset with its seed, then take its recorded actions."""
        index = self.first + local
        self._read_seed_roots()
        self.episodes[local] = episode - 1
        with self._guard(local, "while an unfinished episode was replayed"):
            self._start_episode(local, None)
            for action in actions:
                observation, *_ = self.steppers[local](action)
                self._store(observation, index)
                self.elapsed[local] += 1
        self._publish()

    def close(self) -> None:
        """Close every environment, then raise what the first failing one raised."""
        first_fault: EnvFault | None = None
        for local, env in enumerate(self.envs):
            try:
                env.close()
            except Exception as error:
                first_fault = first_fault or self._fault(local, error, "in close")
        self.envs, self.steppers = [], []
        if first_fault is not None:
            raise first_fault

    # -- episodes ------------------------------------------------------------------------------

    def _start_episode(self, local: int, options: dict[str, Any] | None) -> dict[str, Any]:
        block, index = self.block, self.first + local
        base, place, first_seed = self.seed_roots[local]
        episode = self.episodes[local] + 1
        seed = first_seed if episode == 0 and first_seed >= 0 else episode_seed(base, place, episode, self.stream)
        block.current[self.worker] = index
        self.episodes[local], self.elapsed[local] = episode, 0
        block.episodes[index], block.seeds[index] = episode, seed
        try:
            observation, info = self.envs[local].reset(seed=seed, options=options)
            self._store(observation, index)
        except Exception as error:
            raise self._fault(local, error, "in reset") from error
        return info

    def _read_seed_roots(self) -> None:
        """The parent may have set new seeds: take them from the block."""
        block, rows = self.block, self.rows
        roots = zip(block.bases[rows].tolist(), block.indices[rows].tolist(), block.first_seeds[rows].tolist(), strict=True)
        self.seed_roots: list[tuple[int, int, int]] = list(roots)
        self.episodes: list[int] = block.episodes[rows].tolist()

    def _end_episodes(self, ends: list[tuple[int, bool, bool]], infos: Infos) -> Infos:
        block = self.block
        last_infos = {index: info for index, info, _ in infos} if infos else {}
        started: Infos = []
        for local, terminated, truncated in ends:
            index = self.first + local
            block.terminated[index], block.truncated[index] = terminated, truncated
            for final, row in zip(block.final_observations, block.observations, strict=True):
                final[index] = row[index]
            try:
                info = self._start_episode(local, None)
            except EnvFault as fault:
                info = {}
                self._revive(local, fault)
            final_info = last_infos.pop(index, None)
            if info or final_info:
                started.append((index, info, final_info))
        goes_on: Infos = [(index, info, None) for index, info in last_infos.items()]
        return sorted(goes_on + started, key=lambda entry: entry[0])

    # -- faults --------------------------------------------------------------------------------

    def _revive(self, local: int, fault: EnvFault) -> None:
        """Policy `restart`: rebuild the environment and go on with its next episode; else raise."""
        if not self.restart:
            self._publish()
            raise fault
        self.faults.append(fault)
        block, index = self.block, self.first + local
        with self._guard(local, "while being rebuilt after a fault"):
            try:
                self.envs[local].close()
            except Exception as error:  # the old one is broken already; its last words are kept
                self.faults[-1].add_note(f"closing it failed too: {error!r}")
            self.envs[local] = self.factories[local]()
        inner, self.limits[local] = strip(self.envs[local])
        self.steppers[local] = inner.step
        self._start_episode(local, None)
        for final, row in zip(block.final_observations, block.observations, strict=True):
            final[index] = row[index]
        block.terminated[index], block.truncated[index], block.restarted[index] = False, True, True
        block.rewards[index] = 0.0

    def _quarantine_not_finite(self, where: str, ends: list[tuple[int, bool, bool]]) -> None:
        """Nothing that is not finite leaves the chunk: its environment is rebuilt, or the fault raised."""
        rows = [array[self.rows] for array in self.block.observations]
        while True:
            try:
                self.block.observation_layout.check_finite(rows, f"{where},")
                rewards = self.block.rewards[self.rows]
                if np.isfinite(rewards).all():
                    return
                bad = int(np.argmin(np.isfinite(rewards)))
                fault = NotFinite(f"{where}, the reward is not finite: {rewards[bad]}")
            except NotFinite as error:
                fault, bad = error, error.row  # type: ignore[attr-defined]
            ends[:] = [end for end in ends if end[0] != bad]
            self._revive(bad, self._fault(bad, fault, ""))

    def _fault(self, local: int, error: Exception, where: str) -> EnvFault:
        """Any exception as an EnvFault that names environment, process, seed and step."""
        index = self.first + local
        seed = int(self.block.seeds[index])
        place = {
            "env": index,
            "pid": os.getpid(),
            "seed": seed if seed >= 0 else None,
            "step": self.elapsed[local],
        }
        if isinstance(error, EnvFault):
            if error.env is not None:
                return error
            text = f"{where}, {error.message}" if where else error.message
            return type(error)(text, worker_traceback="", **place)  # type: ignore[arg-type]
        trace = "".join(traceback.format_exception(error))
        name = type(error).__name__
        return EnvRaised(f"{name} {where}: {error}", kind=name, worker_traceback=trace, **place)  # type: ignore[arg-type]

    def _guard(self, local: int, where: str) -> _Guard:
        return _Guard(self, local, where)

    def _check_spaces(self, env: gym.Env[Any, Any]) -> None:
        wanted = self.block.observation_layout.space, self.block.action_layout.space
        got = env.observation_space, env.action_space
        if got != wanted:
            raise ValueError(
                f"every environment of a batch needs the same spaces. Expected {wanted[0]} and {wanted[1]} "
                f"(environment 0), got {got[0]} and {got[1]}"
            )

    # -- arrays --------------------------------------------------------------------------------

    def _actions(self) -> Sequence[Any]:
        """This chunk's actions, one value per environment that the environment may keep."""
        rows = [array[self.rows] for array in self.block.actions]
        if self._discrete:
            return list(rows[0])  # NumPy scalars, as action_space.sample() gives them
        layout = self.block.action_layout
        copies = [row.copy() for row in rows]
        if layout.is_single:
            return copies[0]
        return [layout.assemble([copy[i] for copy in copies]) for i in range(len(self.envs))]

    def _publish(self) -> None:
        self.block.elapsed[self.rows] = self.elapsed


class _Guard:
    """`with chunk._guard(local, where)`: an exception leaves as an EnvFault that names the environment."""

    def __init__(self, chunk: Chunk, local: int, where: str) -> None:
        self.chunk, self.local, self.where = chunk, local, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            raise self.chunk._fault(self.local, error, self.where) from error


def _writer(block: Block) -> Callable[[Any, int], None]:
    """`block.observation_layout.write` into the block, with a short way for the usual observation."""
    layout, rows = block.observation_layout, block.observations
    if not layout.is_single:
        return lambda observation, index: layout.write(observation, rows, index)
    array = rows[0]
    _, shape, dtype = layout.leaves[0]

    def write(observation: Any, index: int) -> None:
        if type(observation) is np.ndarray and observation.dtype is dtype and observation.shape == shape:
            array[index] = observation
        else:
            layout.write(observation, rows, index)

    return write


def strip(env: gym.Env[Any, Any]) -> tuple[gym.Env[Any, Any], int]:
    """Take off the outermost wrappers whose work a chunk does itself, for half the cost of a CartPole step.

    Returns the environment to step and its time limit (a very large number if it has none).
    """
    limit = 2**62
    while type(env) in _LOCAL_WRAPPERS:
        if type(env) is TimeLimit:
            limit = min(limit, env._max_episode_steps)
        env = env.env  # type: ignore[attr-defined]
    return env, limit
