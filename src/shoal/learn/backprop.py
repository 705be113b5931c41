"""Forward and backward through a network, given the slopes of the loss at its outputs.

The built-in network is differentiated by hand: activations and their gradients in place, no graph, a quarter off the
time of a small update. Any other network goes through autograd, to the same numbers.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from shoal.learn.network import ActorCritic, Trunk

_NARROW = 32  # columns under which a product of matrices is faster the other way round


class Pass(Protocol):
    """One forward pass over a minibatch. `params` and `values` carry no graph, and are None where not asked for."""

    params: Tensor | None  # [B, P]
    values: Tensor | None  # [B]

    def backward(self, params_slope: Tensor | None, values_slope: Tensor | None) -> None:
        """Set `.grad` of the weights from the loss's slopes at `params` and `values`."""


def forward(network: nn.Module, features: Tensor, *, policy: bool, value: bool) -> Pass:
    """The pass of whatever network this is."""
    if type(network) is ActorCritic and network.trunk.by_hand:
        return _ByHand(network, features, policy, value)
    return _ByAutograd(network, features, policy, value)


class _ByAutograd:
    def __init__(self, network: nn.Module, features: Tensor, policy: bool, value: bool) -> None:
        self._params = network.policy(features) if policy else None  # type: ignore[operator]
        self._values = network.value(features) if value else None  # type: ignore[operator]
        self.params = None if self._params is None else self._params.detach()
        self.values = None if self._values is None else self._values.detach()

    def backward(self, params_slope: Tensor | None, values_slope: Tensor | None) -> None:
        pairs = ((self._params, params_slope), (self._values, values_slope))
        given = [(output, slope) for output, slope in pairs if output is not None and output.requires_grad]
        torch.autograd.backward([output for output, _ in given], [slope for _, slope in given])


class _ByHand:
    def __init__(self, network: ActorCritic, features: Tensor, policy: bool, value: bool) -> None:
        self.network = network
        self.params = self.values = None
        with torch.no_grad():
            if policy:
                self._policy_outputs = network.trunk.outputs(features)
                self.params = network.parameters_from(self._policy_outputs[-1])
            if value:
                shared = policy and network.value_trunk is network.trunk
                self._value_outputs = self._policy_outputs if shared else network.value_trunk.outputs(features)
                self.values = network.value_head(self._value_outputs[-1]).squeeze(-1)

    @torch.no_grad()
    def backward(self, params_slope: Tensor | None, values_slope: Tensor | None) -> None:
        network = self.network
        if params_slope is not None:
            if network.log_std is not None:
                params_slope, log_std_slope = params_slope.chunk(2, -1)
                _add(network.log_std, log_std_slope.sum(0))
            _through(network.trunk, network.policy_head, self._policy_outputs, params_slope)
        if values_slope is not None:
            _through(network.value_trunk, network.value_head, self._value_outputs, values_slope.unsqueeze(-1))


def _through(trunk: Trunk, head: nn.Linear, outputs: list[Tensor], slope: Tensor) -> None:
    """Gradients of a head and its trunk, from the slope at the head's output [B, k]."""
    _add(head.weight, slope.t() @ outputs[-1])
    _add(head.bias, slope.sum(0))
    if not trunk.linears:
        return
    slope = slope @ head.weight
    for layer, before, after in zip(reversed(trunk.linears), outputs[-2::-1], outputs[:0:-1], strict=True):
        if trunk.activation == "tanh":
            torch.ops.aten.tanh_backward.grad_input(slope, after, grad_input=slope)
        else:
            torch.ops.aten.threshold_backward.grad_input(slope, after, 0, grad_input=slope)
        narrow = before.shape[1] < _NARROW
        _add(layer.weight, (before.t() @ slope).t().contiguous() if narrow else slope.t() @ before)
        _add(layer.bias, slope.sum(0))
        if layer is not trunk.linears[0]:
            slope = slope @ layer.weight


def _add(parameter: Tensor, slope: Tensor) -> None:
    if parameter.requires_grad:
        parameter.grad = slope if parameter.grad is None else parameter.grad + slope
