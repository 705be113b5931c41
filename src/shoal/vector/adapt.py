"""One way to step any Gymnasium VectorEnv, whatever its autoreset mode.

| mode | after an episode's end | what is done about it |
|---|---|---|
| SAME_STEP | the new episode's observation comes at once, the final one in `final_obs` | taken as it is |
| NEXT_STEP | the final observation comes; the next step ignores its action and resets | that transition is not valid |
| DISABLED | the final observation comes; nobody resets | reset here, by `reset_mask` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from shoal.compiled.infos import FinalInfos
from shoal.core.arrays import Array, Layout
from shoal.core.errors import ShapeError
from shoal.core.own import OwnVectorEnv
from shoal.core.protocols import parts_of
from shoal.vector.infos import Numbers, last_numbers


@dataclass
class Outcome:
    """What one step of n environments gave."""

    rewards: Array  # float[n]
    terminated: Array  # bool[n]
    truncated: Array  # bool[n]
    valid: Array | None  # bool[n]: False where the "transition" was only a reset; None when all are valid
    broken: Array | None  # bool[n]: the episode was lost to a fault; None when none was
    final: tuple[Array, list[Array]] | None  # (environments truncated, their true final observations per leaf)
    last: tuple[Array, Numbers] | None = None  # (environments whose episodes ended, the numbers in their last infos)


class Stepper:
    """Steps an environment into the caller's arrays."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env = env
        self.layout = Layout(env.single_observation_space)
        self.mode = autoreset_mode(env)
        # A shoal backend writes into `out` and has dense final observations; inside a wrapper it must not be bypassed.
        self._own: Any = env if parts_of(env).writes_out else None
        self._inner = env.unwrapped if isinstance(env.unwrapped, OwnVectorEnv) else None
        self.over = np.zeros(env.num_envs, np.bool_)  # the next step only resets (NEXT_STEP)

    def allocate(self, rows: int) -> list[Array]:
        """Arrays for so many rows of observations, per leaf [rows, N, *shape]: where environments can write into the
        caller's rows themselves, theirs."""
        shared = None if self._own is None else self._own.allocate(rows)
        return self.layout.allocate(rows, self.env.num_envs) if shared is None else shared

    def reset(self, seed: int, out: Sequence[Array]) -> None:
        """Reset all environments; first observations go into the leaf arrays `out`."""
        observations, _ = self.env.reset(seed=seed)
        self.over[:] = False
        self._copy(observations, out)

    def resumed(self) -> None:
        """The environment has taken up a saved state."""
        if self._inner is not None and self.mode == AutoresetMode.NEXT_STEP:
            self.over = self._inner.over

    def restart(self, seeds: Sequence[int], mask: Array, out: Sequence[Array]) -> None:
        """Begin an episode with its own seed in every environment of `mask` (bool[N]); `seeds` has one for each of all
        N, the present one where nothing begins."""
        env: Any = self.env  # Gymnasium's own take a seed for each environment too; its annotation does not say so
        observations, _ = env.reset(seed=list(seeds), options=None if mask.all() else {"reset_mask": mask})
        self.over[mask] = False
        self._copy(observations, out, mask)

    def step(self, actions: Any, out: Sequence[Array]) -> Outcome:
        """Step all environments; next observations go into `out`."""
        if self._own is not None:
            return self.outcome(self._own.step(actions, out=self.layout.assemble(out)), slice(0, self.env.num_envs))
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._copy(observations, out)
        rewards = np.asarray(rewards)
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        for name, array in (("rewards", rewards), ("terminated", terminated), ("truncated", truncated)):
            if array.shape != (self.env.num_envs,):
                raise ShapeError(
                    f"expected {name} of shape ({self.env.num_envs},), got {array.shape}; nothing is broadcast"
                )
        ended = terminated | truncated
        rows = np.flatnonzero(truncated & ~terminated)
        valid, final = None, None
        if self.mode == AutoresetMode.SAME_STEP:
            if rows.size:
                final = rows, self._final_observations(infos, rows)
        else:
            if rows.size:
                final = rows, [array[rows] for array in out]
            if self.mode == AutoresetMode.NEXT_STEP:
                valid, self.over = ~self.over, ended
            elif ended.any():
                observations, _ = self.env.reset(options={"reset_mask": ended.copy()})
                self._copy(observations, out, ended)
        every = slice(0, self.env.num_envs)
        last = self._last(infos, ended, every)
        return Outcome(rewards, terminated, truncated, valid, self._broken(every), final, last)

    def _final_observations(self, infos: dict[str, Any], rows: Array) -> list[Array]:
        """The true last observations of episodes that were cut short, per leaf [len(rows), *shape]."""
        if "final_obs" not in infos:
            raise ValueError(
                f'expected infos["final_obs"] of {type(self.env).__name__} (autoreset SAME_STEP) for the episodes of '
                f"environments {rows.tolist()} that were truncated: without it their values cannot be estimated"
            )
        leaves = self.layout.allocate(len(rows))
        for place, row in enumerate(rows):
            self.layout.write(infos["final_obs"][row], leaves, place)
        return leaves

    def outcome(self, step: tuple[Any, Array, Array, Array, dict[str, Any]], rows: slice) -> Outcome:
        """A step of one of shoal's own backends as an Outcome."""
        _, rewards, terminated, truncated, infos = step
        valid = None
        if self.mode == AutoresetMode.NEXT_STEP:
            valid, self.over[rows] = ~self.over[rows], terminated | truncated
        last = self._last(infos, terminated | truncated, rows)
        if not truncated.any():
            return Outcome(rewards, terminated, truncated, valid, None, None, last)
        local = np.flatnonzero(truncated & ~terminated)
        finals = self.layout.take_apart(self._own.final_obs)
        final = local, [array[local + rows.start] for array in finals]
        return Outcome(rewards, terminated, truncated, valid, self._broken(rows), final, last)

    def _last(self, infos: Any, ended: Array, rows: slice) -> tuple[Array, Numbers] | None:
        """What the environments said last of the episodes that ended (bool[n], of the environments `rows`)."""
        if isinstance(infos, FinalInfos) or not infos or not ended.any():  # a compiled environment says nothing
            return None
        local = np.flatnonzero(ended)
        found = last_numbers(infos, local + rows.start, of_step=self.mode != AutoresetMode.SAME_STEP)
        return (local, found) if found else None

    def _broken(self, rows: slice) -> Array | None:
        restarted = None if self._inner is None else self._inner.restarted
        return restarted[rows] if restarted is not None and restarted[rows].any() else None

    def _copy(self, observations: Any, out: Sequence[Array], rows: Array | None = None) -> None:
        for part, array in zip(self.layout.take_apart(observations), out, strict=True):
            part = np.asarray(part)
            if part.shape != array.shape:
                raise ShapeError(
                    f"expected observations of shape {array.shape}, got {part.shape}; nothing is broadcast"
                )
            if rows is None:
                np.copyto(array, part)
            else:
                array[rows] = part[rows]


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """The mode that an environment says it has."""
    mode = (env.metadata or {}).get("autoreset_mode")
    if isinstance(mode, str) and mode in {known.value for known in AutoresetMode}:
        mode = AutoresetMode(mode)
    if not isinstance(mode, AutoresetMode):
        raise ValueError(
            f'expected metadata["autoreset_mode"] of {type(env).__name__} to be a gymnasium.vector.AutoresetMode, '
            f"got {mode!r}. Without it nobody can tell a final observation from a first one; set it on the environment"
        )
    return mode
