"""Learning from the values of all actions, where an environment gives them (`TrainingEnv.credit`).

The loss is PPO's clipped surrogate summed over every action instead of taken at the one that was sampled: no noise of
sampled actions or of later rewards, and no critic. With one action's advantage known it would be the usual loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.core.arrays import Array
from shoal.core.errors import Unsupported
from shoal.core.protocols import Credit
from shoal.learn.distributions import ActionKind, Categorical, log_softmax
from shoal.learn.team import ALONE, Team

MAX_LOG_RATIO = 20.0  # as in losses.py


@dataclass
class AllActions:
    """What is known of every action in B rows."""

    log_probs: Tensor  # float32[B, A], of the behaviour policy: masks and exploration included
    advantages: Tensor  # float32[B, A]; 0 where the behaviour policy cannot act so

    def to(self, device: str) -> AllActions:
        return AllActions(self.log_probs.to(device), self.advantages.to(device))

    def pick(self, rows: Tensor) -> AllActions:
        return AllActions(self.log_probs[rows], self.advantages[rows])

    def scaled(self, team: Team = ALONE) -> tuple[AllActions, bool]:
        """Advantages in units of their spread, over all ranks, under the behaviour policy's own support; as they are
        (and False) where there is none. They are not centred: their mean under the policy that acted is 0 in every
        row."""
        squares, possible = self.advantages.square().sum(), (self.log_probs.exp() > 0).sum()
        if team.size > 1:
            squares, possible = torch.tensor(team.total([float(squares), float(possible)]))
        spread = math.sqrt(float(squares / possible.clamp(min=1)))
        if not spread > 1e-8:
            return self, False
        return AllActions(self.log_probs, self.advantages / spread), True


def surrogate(params: Tensor, known: AllActions, clip: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """- mean over rows of sum_a pi_old(a) min(r_a A_a, clip(r_a) A_a), for logits `params` [B, A], mask applied. Also
    the mean entropy, KL(old || new), exact, and the share of the old probability whose ratio left the clip range."""
    log_p = log_softmax(params)
    log_ratio = (log_p - known.log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    old, ratio = known.log_probs.exp(), log_ratio.exp()
    plain, clipped = ratio * known.advantages, ratio.clamp(1 - clip, 1 + clip) * known.advantages
    loss = -(old * torch.minimum(plain, clipped)).sum(-1).mean()
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    with torch.no_grad():
        return loss, entropy, -(old * log_ratio).sum(-1).mean(), (old * ((ratio - 1).abs() > clip)).sum(-1).mean()


def advantages_of(values: Tensor, log_probs: Tensor) -> Tensor:
    """A = Q - sum_a pi_old(a) Q(a) in every row [B, A]; 0 where pi_old is 0."""
    p = log_probs.exp()
    values = torch.where(p > 0, values, 0.0)
    return torch.where(p > 0, values - (p * values).sum(-1, keepdim=True), 0.0)


def credited(
    credit: Credit | None, params: Tensor, valid: Array, kind: ActionKind, team: Team = ALONE
) -> tuple[Array, AllActions] | None:
    """Which rows of a rollout are learned from (bool[T, N]), and what is known of them; None: learn from the rewards.

    `params` [T, N, P] are of the policy that acted. A row counts if every action that the policy could take has a
    value. A rollout without any such row, on all ranks, is learned from as if there were no credit.
    """
    if credit is None:
        return None
    shape = tuple(params.shape)
    if not isinstance(kind, Categorical):
        raise Unsupported("credit gives a value for each of a Discrete space's actions; this policy acts in another")
    values = np.asarray(credit.values, np.float32)
    if values.shape != shape:
        raise ValueError(
            f"expected credit values as [steps, environments, actions] {list(shape)}, got {list(values.shape)}"
        )
    if np.isinf(values).any():
        row, env, action = (int(i) for i in np.argwhere(np.isinf(values))[0])
        raise ValueError(
            f"expected finite credit or NaN where none was computed, got {values[row, env, action]} for action "
            f"{action} of environment {env} in step {row} of the rollout"
        )
    log_probs = log_softmax(params.flatten(0, 1))
    possible = (log_probs.exp() > 0).numpy().reshape(shape)
    known = valid & (np.isfinite(values) | ~possible).all(-1)
    if not team.total([known.sum()])[0]:
        return None
    rows = torch.from_numpy(np.flatnonzero(known))
    advantages = advantages_of(torch.from_numpy(values).flatten(0, 1)[rows], log_probs[rows])
    return known, AllActions(log_probs[rows], advantages)


def figures(credit: Credit | None, every: AllActions | None) -> dict[str, float]:
    """For the record: the environment's own figures, how many rows were learned from, and the spread of what their
    actions are worth."""
    if credit is None:
        return {}
    if every is None:
        return {**credit.metrics, "credit/rows": 0}
    variance = (every.log_probs.exp() * every.advantages.square()).sum(-1).mean()
    return {**credit.metrics, "credit/rows": len(every.log_probs), "credit/spread": float(variance.sqrt())}
