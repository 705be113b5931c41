"""Your own code in a training: hooks that the loop calls after each of its stages, and what they see of it.

From Python `shoal.train(..., callbacks=[Curriculum()])`, from the shell `--callback module:Class`.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv
from torch import Tensor

from shoal.config import TrainConfig
from shoal.core.errors import EnvFault
from shoal.learn.learner import Learner
from shoal.learn.losses import Batch, checked
from shoal.learn.networks import PolicyAndValue
from shoal.learn.ppo import LossTerm
from shoal.learn.rollout import Rollout
from shoal.runs.best import Best
from shoal.runs.trackers import Tracker, own_places
from shoal.stopping import Stop
from shoal.vector.foreign import load_class


class Training:
    """A training under way, as callbacks see it."""

    def __init__(
        self,
        learner: Learner,
        limit: Stop,
        say: Callable[[str], None] = lambda text: None,
        folder: Path = Path(),
    ) -> None:
        self.learner: Learner = learner
        """Networks, optimiser, environments and counters."""
        self.limit: Stop = limit
        """How long it goes on."""
        self.metrics: dict[str, Any] = {}
        """The row of the epoch that has just ended; what is added under a new name is recorded and shown."""
        self.progress: float = 0.0
        """From 0 to 1: what the schedules of this update go by. `on_batch` may set another value."""
        self.best: Best | None = None
        """The best epoch by `--evaluate-every` so far; its checkpoint is kept."""
        self.say = say
        """Say something to the person who watches; it is kept in events.jsonl."""
        self.folder: Path = folder
        """The folder of the run; a file of your own may go there."""
        self._asked: str | None = None

    @property
    def rank(self) -> int:
        """Which process of `torchrun` this is; hooks are called on each, rank 0 records."""
        return self.learner.team.rank

    @property
    def envs(self) -> VectorEnv[Any, Any, Any]:
        """The environments: `envs.set_attr("wind", 3.0)`, `envs.call("name")` reach each one on every backend."""
        return self.learner.env

    @property
    def config(self) -> TrainConfig:
        """Every option of the run."""
        return self.learner.config

    @property
    def epoch(self) -> int:
        """Rollouts that are complete."""
        return self.learner.epoch

    @property
    def steps(self) -> int:
        """Environment steps made."""
        return self.learner.steps

    def stop(self, reason: str) -> None:
        """End the run after the update under way; the first reason counts."""
        self._asked = self._asked or reason

    def over(self) -> str | None:
        """Why the training ends here, or None: data that no update uses is not collected."""
        if self.epoch % self.config.ppo.update_interval:
            return None
        return self._asked or self.limit.reached(self.learner)


class Callback:
    """Something to do while a training goes on. Every hook does nothing until a subclass says otherwise.

    >>> class Patience(Callback):
    ...     def on_epoch(self, training: Training) -> None:
    ...         if training.metrics["policy/kl"] > 1:
    ...             training.stop("the policy moves too fast")
    """

    console_rows: Sequence[tuple[str, str, str]] = ()
    """Rows for the console: a label, the name of a metric, a format, e.g. `("level", "own/level", ".0f")`."""

    def on_start(self, training: Training) -> None:
        """Before the first rollout, also of a run that goes on."""

    def on_rollout(self, training: Training, rollout: Rollout) -> None:
        """A rollout is complete; what is changed in it is learned from."""

    def on_batch(self, training: Training, batch: Batch) -> None:
        """Advantages are estimated; the update comes next."""

    def loss(self, training: Training, network: PolicyAndValue, minibatch: Batch) -> Tensor | None:
        """A term to add to PPO's loss in every gradient step of the policy: one number, with a graph."""
        return None

    def terms(self, training: Training) -> list[tuple[str, LossTerm]]:
        """What `loss` adds, by name, if a subclass has one."""
        return [] if type(self).loss is Callback.loss else [(type(self).__name__, partial(_term, self, training))]

    def on_epoch(self, training: Training) -> None:
        """The epoch is over and `training.metrics` is about to be recorded."""

    def on_end(self, training: Training) -> None:
        """The run has ended, finished or interrupted, and its last checkpoint is written. Not after an error."""

    def state(self) -> dict[str, Any]:
        """What this callback must remember if the run is to go on from a checkpoint: plain data, as JSON has it."""
        return {}

    def set_state(self, training: Training, state: dict[str, Any]) -> None:
        """Take up what `state` gave, before the environments go on: put back what was set of them."""


