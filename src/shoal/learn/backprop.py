"""`losses.ppo_loss` of the built-in network, with its gradients worked out by hand beside it: policy first and value
after it, activations and their gradients in place, no graph, what one half needs out of the cache before the other
begins. That is a quarter off the time of a small update.

The result is used like any other loss: `loss.backward()` sets the gradients, and what somebody adds to it is
differentiated by autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shoal.learn import losses
from shoal.learn.credit import surrogate
from shoal.learn.distributions import ActionKind, Categorical, log_softmax
from shoal.learn.losses import MAX_LOG_RATIO, Batch, Recipe
from shoal.learn.networks import ActorCritic, PolicyAndValue, Trunk

_NARROW = 32  # columns under which a product of matrices is faster the other way round

Slopes = Callable[[Tensor, float], Tensor]  # (slope at each log-probability [B], at every entropy) -> at params [B, P]


class Loss(NamedTuple):
    """As that of `losses.py`, with gradients."""

    total: Known
    told: dict[str, Tensor]


def loss_of(network: PolicyAndValue) -> Callable[[Any, ActionKind, Batch, Recipe], Loss | losses.Loss]:
    """The way to the loss of this network, until it is changed. Looking costs as much as a layer: an update looks
    once."""
    return loss_by_hand if type(network) is ActorCritic and network.is_plain() else losses.ppo_loss


@torch.no_grad()
def loss_by_hand(network: ActorCritic, kind: ActionKind, batch: Batch, recipe: Recipe) -> Loss:
    """`ppo_loss` of the built-in network, features `[B, F]`."""
    passes, told = _Passes(network, batch.features), dict[str, Tensor]()
    total = torch.zeros((), device=batch.features.device)
    if recipe.policy:
        params = passes.policy()
        if batch.masks is not None:
            params = kind.mask(params, batch.masks)
        if batch.every is not None:
            loss, entropy, kl, clipped, slope = _surrogate_and_slope(params, batch, recipe)
        else:
            log_probs, entropies, slopes = differentiated(kind, params, batch.actions)
            loss, kl, clipped, slope = policy_loss_and_slope(log_probs, batch.log_probs, batch.advantages, recipe.clip)
            slope, entropy = slopes(slope, -recipe.entropy_coef / len(batch)), entropies.mean()
        passes.policy_slope(slope)
        total = total + loss
        if recipe.entropy_coef > 0:
            total = total - recipe.entropy_coef * entropy
        told = {"loss/policy": loss, "policy/kl": kl, "policy/clip_share": clipped, "policy/entropy": entropy}
    if recipe.value:
        error, slope = value_loss_and_slope(passes.value(), batch.targets, batch.values, recipe.value_clip)
        passes.value_slope(recipe.value_coef * slope)
        total = total + recipe.value_coef * error
        told["loss/value"] = error
    return Loss(Known(total, passes.gradients), told)


def policy_loss_and_slope(
    log_probs: Tensor, old: Tensor, advantages: Tensor, clip: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`policy_loss`, and its slope at each log-probability."""
    log_ratio = (log_probs - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = log_ratio.exp()
    plain, clipped = ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages
    loss = -torch.minimum(plain, clipped).mean()
    pushes = (plain <= clipped) & (log_ratio.abs() < MAX_LOG_RATIO)  # where clipped, no gradient
    slope = torch.where(pushes, plain, 0.0) / -len(plain)  # the derivative of a ratio by its logarithm is the ratio
    return loss, (ratio - 1 - log_ratio).mean(), ((ratio - 1).abs() > clip).float().mean(), slope


def value_loss_and_slope(values: Tensor, targets: Tensor, old: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """`value_loss`, and its slope at each value."""
    slope = error = values - targets
    if clip is not None:
        moved = values - old
        near = old + moved.clamp(-clip, clip) - targets
        worse = error.abs() < near.abs()
        slope = torch.where(worse, near * (moved.abs() < clip), error)
        error = torch.where(worse, near, error)
    return 0.5 * error.square().mean(), slope / len(values)


def _surrogate_and_slope(params: Tensor, batch: Batch, recipe: Recipe) -> tuple[Tensor, ...]:
    assert batch.every is not None
    with torch.enable_grad():
        leaf = params.detach().requires_grad_()
        loss, entropy, kl, clipped = surrogate(leaf, batch.every, recipe.clip)
        (slope,) = torch.autograd.grad(loss - recipe.entropy_coef * entropy if recipe.entropy_coef > 0 else loss, leaf)
    return loss.detach(), entropy.detach(), kl, clipped, slope


def differentiated(kind: ActionKind, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Slopes]:
    """Log-probabilities, entropies, and the function that takes slopes from them back to the parameters."""
    if type(kind) is not Categorical:
        return by_autograd(kind, params, actions)
    log_p, chosen = log_softmax(params), actions.unsqueeze(-1)
    p = log_p.exp()
    entropy = -(p * log_p).sum(-1)

    def slopes(of_log_prob: Tensor, of_entropy: float) -> Tensor:
        # d log p_a / d logit_i = [i = a] - p_i,   d entropy / d logit_i = -p_i (log p_i + entropy)
        weight = of_log_prob.unsqueeze(-1).to(p.dtype)
        if of_entropy:
            slope = p * ((log_p + entropy.unsqueeze(-1)).mul_(-of_entropy).sub_(weight))
        else:
            slope = p * -weight
        return slope.scatter_add_(-1, chosen, weight)

    return log_p.gather(-1, chosen).squeeze(-1), entropy, slopes


def by_autograd(kind: ActionKind, params: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Slopes]:
    """`differentiated` for any kind, by its `log_prob` and `entropy`."""
    with torch.enable_grad():
        leaf = params.detach().requires_grad_()
        log_probs, entropies = kind.log_prob(leaf, actions), kind.entropy(leaf)

    def slopes(of_log_prob: Tensor, of_entropy: float) -> Tensor:
        (slope,) = torch.autograd.grad(
            (log_probs, entropies), leaf, (of_log_prob, torch.full_like(entropies, of_entropy))
        )
        return slope

    return log_probs.detach(), entropies.detach(), slopes


class _Passes:
    """Forward and backward through the built-in network, given the slopes of the loss at its outputs."""

    def __init__(self, network: ActorCritic, features: Tensor) -> None:
        self.network, self.features = network, features
        self.gradients: dict[Tensor, Tensor] = {}  # by weight
        self._outputs: dict[Trunk, list[Tensor]] = {}

    def policy(self) -> Tensor:
        """Parameters of the action distribution, `[B, P]`."""
        return self.network.parameters_from(self._through(self.network.trunk)[-1])

    def policy_slope(self, slope: Tensor) -> None:
        """The slope of the loss at each of them."""
        if self.network.log_std is not None:
            slope, log_std_slope = slope.chunk(2, -1)
            self._add(self.network.log_std, log_std_slope.sum(0))
        self._back(self.network.trunk, self.network.policy_head, slope)

    def value(self) -> Tensor:
        """Value estimates `[B]`."""
        values: Tensor = self.network.value_head(self._through(self.network.value_trunk)[-1])
        return values.squeeze(-1)

    def value_slope(self, slope: Tensor) -> None:
        """The slope of the loss at each of them."""
        self._back(self.network.value_trunk, self.network.value_head, slope.unsqueeze(-1))

    def _through(self, trunk: Trunk) -> list[Tensor]:
        if trunk not in self._outputs:
            self._outputs[trunk] = trunk.outputs(self.features)
        return self._outputs[trunk]

    def _back(self, trunk: Trunk, head: nn.Linear, slope: Tensor) -> None:
        """Gradients of a head and its trunk, from the slope at the head's output [B, k]."""
        shared = self.network.trunk is self.network.value_trunk
        outputs = self._outputs[trunk] if shared else self._outputs.pop(trunk)  # its memory is used again
        self._add(head.weight, slope.t() @ outputs[-1])
        self._add(head.bias, slope.sum(0))
        linears = trunk.linears
        if not linears:
            return
        slope = slope @ head.weight
        for layer, before, after in zip(reversed(linears), outputs[-2::-1], outputs[:0:-1], strict=True):
            if trunk.activation == "tanh":
                torch.ops.aten.tanh_backward.grad_input(slope, after, grad_input=slope)
            else:
                torch.ops.aten.threshold_backward.grad_input(slope, after, 0, grad_input=slope)
            narrow = before.shape[1] < _NARROW
            self._add(layer.weight, (before.t() @ slope).t().contiguous() if narrow else slope.t() @ before)
            self._add(layer.bias, slope.sum(0))
            if layer is not linears[0]:
                slope = slope @ layer.weight

    def _add(self, parameter: Tensor, slope: Tensor) -> None:
        if parameter.requires_grad:
            known = self.gradients.get(parameter)
            self.gradients[parameter] = slope if known is None else known + slope


@dataclass
class Known:
    """A loss whose gradients are known. It is used as autograd's are: terms are added to it, then `backward`.

    A node of autograd's graph in its place (one `torch.autograd.Function`) cost a sixth of a small gradient step.
    """

    number: Tensor
    gradients: dict[Tensor, Tensor]  # by weight
    terms: tuple[Tensor, ...] = ()  # added by somebody, with graphs

    def __add__(self, term: Tensor) -> Known:
        return Known(self.number + term.detach(), self.gradients, (*self.terms, term))

    def detach(self) -> Tensor:
        """The number."""
        return self.number

    def backward(self) -> None:
        """Set `.grad` of the weights, or add to what is there."""
        for weight, gradient in self.gradients.items():
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
        for term in self.terms:
            if term.requires_grad:
                torch.autograd.backward(term)
