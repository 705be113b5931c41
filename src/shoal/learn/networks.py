"""Policy and value networks. Your own network is any module with the two methods of `Network`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook

from shoal.learn.distributions import ActionKind, Gaussian, is_tall

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


class Network(Protocol):
    """What training asks of a network. Subclass `torch.nn.Module` as well."""

    def policy(self, features: Tensor) -> Tensor:
        """Parameters `[B, P]` of the action distribution."""

    def value(self, features: Tensor) -> Tensor:
        """Value estimates `[B]`."""


class PolicyAndValue(nn.Module):
    """A module with the two methods, whoever wrote it: a name for the type checker, that nobody need inherit from."""

    def policy(self, features: Tensor) -> Tensor:
        """Parameters `[B, P]` of the action distribution."""
        raise NotImplementedError

    def value(self, features: Tensor) -> Tensor:
        """Value estimates `[B]`."""
        raise NotImplementedError


class ActorCritic(PolicyAndValue):
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
        return self.parameters_from(self.trunk(features))

    def parameters_from(self, hidden: Tensor) -> Tensor:
        """The policy's last layer, `[B, P]` of the trunk's output."""
        head = self.policy_head
        if plain(head) and is_tall((*hidden.shape[:-1], head.out_features)):
            out: Tensor = torch.addmm(head.bias.unsqueeze(1), head.weight, hidden.t()).t()  # column by column
        else:
            out = head(hidden)
        return self.with_spread(out)

    def with_spread(self, out: Tensor) -> Tensor:
        """What the policy's last layer gives, and the log standard deviations of a Gaussian beside it."""
        return out if self.log_std is None else torch.cat([out, self.log_std.expand_as(out)], -1)

    def is_plain(self) -> bool:
        """Whether everything in it is as it was made, so that the short ways give what the modules would give."""
        own, log_std = self.__dict__, self.log_std
        return (
            self.trunk.is_plain()
            and (self.value_trunk is self.trunk or self.value_trunk.is_plain())
            and plain(self.policy_head)
            and plain(self.value_head)
            and (log_std is None or _unhooked(log_std))
            and not ("policy" in own or "value" in own or "parameters_from" in own or "with_spread" in own)
        )

    def value(self, features: Tensor) -> Tensor:
        """Value estimates `[B]`."""
        value: Tensor = self.value_head(self.value_trunk(features))
        return value.squeeze(-1)


def plain(layer: nn.Module) -> bool:
    """Whether a layer is a Linear as it was made: somebody may have put another in its place, or hooks on it or on its
    weights, or laid these out otherwise."""
    if not untouched(layer, nn.Linear):
        return False
    weight, bias = layer._parameters.get("weight"), layer._parameters.get("bias")
    if weight is None or bias is None:  # made without a bias, or pruned
        return False
    return weight.is_contiguous() and _unhooked(weight) and _unhooked(bias)


def untouched(module: nn.Module, expected: type[nn.Module]) -> bool:
    """Whether a module is exactly of this type and nobody listens to, or changes, what passes through it."""
    own = module.__dict__
    return type(module) is expected and not (
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or _has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def _unhooked(parameter: nn.Parameter) -> bool:
    return not (parameter._backward_hooks or parameter._post_accumulate_grad_hooks)


class Trunk(nn.Sequential):
    """Linear layers with an activation after each."""

    def __init__(self, sizes: Sequence[int], activation: str) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"expected an activation of {', '.join(ACTIVATIONS)}, got {activation!r}")
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), ACTIVATIONS[activation]()]
        super().__init__(*layers)
        self.activation = activation

    @property
    def linears(self) -> list[nn.Linear]:
        """The layers without their activations."""
        return [layer for layer in self if isinstance(layer, nn.Linear)]

    def is_plain(self) -> bool:
        """Whether `outputs` gives what its modules would: Linear layers, each with the activation, and no more. Only an
        activation whose derivative is a function of its output may overwrite its input, so SiLU is never plain."""
        if self.activation not in ("tanh", "relu") or not untouched(self, Trunk):
            return False
        modules, activation = list(self._modules.values()), ACTIVATIONS[self.activation]
        return (
            len(modules) % 2 == 0
            and all(plain(layer) for layer in modules[::2])
            and all(untouched(layer, activation) for layer in modules[1::2])
        )

    def forward(self, features: Tensor) -> Tensor:
        """Hidden features `[B, width]`."""
        if not torch.is_grad_enabled() and self.is_plain():
            return self.outputs(features)[-1]
        hidden: Tensor = super().forward(features)  # type: ignore[no-untyped-call]
        return hidden

    def outputs(self, features: Tensor) -> list[Tensor]:
        """The features and what each layer makes of them, without a graph."""
        found = [features]
        for layer in self.linears:
            out = nn.functional.linear(found[-1], layer.weight, layer.bias)
            found.append(tanh_(out) if self.activation == "tanh" else out.relu_())
        return found


def tanh_(values: Tensor) -> Tensor:
    """The hyperbolic tangent, in place, without a graph. On the CPU by NumPy: for 2,048 x 64 numbers torch takes 340 us
    on an AMD EPYC, NumPy 50 (benchmarks/results/tanh.json), and both are right to two units in the last place. NumPy
    has one thread: where torch has more than six, its own is taken."""
    recorded = torch.jit.is_tracing() or torch.compiler.is_compiling()  # type: ignore[no-untyped-call,attr-defined]
    if values.device.type != "cpu" or values.dtype != torch.float32 or torch.get_num_threads() > 6 or recorded:
        return values.tanh_()
    array = values.numpy()
    np.tanh(array, out=array)
    return values
