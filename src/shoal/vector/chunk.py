"""A run of environments stepped one after another in this process.

`serial` is one chunk per slice; `process` is one chunk per worker and slice; `split` has one of the caller's as well.
All that must hold on every backend is therefore written once, here: every episode starts with a seed of its own,
terminated is not truncated, the true final observation is kept, and nothing ill-formed enters the block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from shoal.core.arrays import FLOAT32_MAX, check_flag, check_info, check_scalar
from shoal.core.errors import EnvFault, NotFinite, OutOfRange, text_of, too_many_restarts
from shoal.core.seeds import Stream, episode_seed
from shoal.vector import api
from shoal.vector.environments import ANY_ERROR, EnvFactory, Environments
from shoal.vector.memory import Block

Infos = list[tuple[int, dict[str, Any], dict[str, Any] | None]]  # (environment, info, final info)
Ends = list[tuple[int, bool, bool]]  # (place in the chunk, terminated, truncated)


class Chunk(Environments):
    """Environments `first .. first + len(factories)` of a batch, writing into their rows of `block`.

    With `restart` a broken environment is rebuilt and goes on with its next episode; `faults` collects what
    happened. More than `max_restarts` in one call stop it. With `next_step` an episode that has ended begins anew
    in the step after, else at once. `first_env` is environment `first` if it is built already (somebody had to, to
    know the spaces).
    """

    def __init__(
        self,
        factories: Sequence[EnvFactory],
        first: int,
        block: Block,
        *,
        stream: Stream = Stream.TRAIN,
        restart: bool = False,
        max_restarts: int = 10,
        check_finite: bool = True,
        next_step: bool = False,
        worker: int = 0,
        first_env: gym.Env[Any, Any] | None = None,
    ) -> None:
        super().__init__(factories, first, block, worker)
        self.stream, self.restart, self.max_restarts = stream, restart, max_restarts
        self.check_finite, self.next_step = check_finite, next_step
        self.rows = slice(first, first + len(factories))
        self.indices = range(first, first + len(factories))
        self.faults: list[EnvFault] = []  # faults survived since the caller last looked
        self._discrete = isinstance(block.action_layout.space, gym.spaces.Discrete)
        # Views made once: a slice costs as much as a good part of stepping a cheap environment.
        self._actions_given = [array[self.rows] for array in block.actions]
        self._rewards, self._restarted = block.rewards[self.rows], block.restarted[self.rows]
        self._terminated, self._truncated = block.terminated[self.rows], block.truncated[self.rows]
        # The usual observation is one array: where a value is already what it should be, it is written at once.
        layout = block.observation_layout
        usual: Any = layout.leaves[0][1:] if layout.is_single else (None, None)
        self._shape, self._dtype = usual
        self._renew_views()
        self._build_all(first_env)

    # -- what a backend calls ------------------------------------------------------------------

    def reset(self, options: dict[str, Any] | None = None) -> Infos:
        """Start the next episode of every environment whose `reset_mask` is set."""
        self._take_aim()
        infos: Infos = []
        self._read_seed_roots()
        asked = self.block.reset_mask[self.rows].copy()
        for local in np.flatnonzero(asked).tolist():
            info = self._try_to_start_episode(local, options)
            if info:
                infos.append((self.first + local, info, None))
        if self.check_finite:
            self._quarantine_not_finite("after reset", [])
        self._terminated[asked] = self._truncated[asked] = False  # with `next_step`, what says that one is over
        self._publish()
        return infos

    def step(self) -> Infos:
        """Step every environment with its row of `block.actions`; an episode that ends starts anew, now or in the
        next step."""
        self._take_aim()
        steppers = self._steppers_or_resets() if self.next_step else self.steppers
        elapsed, limits, current, worker = self.elapsed, self.limits, self.block.current, self.worker
        array, shape, dtype = np.ndarray, self._shape, self._dtype
        rewards: list[float] = []
        ends: Ends = []
        infos: Infos = []
        answer: Any = None
        self._restarted[:] = False
        each = zip(self.indices, steppers, self._places, self._actions(), strict=True)
        for local, (index, step, place, action) in enumerate(each):
            current[worker] = index
            elapsed[local] = age = elapsed[local] + 1
            try:
                answer = step(action)
                observation, reward, terminated, truncated, info = answer
                if type(observation) is array and observation.dtype is dtype and observation.shape == shape:
                    place[...] = observation
                else:
                    self._store(observation, index)
                rewards.append(reward if type(reward) is float else check_scalar(reward, "the reward"))
                if terminated is not False or truncated is not False or age >= limits[local]:
                    terminated = check_flag(terminated, "terminated")
                    truncated = check_flag(truncated, "truncated") or age >= limits[local]
                    if terminated or truncated:
                        ends.append((local, terminated, truncated))
                if info:
                    infos.append((index, check_info(info), None))
            except ANY_ERROR as error:  # whatever an environment throws
                del rewards[local:]
                rewards.append(0.0)
                if ends and ends[-1][0] == local:
                    ends.pop()
                self._revive(local, self._fault(local, api.blame(error, answer), "in step"))
        self._rewards[:] = rewards
        self._terminated[:] = False
        self._truncated[:] = self._restarted
        if self.check_finite:
            self._quarantine_not_finite("in step", ends)
        if ends:
            infos = self._end_episodes(ends, infos)
            if self.check_finite and not self.next_step:
                self._quarantine_not_finite("after reset", [])
        self._publish()
        return infos

    def replay(self, local: int, episode: int, actions: Sequence[Any]) -> bool:
        """Reach an unfinished episode again: reset with its seed, then take its recorded actions.

        False if the environment did not follow: it failed, or its episode ended before the actions did. Then it is
        in a new episode. That it failed ends nothing, whatever the policy: it only did not come back.
        """
        index = self.first + local
        self._take_aim()
        self._read_seed_roots()
        self.episodes[local] = episode - 1
        survived = len(self.faults)
        self._try_to_start_episode(local, None)
        followed = len(self.faults) == survived
        is_over = bool(self._terminated[local] | self._truncated[local])  # as it was saved (`next_step`)
        self._terminated[local] = self._truncated[local] = False
        ended = False
        for action in actions if followed else ():
            if ended:
                break
            self.elapsed[local] += 1
            self.block.elapsed[index] = self.elapsed[local]  # a sign of life for whoever waits
            try:
                observation, _, terminated, truncated, _ = self.steppers[local](action)
                self._store(observation, index)
                ended = bool(terminated or truncated or self.elapsed[local] >= self.limits[local])
            except ANY_ERROR as error:
                self._did_not_follow(local, self._fault(local, error, "while an unfinished episode was replayed"))
                followed = False
                break
        if followed and (self.elapsed[local] != len(actions) or (len(actions) > 0 and ended != is_over)):
            self._try_to_start_episode(local, None)
            followed = False
        try:
            if self.check_finite:
                self._quarantine_not_finite("after a replay", [])
        except EnvFault as fault:
            self._did_not_follow(local, fault)
            followed = False
        self._truncated[local] = is_over and followed and len(self.faults) == survived
        self._publish()
        return followed and len(self.faults) == survived

    # -- episodes ------------------------------------------------------------------------------

    def _try_to_start_episode(self, local: int, options: dict[str, Any] | None) -> dict[str, Any]:
        try:
            return self._start_episode(local, options)
        except EnvFault as fault:
            self._revive(local, fault)
            return {}

    def _start_episode(self, local: int, options: dict[str, Any] | None) -> dict[str, Any]:
        block, index = self.block, self.first + local
        base, place, first_seed = self.seed_roots[local]
        episode = self.episodes[local] + 1
        seed = first_seed if episode == 0 and first_seed >= 0 else episode_seed(base, place, episode, self.stream)
        block.current[self.worker] = index
        self.episodes[local], self.elapsed[local] = episode, 0
        block.episodes[index], block.seeds[index], block.elapsed[index] = episode, seed, 0
        try:
            observation, info = api.reset(self.envs[local], seed, options)
            self._store(observation, index)
            return check_info(info) if info else {}
        except ANY_ERROR as error:
            raise self._fault(local, error, "in reset") from error

    def _steppers_or_resets(self) -> list[Callable[[Any], Any]]:
        """What to call in a step: an environment whose episode has ended begins its next one, whatever the action."""
        steppers = self.steppers
        over = np.flatnonzero(self._terminated | self._truncated).tolist()
        if over:
            steppers = steppers.copy()
            for local in over:
                steppers[local] = functools.partial(self._reset_instead, local)
                self.elapsed[local] = -1  # a reset is no step
        return steppers

    def _reset_instead(self, local: int, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        info = self._start_episode(local, None)
        rows = [array[self.first + local] for array in self.block.observations]
        return self.block.observation_layout.assemble(rows), 0.0, False, False, info

    def _read_seed_roots(self) -> None:
        """The parent may have set new seeds: take them from the block."""
        block, rows = self.block, self.rows
        roots = zip(
            block.bases[rows].tolist(), block.indices[rows].tolist(), block.first_seeds[rows].tolist(), strict=True
        )
        self.seed_roots: list[tuple[int, int, int]] = list(roots)
        self.episodes: list[int] = block.episodes[rows].tolist()

    def _end_episodes(self, ends: Ends, infos: Infos) -> Infos:
        block = self.block
        for local, terminated, truncated in ends:
            index = self.first + local
            block.terminated[index], block.truncated[index] = terminated, truncated
            for final, row in zip(block.final_observations, block.observations, strict=True):
                final[index] = row[index]
        if self.next_step:
            return infos
        last_infos = {index: info for index, info, _ in infos} if infos else {}
        started: Infos = []
        for local, _, _ in ends:
            index = self.first + local
            info = self._try_to_start_episode(local, None)
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
        block, index = self.block, self.first + local
        while True:
            self.faults.append(fault)
            if len(self.faults) > self.max_restarts:
                raise too_many_restarts(len(self.faults), "in one step", self.max_restarts, fault)
            try:
                self.envs[local].close()
            except ANY_ERROR as error:  # it is broken already; its last words are kept
                fault.aftermath = f"closing it failed too ({text_of(error)}); "
            try:
                self.envs[local] = self._build(local, "while being rebuilt after a fault")
                self._look_inside(local)
                self._start_episode(local, None)
                break
            except EnvFault as another:
                fault = another
        fault.aftermath += f"rebuilt, goes on with episode {self.episodes[local]}, seed {block.seeds[index]}"
        for final, row in zip(block.final_observations, block.observations, strict=True):
            final[index] = row[index]
        block.terminated[index], block.truncated[index], block.restarted[index] = False, True, True
        block.rewards[index] = 0.0

    def _did_not_follow(self, local: int, fault: EnvFault) -> None:
        """It failed in a replay, and begins its next episode."""
        self._try_to_start_episode(local, None)
        fault.aftermath = f"goes on with episode {self.episodes[local]}, seed {self.block.seeds[self.first + local]}"
        self.faults.append(fault)

    def _quarantine_not_finite(self, where: str, ends: Ends) -> None:
        """Nothing that is not finite leaves the chunk: its environment is rebuilt, or the fault raised."""
        rewards = self._rewards
        while True:
            try:
                self.block.observation_layout.check_finite(self._observed, f"{where},")
                if np.vdot(rewards, rewards) <= 1e76:  # so that each is below 1e38; false for NaN too
                    return
                fine = np.abs(rewards) <= FLOAT32_MAX
                if fine.all():
                    return
                bad = int(np.argmin(fine))
                fault: EnvFault = NotFinite(f"{where}, the reward is not finite as float32: {rewards[bad]}")
            except (NotFinite, OutOfRange) as error:
                fault, bad = error, error.row
            ends[:] = [end for end in ends if end[0] != bad]
            self._revive(bad, self._fault(bad, fault, ""))

    # -- arrays --------------------------------------------------------------------------------

    def _take_aim(self) -> None:
        """Observations may go somewhere else than in the last step: the block says where."""
        self.block.follow()
        if self.block.observations is not self._aimed_at:
            self._renew_views()

    def _renew_views(self) -> None:
        self._aimed_at = self.block.observations
        self._observed = [array[self.rows] for array in self.block.observations]
        first = self._observed[0]
        self._places: list[Any] = list(first) if first.ndim > 1 else [first[i, ...] for i in range(len(first))]

    def _store(self, observation: Any, index: int) -> None:
        self.block.observation_layout.write(observation, self.block.observations, index)

    def _actions(self) -> Sequence[Any]:
        """This chunk's actions, one value per environment that the environment may keep."""
        if self._discrete:
            return list(self._actions_given[0])  # NumPy scalars, as action_space.sample() gives them
        layout = self.block.action_layout
        copies = [given.copy() for given in self._actions_given]
        if layout.is_single:
            return list(copies[0])
        return [layout.assemble([copy[i] for copy in copies]) for i in range(len(self.envs))]

    def _publish(self) -> None:
        self.block.elapsed[self.rows] = self.elapsed
        self.block.current[self.worker] = -1


def take_faults(*chunks: Chunk) -> list[EnvFault]:
    """The faults that these chunks survived since somebody last asked."""
    faults = [fault for chunk in chunks for fault in chunk.faults]
    for chunk in chunks:
        chunk.faults = []
    return faults


def whole(infos: Infos | None) -> Infos:
    """The infos of a step in this process, unless it was broken off (Ctrl-C) with some environments stepped."""
    if infos is None:
        raise RuntimeError("a step was interrupted half-way: some environments have stepped, others not. Call reset()")
    return infos


def close_all(chunks: Sequence[Chunk]) -> EnvFault | None:
    """Close all environments of all chunks; returns what went wrong first."""
    faults = [chunk.close() for chunk in chunks]
    return next((fault for fault in faults if fault is not None), None)
