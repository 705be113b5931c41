"""Forward and backward through a network, given the slopes of the loss at its outputs.

The built-in network is differentiated by hand, policy first and value after it: activations and their gradients in
place, no graph, what one half needs out of the cache before the other begins. That is a quarter off the time of a small
update. Any other network goes through autograd, to the same numbers but for rounding; where pictures are seen, once
through the encoder for policy and value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shoal.learn.networks import ActorCritic, Trunk
from shoal.learn.pictures import SeeingActorCritic

_NARROW = 32  # columns under which a product of matrices is faster the other way round


class Pass(Protocol):
    """One pass over a minibatch: ask for an output, say how the loss depends on it; at last, `finish`.

    Outputs carry no graph. After `finish`, `.grad` of the weights is set.
    """

    def policy(self) -> Tensor:
        """Parameters of the action distribution, `[B, P]`."""

    def policy_slope(self, slope: Tensor) -> None:
        """The slope of the loss at each of them."""

    def value(self) -> Tensor:
        """Value estimates `[B]`."""

    def value_slope(self, slope: Tensor) -> None:
        """The slope of the loss at each of them."""

    def finish(self) -> None:
        """Nothing more to come."""


def begin(network: nn.Module, features: Tensor) -> Pass:
    """The pass of whatever network this is."""
    return way_of(network)(network, features) if features.dim() == 2 else _ByAutograd(network, features)


def way_of(network: nn.Module) -> Callable[[Any, Tensor], Pass]:
    """How to begin passes over features `[B, F]`, until the network is changed. Looking costs as much as a layer: an
    update looks once."""
    if isinstance(network, SeeingActorCritic) and network.is_plain():
        return lambda network, rows: _ByAutograd(network.head, network.encoder(rows))
    return _ByHand if type(network) is ActorCritic and network.is_plain() else _ByAutograd


class _ByAutograd:
    def __init__(self, network: nn.Module, features: Tensor) -> None:
        self.network, self.features = network, features
        self._given: list[tuple[Tensor, Tensor]] = []

    def policy(self) -> Tensor:
        self._params: Tensor = self.network.policy(self.features)  # type: ignore[operator]
        params: Tensor = self._params.detach()
        return params

    def policy_slope(self, slope: Tensor) -> None:
        self._given.append((self._params, slope))

    def value(self) -> Tensor:
        self._values: Tensor = self.network.value(self.features)  # type: ignore[operator]
        values: Tensor = self._values.detach()
        return values

    def value_slope(self, slope: Tensor) -> None:
        self._given.append((self._values, slope))

    def finish(self) -> None:
        given = [(output, slope) for output, slope in self._given if output.requires_grad]
        torch.autograd.backward([output for output, _ in given], [slope for _, slope in given])


class _ByHand:
    def __init__(self, network: ActorCritic, features: Tensor) -> None:
        self.network, self.features = network, features
        self._outputs: dict[Trunk, list[Tensor]] = {}

    @torch.no_grad()
    def policy(self) -> Tensor:
        return self.network.parameters_from(self._through(self.network.trunk)[-1])

    @torch.no_grad()
    def policy_slope(self, slope: Tensor) -> None:
        if self.network.log_std is not None:
            slope, log_std_slope = slope.chunk(2, -1)
            _add(self.network.log_std, log_std_slope.sum(0))
        self._back(self.network.trunk, self.network.policy_head, slope)

    @torch.no_grad()
    def value(self) -> Tensor:
        values: Tensor = self.network.value_head(self._through(self.network.value_trunk)[-1])
        return values.squeeze(-1)

    @torch.no_grad()
    def value_slope(self, slope: Tensor) -> None:
        self._back(self.network.value_trunk, self.network.value_head, slope.unsqueeze(-1))

    def finish(self) -> None:
        pass

    def _through(self, trunk: Trunk) -> list[Tensor]:
        if trunk not in self._outputs:
            self._outputs[trunk] = trunk.outputs(self.features)
        return self._outputs[trunk]

    def _back(self, trunk: Trunk, head: nn.Linear, slope: Tensor) -> None:
        """Gradients of a head and its trunk, from the slope at the head's output [B, k]."""
        shared = self.network.trunk is self.network.value_trunk
        outputs = self._outputs[trunk] if shared else self._outputs.pop(trunk)  # its memory is used again
        _add(head.weight, slope.t() @ outputs[-1])
        _add(head.bias, slope.sum(0))
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
            _add(layer.weight, (before.t() @ slope).t().contiguous() if narrow else slope.t() @ before)
            _add(layer.bias, slope.sum(0))
            if layer is not linears[0]:
                slope = slope @ layer.weight


def _add(parameter: Tensor, slope: Tensor) -> None:
    if parameter.requires_grad:
        parameter.grad = slope if parameter.grad is None else parameter.grad + slope
