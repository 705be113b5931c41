"""Acting for a few environments by NumPy: on matrices this small the time goes into calls, and torch's are dearer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from shoal.learn.networks import ActorCritic, PolicyAndValue

_MOST = 2**18  # multiply-adds of a layer; above it OpenBLAS would wake threads, and torch is as fast


def acting_policy(network: PolicyAndValue) -> Callable[[Tensor], Tensor]:
    """`network.policy`, or a leaner way to the same numbers (but for rounding) where the network is the built-in one
    on the CPU. Valid until a layer is replaced or moved; an update in place is seen.

    The way depends on the rows at hand: half a batch (`--slices double`) may act by NumPy where the whole one acts by
    torch, and the last bits then differ from lockstep.
    """
    policy = network.policy
    if type(network) is not ActorCritic or not network.is_plain():
        return policy
    layers = [*network.trunk.linears, network.policy_head]
    if any(layer.weight.device.type != "cpu" or layer.weight.dtype != torch.float32 for layer in layers):
        return policy
    weights = [(layer.weight.detach().numpy().T, layer.bias.detach().numpy()) for layer in layers]
    widest = max(layer.in_features * layer.out_features for layer in layers)
    tanh = network.trunk.activation == "tanh"

    def act(features: Tensor) -> Tensor:
        if features.dim() != 2 or torch.is_grad_enabled():
            return policy(features)
        if len(features) * widest > _MOST:
            return network.parameters_from(network.trunk.outputs(features)[-1])
        hidden = features.numpy()
        with np.errstate(all="ignore"):  # what is not finite is found by the learner, as torch would leave it
            for weight, bias in weights[:-1]:
                hidden = hidden @ weight
                hidden += bias
                if tanh:
                    np.tanh(hidden, out=hidden)
                else:
                    np.maximum(hidden, 0.0, out=hidden)
            weight, bias = weights[-1]
            out = hidden @ weight
            out += bias
        return network.with_spread(torch.from_numpy(out))

    return act
