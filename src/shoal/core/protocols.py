"""What a vector environment may give training beyond Gymnasium's contract.

An environment of anybody's may have attributes of these names that mean other things: training uses them only where the
class says, by inheritance, that they mean this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import VectorEnv

from shoal.core.arrays import Array
from shoal.core.errors import EnvFault


class TrainingEnv(VectorEnv[Any, Any, Any]):
    """A vector environment with more to offer; every part has a default.

    >>> parts_of(VectorEnv()).resumable, parts_of(TrainingEnv()).features_version
    (False, None)
    """

    faults: Sequence[EnvFault] = ()  # survived by restarting, oldest first
    features_version: str | None = None  # of what the observations mean: a checkpoint of another is refused
    writes_out = False  # step(actions, out=...) writes observations there; `final_obs` has the true last ones
    checks_finite = False  # every observation and reward has been found finite
    slices: Sequence[slice] = ()  # parts that may be sent to and received from on their own; none: the whole batch
    by_readiness = False  # slices are taken up as they are ready
    _marked_state: dict[str, Array] | None = None

    def allocate(self, rows: int) -> list[Array] | None:
        """Arrays for so many rows of observations that the environments can write into themselves, or None."""
        return None

    def after_rollout(self, progress: float) -> dict[str, Any]:
        """Called after every update: learn what there is to learn, give figures for the record."""
        return {}

    def kill(self) -> None:
        """End at once what a second Ctrl-C must not leave behind."""

    # -- to resume exactly: both of these, or neither ------------------------------------------------

    def get_state(self) -> dict[str, Array]:
        """Everything that decides how the environments go on."""
        raise NotImplementedError(f"{type(self).__name__} cannot give its state")

    def set_state(self, state: dict[str, Array]) -> list[int] | None:
        """The inverse of `get_state`. Returns the environments that did not come back to where they were."""
        raise NotImplementedError(f"{type(self).__name__} cannot take up a state")

    @property
    def resumable(self) -> bool:
        """Whether it gives its state."""
        return type(self).get_state is not TrainingEnv.get_state

    def mark(self) -> None:
        """Remember this moment, for `marked_state`."""
        self._marked_state = self.get_state()

    def marked_state(self) -> dict[str, Array]:
        """The state as of the last `mark`."""
        if self._marked_state is None:
            raise RuntimeError("expected a call of mark() before marked_state()")
        return self._marked_state

    def present(self) -> tuple[list[Array], Array]:
        """Observations per leaf, and steps of the present episodes int64[N]: asked where `set_state` names some."""
        raise NotImplementedError(f"{type(self).__name__} cannot say where its environments are")


def parts_of(env: VectorEnv[Any, Any, Any]) -> TrainingEnv:
    """The environment itself where it has more to offer, or one that has nothing to offer in its place."""
    return env if isinstance(env, TrainingEnv) else TrainingEnv()
