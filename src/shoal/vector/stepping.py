"""One way to step any Gymnasium VectorEnv, whatever its autoreset mode.

| mode | after an episode's end | what is done about it |
|---|---|---|
| SAME_STEP | the new episode's observation comes at once, the final one in `final_obs` | taken as it is |
| NEXT_STEP | the final observation comes; the next step ignores its action and resets | that next transition is not valid |
| DISABLED | the final observation comes; nobody resets | reset here, by `reset_mask` |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from shoal.vector.layout import Array, Layout


@dataclass
class Outcome:
    """What one step of n environments gave."""

    rewards: Array  # float[n]
    terminated: Array  # bool[n]
    truncated: Array  # bool[n]
    valid: Array | None  # bool[n]: False where the "transition" was only a reset; None when all are valid
    broken: Array | None  # bool[n]: the episode was lost to a fault; None when none was
    final: tuple[Array, list[Array]] | None  # (environments truncated, their true final observations per leaf)


class Stepper:
    """Steps an environment into the caller's arrays."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env = env
        self.layout = Layout(env.single_observation_space)
        self.mode = autoreset_mode(env)
        self._own = hasattr(env, "final_obs")  # a shoal backend: writes into `out`, dense final observations
        self._resetting = np.zeros(env.num_envs, np.bool_)

    def reset(self, seed: int, out: Sequence[Array]) -> None:
        """Reset all environments; first observations go into the leaf arrays `out`."""
        observations, _ = self.env.reset(seed=seed)
        self._resetting[:] = False
        self._copy(observations, out)

    def step(self, actions: Any, out: Sequence[Array]) -> Outcome:
        """Step all environments; next observations go into `out`."""
        if self._own:
            return self.outcome(self.env.step(actions, out=self.layout.assemble(out)), slice(0, self.env.num_envs))
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._copy(observations, out)
        terminated, truncated = np.asarray(terminated, np.bool_), np.asarray(truncated, np.bool_)
        cut_short = truncated & ~terminated
        final = None
        if self.mode == AutoresetMode.SAME_STEP:
            if cut_short.any():
                rows = np.flatnonzero(cut_short)
                parts = [self.layout.take_apart(infos["final_obs"][row]) for row in rows]
                final = rows, [np.stack(leaf) for leaf in zip(*parts, strict=True)]
            return Outcome(rewards, terminated, truncated, None, None, final)
        if cut_short.any():
            rows = np.flatnonzero(cut_short)
            final = rows, [array[rows] for array in out]
        ended = terminated | truncated
        if self.mode == AutoresetMode.NEXT_STEP:
            valid, self._resetting = ~self._resetting, ended
            return Outcome(rewards, terminated, truncated, valid, None, final)
        if ended.any():
            observations, _ = self.env.reset(options={"reset_mask": ended.copy()})
            self._copy(observations, out)
        return Outcome(rewards, terminated, truncated, None, None, final)

    def outcome(self, step: tuple[Any, Array, Array, Array, dict[str, Any]], rows: slice) -> Outcome:
        """A step of one of shoal's own backends as an Outcome."""
        _, rewards, terminated, truncated, infos = step
        if not truncated.any():
            return Outcome(rewards, terminated, truncated, None, None, None)
        local = np.flatnonzero(truncated & ~terminated)
        finals = self.layout.take_apart(self.env.final_obs)  # type: ignore[attr-defined]
        broken = infos["restarted"][rows] if "restarted" in infos else None
        return Outcome(
            rewards, terminated, truncated, None, broken, (local, [array[local + rows.start] for array in finals])
        )

    def _copy(self, observations: Any, out: Sequence[Array]) -> None:
        for part, array in zip(self.layout.take_apart(observations), out, strict=True):
            np.copyto(array, part)


def autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """The mode that an environment says it has."""
    mode = (env.metadata or {}).get("autoreset_mode")
    if isinstance(mode, str):
        mode = AutoresetMode(mode)
    if not isinstance(mode, AutoresetMode):
        raise ValueError(
            f'expected metadata["autoreset_mode"] of {type(env).__name__} to be a gymnasium.vector.AutoresetMode, got {mode!r}. '
            "Without it nobody can tell a final observation from a first one; set it on the environment"
        )
    return mode
