"""The loss of proximal policy optimisation (Schulman et al. 2017), read once from top to bottom: `ppo_loss`.

Autograd differentiates it, for any network. `backprop.py` gives the built-in network the same loss faster. A term of
one's own is added to either by `shoal.Callback.loss`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from shoal.learn.credit import AllActions, surrogate
from shoal.learn.distributions import ActionKind
from shoal.learn.networks import PolicyAndValue
from shoal.learn.pictures import seen_once

MAX_LOG_RATIO = 20.0  # exp(20) is finite in float32 and far outside any clip range


@dataclass
class Batch:
    """What an update learns from: B valid transitions on the learner's device."""

    features: Tensor  # float32[B, F], with pictures uint8[B, bytes]; of a rollout's `PictureRows`, indexed alike
    masks: Tensor | None  # bool[B, n]
    actions: Tensor  # [B] or [B, k]
    log_probs: Tensor  # float32[B], of the behaviour policy, mask and exploration included
    advantages: Tensor  # float32[B]
    targets: Tensor  # float32[B], value targets
    values: Tensor  # float32[B], value estimates when the data was collected
    every: AllActions | None = None  # where the environment gave credit: the policy learns from this alone
    environments: Tensor | None = None  # int64[B], on the CPU: whose each row is
    place: Tensor | None = None  # int64, by row of all ranks: which row here it is, or -1; None: all rows are here
    share: float = 1.0  # of a minibatch: how much of it is here

    def __len__(self) -> int:
        return len(self.features)

    @property
    def total(self) -> int:
        """Rows of all ranks."""
        return len(self) if self.place is None else len(self.place)

    def share_of(self, rows: Tensor) -> Batch:
        """A minibatch, by its rows among those of all ranks: this rank's share of it."""
        device = self.features.device
        if self.place is None:
            return self.pick(rows.to(device))
        here = self.place[rows]
        here = here[here >= 0]
        part = self.pick(here.to(device))
        part.share = len(here) / len(rows)
        return part

    def pick(self, rows: Tensor) -> Batch:
        """The transitions of a minibatch, int64 rows; not whose they are."""
        return Batch(
            self.features.index_select(0, rows),
            None if self.masks is None else self.masks.index_select(0, rows),
            self.actions.index_select(0, rows),
            self.log_probs.index_select(0, rows),
            self.advantages.index_select(0, rows),
            self.targets.index_select(0, rows),
            self.values.index_select(0, rows),
            None if self.every is None else self.every.pick(rows),
        )


@dataclass(frozen=True)
class Recipe:
    """What the loss of a gradient step is made of."""

    clip: float
    value_clip: float | None = None
    entropy_coef: float = 0.0
    value_coef: float = 1.0
    policy: bool = True
    value: bool = True


class Loss(NamedTuple):
    """What a gradient step goes down, and figures for the record, which have no graph."""

    total: Tensor
    told: dict[str, Tensor]


def ppo_loss(network: PolicyAndValue, kind: ActionKind, batch: Batch, recipe: Recipe) -> Loss:
    """L = L_policy + value_coef L_value - entropy_coef entropy, of a minibatch."""
    network, features = seen_once(network, batch.features)
    total, told = torch.zeros((), device=features.device), dict[str, Tensor]()
    if recipe.policy:
        params = network.policy(features)
        if batch.masks is not None:
            params = kind.mask(params, batch.masks)
        if batch.every is not None:
            loss, entropy, kl, clipped = surrogate(params, batch.every, recipe.clip)
        else:
            log_probs, entropy = kind.log_prob(params, batch.actions), kind.entropy(params).mean()
            loss, kl, clipped = policy_loss(log_probs, batch.log_probs, batch.advantages, recipe.clip)
        total = total + loss
        if recipe.entropy_coef > 0:  # else an entropy that is no number (logits of -inf) is none of its business
            total = total - recipe.entropy_coef * entropy
        told = {"loss/policy": loss, "policy/kl": kl, "policy/clip_share": clipped, "policy/entropy": entropy}
    if recipe.value:
        error = value_loss(network.value(features), batch.targets, batch.values, recipe.value_clip)
        total = total + recipe.value_coef * error
        told["loss/value"] = error
    return Loss(total, {name: figure.detach() for name, figure in told.items()})


def policy_loss(log_probs: Tensor, old: Tensor, advantages: Tensor, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """Clipped surrogate loss, an estimate of KL(old || new) (Schulman 2020, k3), and the share clipped."""
    log_ratio = (log_probs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    loss = -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()
    with torch.no_grad():
        return loss, (ratio - 1 - log_ratio).mean(), ((ratio - 1).abs() > clip).float().mean()


def value_loss(values: Tensor, targets: Tensor, old: Tensor, clip: float | None) -> Tensor:
    """Half the mean squared error; with `clip`, of the worse of the plain and the clipped estimate."""
    error = values - targets
    if clip is not None:
        near = old + (values - old).clamp(-clip, clip) - targets
        error = torch.where(error.abs() < near.abs(), near, error)
    return 0.5 * error.square().mean()


def checked(term: Tensor | None) -> Tensor | None:
    """A term that somebody adds to the loss: one number, or nothing."""
    if term is not None and (not isinstance(term, Tensor) or term.shape != ()):
        got = f"shape {list(term.shape)}" if isinstance(term, Tensor) else type(term).__name__
        raise ValueError(f"expected a torch tensor of one number, such as a .mean(), or None, got {got}")
    return term
