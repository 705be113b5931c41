"""What all of shoal's vector environments share beyond Gymnasium's `VectorEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from shoal.core.arrays import Array, Layout
from shoal.core.protocols import TrainingEnv


class OwnVectorEnv(TrainingEnv):
    """A backend of shoal's: its `step` writes into `out`, and it has the dense `final_obs`."""

    final_obs: Any  # final observations; row i is valid in the step that ended i's episode

    @property
    def next_step(self) -> bool:
        """Whether an episode that has ended begins anew in the step after (NEXT_STEP) instead of at once."""
        return bool(self.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP)

    @property
    def over(self) -> Array:
        """bool[N]: the episode has ended, and the next step only resets. All False in SAME_STEP."""
        raise NotImplementedError

    @property
    def restarted(self) -> Array | None:
        """bool[N]: the environment was rebuilt in the last step, so its episode is broken; None where none can be."""
        return None

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        raise NotImplementedError

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """As in Gymnasium, the same as `call(name)`."""
        return self.call(name)

    @property
    def np_random_seed(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The seed of each environment's own generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Each environment's own generator; a copy of it where the environment lives in another process."""
        return self.get_attr("np_random")


def parse_autoreset(mode: str | AutoresetMode) -> AutoresetMode:
    """The mode meant by "same_step" or "next_step"; Gymnasium's own names and values will do too."""
    known = {"same_step": AutoresetMode.SAME_STEP, "next_step": AutoresetMode.NEXT_STEP}
    found = known.get(mode.lower()) if isinstance(mode, str) and not isinstance(mode, AutoresetMode) else mode
    if found is None and mode in {one.value for one in AutoresetMode}:
        found = AutoresetMode(mode)
    if found not in known.values():
        raise ValueError(
            f"expected autoreset_mode as same_step or next_step, got {mode!r}. (In DISABLED nobody begins the next "
            'episode: there reset(options={"reset_mask": ended}) does, which works in both modes here)'
        )
    return AutoresetMode(found)


def check_mask(mask: Any, num_envs: int) -> Array:
    """`options["reset_mask"]`, which every batch takes alike: bool[N] with at least one True."""
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (num_envs,):
        got = f"{mask.dtype}{list(mask.shape)}" if isinstance(mask, np.ndarray) else repr(mask)
        raise ValueError(f'expected options["reset_mask"] as an array bool[{num_envs}], got {got}')
    if not mask.any():
        raise ValueError('expected options["reset_mask"] with at least one True, got none')
    return mask


def one_each(values: Any, num_envs: int) -> list[Any]:
    """Values for `set_attr`, as in Gymnasium: a list or tuple holds one for each environment, else all get the same."""
    if not isinstance(values, list | tuple):
        return [values] * num_envs
    if len(values) != num_envs:
        raise ValueError(f"expected one value for each of {num_envs} environments, got {len(values)}")
    return list(values)


def cast_actions(given: Array, dtype: np.dtype[Any]) -> Array:
    """Actions in the type of the action space: integers of any width that fit it, else what loses nothing in kind."""
    if given.dtype == dtype:
        return given
    if given.dtype.kind in "iu" and dtype.kind in "iu":
        cast = given.astype(dtype)
        if not np.array_equal(cast, given):
            raise ValueError(f"expected actions that fit {dtype}, got some from {given.min()} to {given.max()}")
        return cast
    if not np.can_cast(given.dtype, dtype, "same_kind"):
        raise ValueError(f"expected actions of dtype {dtype}, got {given.dtype}; cast them")
    return given.astype(dtype)


def batch_actions(actions: Any, layout: Layout, arrays: Sequence[Array], count: int) -> list[Array]:
    """Actions of `count` environments as leaves, in the types of `arrays` (per leaf [N, *shape])."""
    checked = []
    for given, array in zip(layout.take_apart(actions), arrays, strict=True):
        shape = (count, *array.shape[1:])
        if type(given) is np.ndarray and given.dtype is array.dtype and given.shape == shape:
            checked.append(given)
            continue
        given = np.asarray(given)
        if given.shape != shape:
            raise ValueError(
                f"expected actions of shape {shape} for {count} environments of {layout.space}, got shape {given.shape}"
            )
        checked.append(cast_actions(given, array.dtype))
    return checked
