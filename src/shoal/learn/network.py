"""Policy and value networks. Your own network is any module with the two methods of `Network`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shoal.learn.actions import ActionKind, Gaussian

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


class Network(Protocol):
    """What training asks of a network. Subclass `torch.nn.Module` as well."""

    def policy(self, features: Tensor) -> Tensor:
        """Parameters `[B, P]` of the action distribution."""

    def value(self, features: Tensor) -> Tensor:
        """Value estimates `[B]`."""


class ActorCritic(nn.Module):
    """Multilayer perceptrons for policy and value, with or without a shared trunk.

    Orthogonal initialisation with gain sqrt 2, 0.01 for the policy's last layer, so that the first policy is nearly
    uniform, and 1 for the value's (Andrychowicz et al. 2021, "What matters in on-policy RL", section 3.2).
    """

    def __init__(
        self,
        num_features: int,
        kind: ActionKind,
        *,
        hidden: Sequence[int] = (64, 64),
        activation: str = "tanh",
        shared: bool = False,
        initial_std: float = 1.0,
    ) -> None:
        super().__init__()
        self.gaussian = isinstance(kind, Gaussian)
        outputs = kind.num_noise if self.gaussian else kind.num_params
        width = hidden[-1] if hidden else num_features
        self.trunk = Trunk([num_features, *hidden], activation)
        self.value_trunk = self.trunk if shared else Trunk([num_features, *hidden], activation)
        self.policy_head, self.value_head = nn.Linear(width, outputs), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.full((outputs,), math.log(initial_std))) if self.gaussian else None
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, math.sqrt(2))
                nn.init.zeros_(module.bias)
        nn.init.orthogonal_(self.policy_head.weight, 0.01)
        nn.init.orthogonal_(self.value_head.weight, 1.0)

    def policy(self, features: Tensor) -> Tensor:
        """Logits, or means and log standard deviations, `[B, P]`."""
        out: Tensor = self.policy_head(self.trunk(features))
        if self.log_std is None:
            return out
        return torch.cat([out, self.log_std.expand_as(out)], -1)

    def value(self, features: Tensor) -> Tensor:
        """Value estimates `[B]`."""
        value: Tensor = self.value_head(self.value_trunk(features))
        return value.squeeze(-1)


class Trunk(nn.Sequential):
    """Linear layers with an activation after each, whose gradient is one node of the graph."""

    def __init__(self, sizes: Sequence[int], activation: str) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"expected an activation of {', '.join(ACTIVATIONS)}, got {activation!r}")
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), ACTIVATIONS[activation]()]
        super().__init__(*layers)
        self.activation = activation

    def forward(self, features: Tensor) -> Tensor:
        """Hidden features `[B, width]`."""
        if self.activation == "silu" or not torch.is_grad_enabled() or features.requires_grad or len(self) == 0:
            hidden: Tensor = super().forward(features)  # type: ignore[no-untyped-call]
            return hidden
        weights = [tensor for layer in self if isinstance(layer, nn.Linear) for tensor in (layer.weight, layer.bias)]
        fused: Tensor = _FusedTrunk.apply(features, self.activation, *weights)  # type: ignore[no-untyped-call]
        return fused


class _FusedTrunk(torch.autograd.Function):
    """Forward and backward of a trunk, activations and their gradients in place: a fifth off a small update's time.

    Both activations have a derivative that is a function of their output, so only the outputs are kept.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, activation: str, *weights: Tensor) -> Tensor:
        outputs = [features]
        for weight, bias in zip(weights[::2], weights[1::2], strict=True):
            out = torch.addmm(bias, outputs[-1], weight.t())
            outputs.append(out.tanh_() if activation == "tanh" else out.relu_())
        ctx.activation, ctx.depth = activation, len(weights) // 2
        ctx.save_for_backward(*outputs, *weights[::2])
        return outputs[-1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        outputs, weights = ctx.saved_tensors[: ctx.depth + 1], ctx.saved_tensors[ctx.depth + 1 :]
        grads: list[Tensor | None] = []
        grad = grad.clone()  # written over below; autograd may hold on to its own
        for layer in range(ctx.depth - 1, -1, -1):
            if ctx.activation == "tanh":
                torch.ops.aten.tanh_backward.grad_input(grad, outputs[layer + 1], grad_input=grad)
            else:
                torch.ops.aten.threshold_backward.grad_input(grad, outputs[layer + 1], 0, grad_input=grad)
            grads = [grad.t() @ outputs[layer], grad.sum(0), *grads]
            if layer:
                grad = grad @ weights[layer]
        return None, None, *grads
