"""Training under an order: the loop of a workflow, how far an update may go, and which policy is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from shoal.cage2.workflows.aligned import OrderedVectorEnv, compliance_by_env
from shoal.cage2.workflows.conduct import Conduct
from shoal.cage2.workflows.policy import REWARD_SCALE, Exam
from shoal.core.arrays import Array
from shoal.learn.learner import Learner
from shoal.learn.policy import Agent
from shoal.learn.ppo import Batch

WARM_UP = 5  # updates
MOST_KL = 0.02  # nats that the policy may move in an update
MOST_HALVINGS = 10


def train_rows(learner: Learner, envs: OrderedVectorEnv, updates: int, *, warm: bool) -> Iterator[dict[str, Any]]:
    """Collect, estimate, update; yields a row of metrics after each update. `warm` holds back updates that go far."""
    learner.start()
    for update in range(updates):
        rollout = learner.collect()
        rollout.rewards *= REWARD_SCALE
        batch = learner.estimate(rollout)
        assert batch is not None  # update_interval is 1
        before = TrustRegion(learner.agent, batch) if warm else None
        metrics = learner.update(batch, progress_of(update, updates))  # calls envs.after_rollout
        if before is not None:
            metrics |= before.keep()
        yield {
            "update": update + 1,
            **learner.progress_row(),
            "episodes": learner.tracker.completed,
            **metrics,
            "workflow/compliance_by_environment": compliance_by_env(envs.last_episodes),
        }


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
        params = self.agent.network.policy(self.batch.features)  # type: ignore[operator]
        if self.batch.masks is not None:
            params = self.agent.kind.mask(params, self.batch.masks)
        return torch.log_softmax(params, -1)


class Trial:
    """Which of the checked policies to keep: obedient ones first, then by reward.

    Against the start, if there was one, a policy is held by how much better it played the same episodes, less one
    standard error: noise must not displace a good start.
    """

    def __init__(self, exam: Exam, learner: Learner, threshold: float) -> None:
        self.exam, self.learner, self.threshold = exam, learner, threshold
        self.chosen = 0
        self._start: Array | None = None  # its returns
        self._best: tuple[bool, float] | None = None
        self._weights: dict[str, torch.Tensor] = {}
        self._may_stop = False

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

    def may_stop(self) -> bool:
        """The last check was obedient and, on the same episodes, no worse than the start."""
        return self._may_stop

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
