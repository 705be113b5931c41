"""What a vector environment may give training beyond Gymnasium's contract.

An environment of anybody's may have attributes of these names that mean other things: training uses them only where the
class says, by inheritance, that they mean this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gymnasium import Env
from gymnasium.vector import VectorEnv

from shoal.core.arrays import Array
from shoal.core.errors import EnvFault
from shoal.core.seeds import Stream


class Acting(Protocol):
    """The policy being trained, as it is now; sampled actions come from a generator that begins anew with each call of
    `credit` or `examine`."""

    def __call__(self, observation: Any, *, deterministic: bool = True, batched: bool = False) -> Any:
        """The action for an observation, or actions for a batch."""


@dataclass(frozen=True)
class Credit:
    """What each action would have been worth, as only the environment can know: it may ask what training knows and
    the policy must not, such as what came later in the episode (docs/ppo.md).

    `values` may leave out rows (NaN): those are not learned from. The zero of a row is free, for an advantage is taken
    against the mean over the policy. `metrics` are figures for the record; `credit/claimed`, what the credits say that
    the policy did for an episode, and `credit/real`, what it did, are watched for a growing gap.
    """

    values: Array  # float[T, N, A], in units of the return
    metrics: Mapping[str, float] = field(default_factory=dict)


class Ranks:
    """The processes that train one policy together (torchrun), as an environment sees them; here: one alone."""

    size = 1

    def gather(self, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """The arrays of every rank, in the order of ranks. All must ask, and at the same moment of the training."""
        return [dict(arrays)]


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
    ranks: Ranks = Ranks()  # who else trains this policy, on environments of its own
    first_env = 0  # the number of the first environment here among those of all ranks: seeds follow it
    _marked_state: dict[str, Array] | None = None

    def allocate(self, rows: int) -> list[Array] | None:
        """Arrays for so many rows of observations that the environments can write into themselves, or None."""
        return None

    def after_rollout(self, progress: float) -> dict[str, Any]:
        """Called after every update: learn what there is to learn, give figures for the record."""
        return {}

    @property
    def has_figures(self) -> bool:
        """Whether `after_rollout` gives figures of its own: then what its infos say is recorded only if named."""
        return type(self).after_rollout is not TrainingEnv.after_rollout

    def credit(self, rollout: Any, policy: Acting) -> Credit | None:
        """Called when a rollout is complete, with it (`learn.rollout.Rollout`) and the policy that acted: action values
        where the environment knows them better than the rewards tell. None: learn from the rewards."""
        return None

    def examine(self, policy: Acting, epoch: int) -> dict[str, Any]:
        """Called before the first epoch and after every update, with the policy as it is now: figures of how well that
        does where it is not trained."""
        return {}

    def follow(self, training: TrainingEnv) -> None:
        """Called on an environment of evaluation before it plays: take over what the environment of the training has
        learnt beside the policy."""

    @property
    def pids(self) -> list[int]:
        """Worker processes, whose time counts as the environments'."""
        return []

    def take_episodes(self) -> Array | None:
        """Of an environment that judges its episodes: those that ended since the last call, as records with the fields
        `env` and `tally`."""
        return None

    def bytes_needed(self, num_envs: int) -> int:
        """Memory that so many of these environments take beside the rollout while they step, where that is much."""
        return 0

    @property
    def messages(self) -> Sequence[str]:
        """Lines for the person who watches, oldest first; each is shown once."""
        return ()

    @property
    def alarms(self) -> Mapping[str, str]:
        """What a person should be told of this training, by name; each is told once."""
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


class Batched(ABC):
    """What makes all its environments at once, because they step in one call of their own: `make_vec` takes an object
    of a subclass."""

    @abstractmethod
    def make_vector(
        self, num_envs: int, threads: int | Literal["auto"] = 1, stream: Stream = Stream.TRAIN
    ) -> VectorEnv[Any, Any, Any]:
        """N environments; `stream` tells training from evaluation."""

    def make_single(self) -> Env[Any, Any]:
        """One environment, for `gymnasium.make`."""
        raise NotImplementedError(f"{type(self).__name__} makes no single environment")


def parts_of(env: VectorEnv[Any, Any, Any]) -> TrainingEnv:
    """The environment itself where it has more to offer, or one that has nothing to offer in its place."""
    return env if isinstance(env, TrainingEnv) else TrainingEnv()
