"""Networks: the fused trunk is the plain one, only faster."""

from __future__ import annotations

import pytest
import torch

from shoal.learn.actions import Categorical
from shoal.learn.network import ActorCritic, Trunk


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("hidden", [(), (5,), (7, 3), (4, 6, 5)])
def test_fused_gradients_equal_autograd(activation: str, hidden: tuple[int, ...]) -> None:
    """Values and gradients of the one-node backward equal those of the layers one by one."""
    torch.manual_seed(0)
    trunk = Trunk([6, *hidden], activation)
    features, weight = torch.randn(9, 6), torch.randn(9, hidden[-1] if hidden else 6)
    out = trunk(features)
    plain = torch.nn.Sequential.forward(trunk, features)
    torch.testing.assert_close(out, plain)
    parameters = list(trunk.parameters())
    if parameters:
        fused = torch.autograd.grad((out * weight).sum(), parameters)
        wanted = torch.autograd.grad((plain * weight).sum(), parameters)
        for one, other in zip(fused, wanted, strict=True):
            torch.testing.assert_close(one, other)


def test_fused_gradients_by_finite_differences() -> None:
    """The gradient agrees with finite differences in double precision, through two uses of one trunk."""
    torch.manual_seed(1)
    network = ActorCritic(3, Categorical(2), hidden=(4, 4), shared=True).double()
    features = torch.randn(5, 3, dtype=torch.float64)

    def loss(*weights: torch.Tensor) -> torch.Tensor:
        names = [name for name, _ in network.named_parameters()]
        policy, value = (
            torch.func.functional_call(
                _Call(network, part), {f"network.{n}": w for n, w in zip(names, weights, strict=True)}, features
            )
            for part in ("policy", "value")
        )
        return policy.square().sum() + value.square().sum()

    start = [parameter.detach().clone().requires_grad_() for parameter in network.parameters()]
    assert torch.autograd.gradcheck(loss, start)


class _Call(torch.nn.Module):
    """One method of a network as a module, for functional_call."""

    def __init__(self, network: torch.nn.Module, method: str) -> None:
        super().__init__()
        self.network, self.method = network, method

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return getattr(self.network, self.method)(features)


def test_an_unknown_activation_is_refused() -> None:
    """The choices are named."""
    with pytest.raises(ValueError, match="tanh, relu, silu"):
        Trunk([2, 3], "gelu")