class CallbackFault(RuntimeError):
    """A callback's own code raised; the original exception is its cause."""


class Callbacks(Callback):
    """Those of one run, called in order. An error names the callback, the hook and the line."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        for one in callbacks:
            if not isinstance(one, Callback):
                hint = ": give an object of the class, not the class" if isinstance(one, type) else ""
                raise ValueError(
                    f"expected callbacks= as objects of classes derived from shoal.Callback, got {one!r}{hint}"
                )
        self.each = tuple(callbacks)
        self.console_rows = [row for one in self.each for row in one.console_rows]

    def on_start(self, training: Training) -> None:
        """Of each."""
        for one in self.each:
            with _named(one, "on_start", training.epoch):
                one.on_start(training)

    def on_rollout(self, training: Training, rollout: Rollout) -> None:
        """Of each."""
        for one in self.each:
            with _named(one, "on_rollout", training.epoch):
                one.on_rollout(training, rollout)

    def on_batch(self, training: Training, batch: Batch) -> None:
        """Of each."""
        for one in self.each:
            with _named(one, "on_batch", training.epoch):
                one.on_batch(training, batch)

    def on_epoch(self, training: Training) -> None:
        """Of each."""
        for one in self.each:
            with _named(one, "on_epoch", training.epoch):
                before = dict(training.metrics)
                one.on_epoch(training)
                _check_numbers(training.metrics, before)

    def on_end(self, training: Training) -> None:
        """Of each."""
        for one in self.each:
            with _named(one, "on_end", training.epoch):
                one.on_end(training)

    def terms(self, training: Training) -> list[tuple[str, LossTerm]]:
        """Of each."""
        return [term for one in self.each for term in one.terms(training)]

    def states(self) -> list[tuple[str, dict[str, Any]]]:
        """What they must remember, by class, in order; those with nothing to remember are left out."""
        found = []
        for one in self.each:
            with _named(one, "state", None):
                state = json.loads(json.dumps(one.state(), allow_nan=False))
            found += [(type(one).__name__, state)] if state else []
        return found

    def set_states(self, training: Training, states: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
        """Give each what the one of its class and place had saved. Returns the classes for which there is none now."""
        left = list(states)
        for one in self.each:
            mine = next((entry for entry in left if entry[0] == type(one).__name__), None)
            if mine is not None:
                left.remove(mine)
                with _named(one, "set_state", None):
                    one.set_state(training, dict(mine[1]))
        return [name for name, _ in left]


def _term(callback: Callback, training: Training, network: PolicyAndValue, minibatch: Batch) -> Tensor | None:
    with _named(callback, "loss", training.epoch):
        return checked(callback.loss(training, network, minibatch))


def load_callback(place: str) -> Callback:
    """The callback at `module:Class`, made without arguments."""
    found = load_class(place, "--callback", "my_callbacks:Curriculum", Callback)
    try:
        return found()
    except TypeError as error:
        raise ValueError(
            f"expected --callback {place} to need no arguments: {error}. Give them defaults, or pass an object to "
            "shoal.train(callbacks=[...])"
        ) from None


def own_trackers(names: str) -> dict[str, type[Tracker]]:
    """The classes at each `module:Class` of `--track`."""
    return {place: load_class(place, "--track", "my_trackers:Csv", Tracker) for place in own_places(names)}


def _check_numbers(metrics: dict[str, Any], before: dict[str, Any]) -> None:
    """What was added must be numbers, which every tracker takes; NumPy's become Python's."""
    for name, value in metrics.items():
        if name not in before and value is not None:
            if not isinstance(value, Real):
                raise TypeError(f"expected training.metrics[{name!r}] as a number, got {type(value).__name__}")
            metrics[name] = float(value)


@contextmanager
def _named(callback: Callback, hook: str, epoch: int | None) -> Iterator[None]:
    try:
        yield
    except EnvFault:  # of an environment that the callback called: it says itself where
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        when = "" if epoch is None else f" (epoch {epoch})"
        raise CallbackFault(
            f"the callback {type(callback).__name__} failed in {hook}{when}: {type(error).__name__}: {error} "
            f"[{Path(frame.filename).name}, line {frame.lineno}]"
        ) from error
