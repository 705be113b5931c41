"""Training under an order: how far an update may go, which policy is kept, and what is written down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from shoal.cage2.workflows.aligned import OrderedVectorEnv, compliance_by_env
from shoal.cage2.workflows.conduct import Conduct
from shoal.cage2.workflows.policy import REWARD_SCALE, Exam
from shoal.callbacks import Callback, Training
from shoal.core.arrays import Array
from shoal.learn.learner import Learner
from shoal.learn.losses import Batch
from shoal.learn.policy import Agent
from shoal.learn.rollout import Rollout
from shoal.runs import jsonl

WARM_UP = 5  # updates
MOST_KL = 0.02  # nats that the policy may move in an update
MOST_HALVINGS = 10


class Gently(Callback):
    """Rewards at the scale that the networks learn well, rates that rise first, and `warm` updates held back."""

    def __init__(self, updates: int, *, warm: bool) -> None:
        self.updates, self.warm = updates, warm
        self._before: TrustRegion | None = None

    def on_rollout(self, training: Training, rollout: Rollout) -> None:
        """Small rewards."""
        rollout.rewards *= REWARD_SCALE

    def on_batch(self, training: Training, batch: Batch) -> None:
        """The rate of this update, and where its policy stands."""
        training.progress = progress_of(training.epoch - 1, self.updates)
        self._before = TrustRegion(training.learner.agent, batch) if self.warm else None

    def on_epoch(self, training: Training) -> None:
        """Not further than allowed."""
        if self._before is not None:
            training.metrics |= self._before.keep()


class Rows(Callback):
    """A row of metrics for each update, to disk and to the person who watches."""

    def __init__(self, file: Path, say: Callable[[dict[str, Any]], None]) -> None:
        self.file, self.say = file, say

    def on_epoch(self, training: Training) -> None:
        """After what the others add."""
        row = {"update": training.epoch, **training.metrics}
        jsonl.append(self.file, row)
        self.say(row)


def progress_of(update: int, updates: int) -> float:
    """What drives the schedules: the rate of learning rises over the first updates, then falls in a line to 0.

    Adam's first steps have the full length whatever the gradient; from a good start they would mostly do harm.

    >>> [round(1 - progress_of(update, 50), 2) for update in (0, 2, 4, 25, 49)]
    [0.2, 0.58, 0.92, 0.5, 0.02]
    """
    return 1.0 - min(1.0, (update + 1) / WARM_UP) * (1.0 - update / updates)


class TrustRegion:
    """Undo the part of an update that went too far: halve its step until the policy has moved no further than allowed.

    PPO's own KL limit looks before each gradient step; one step of a nearly certain policy can already overshoot.
    """

    def __init__(self, agent: Agent, batch: Batch) -> None:
        self.agent, self.batch = agent, batch
        self.weights = [parameter.detach().clone() for parameter in agent.network.parameters()]
        self.log_probs = self._log_probs()

    @torch.no_grad()
    def keep(self) -> dict[str, float]:
        """Step back if need be; the KL of what remains, and how often the step was halved."""
        halved = 0
        while not (kl := self._kl()) <= MOST_KL and halved < MOST_HALVINGS:
            halved += 1
            for parameter, old in zip(self.agent.network.parameters(), self.weights, strict=True):
                parameter.lerp_(old, 0.5)
        return {"policy/update_kl": kl, "guard/halved_updates": float(halved)}

    def _kl(self) -> float:
        new = self._log_probs()
        return float((self.log_probs.exp() * (self.log_probs - new)).sum(-1).mean())

    @torch.no_grad()
    def _log_probs(self) -> torch.Tensor:
        params = self.agent.network.policy(self.batch.features)
        if self.batch.masks is not None:
            params = self.agent.kind.mask(params, self.batch.masks)
        return torch.log_softmax(params, -1)


class Trial(Callback):
    """Which of the checked policies to keep: obedient ones first, then by reward.

    Against the start, if there was one, a policy is held by how much better it played the same episodes, less one
    standard error: noise must not displace a good start.
    """

    def __init__(
        self, exam: Exam, learner: Learner, threshold: float, due: Callable[[int], bool], *, early: bool
    ) -> None:
        self.exam, self.learner, self.threshold, self.due, self.early = exam, learner, threshold, due, early
        self.chosen = 0
        self._start: Array | None = None  # its returns
        self._best: tuple[bool, float] | None = None
        self._weights: dict[str, torch.Tensor] = {}
        self._may_stop = False  # the last check was obedient and, on the same episodes, no worse than the start

    def on_epoch(self, training: Training) -> None:
        """A check, where one is due; the end, where no more is to be had."""
        envs, update = training.envs, training.epoch
        assert isinstance(envs, OrderedVectorEnv)
        training.metrics["workflow/compliance_by_environment"] = compliance_by_env(envs.last_episodes)
        if self.due(update):
            training.metrics |= self.check(update)
            if self.early and self._may_stop:
                training.stop("compliance")

    def check(self, update: int) -> dict[str, Any]:
        """Play the validation episodes; keep the weights if they are the best so far. Update 0 is the start."""
        returns, tallies = self.exam.take(self.learner.agent)
        compliance = Conduct.of(tallies).compliance
        obedient = compliance.low is not None and compliance.low >= self.threshold
        if update == 0:
            self._start = returns
        gain, reward = 0.0, float(returns.mean())
        if self._start is not None and update > 0:
            better = returns - self._start
            gain = float(better.mean())
            reward = gain - float(better.std()) / len(better) ** 0.5
        elif self._start is not None:
            reward = 0.0
        value = obedient, reward if obedient else (compliance.low if compliance.low is not None else -1.0)
        if self._best is None or value > self._best:
            self._best, self.chosen = value, update
            self._weights = {name: tensor.clone() for name, tensor in self.learner.agent.network.state_dict().items()}
        self._may_stop = obedient and gain >= 0.0
        return {
            "validation/return": float(returns.mean()),
            "validation/compliance": compliance.mean,
            "validation/compliance_low": compliance.low,
        }

    def restore(self) -> None:
        """Back to the best weights that were checked."""
        self.learner.agent.network.load_state_dict(self._weights)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Small networks are faster on one thread, and only so the same to the bit on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
