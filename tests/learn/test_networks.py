"""Networks: what they compute with and without a graph."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.utils import prune

from shoal.learn import backprop
from shoal.learn.distributions import action_kind
from shoal.learn.lean import acting_policy
from shoal.learn.losses import Batch, Recipe, policy_loss
from shoal.learn.networks import ActorCritic, Trunk, tanh_


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("hidden", [(), (5,), (7, 3)])
def test_a_trunk_without_a_graph_is_the_same(activation: str, hidden: tuple[int, ...]) -> None:
    """The lean way through the layers gives the layers' own numbers, and leaves its input alone."""
    torch.manual_seed(0)
    trunk, features = Trunk([6, *hidden], activation), torch.randn(9, 6)
    kept = features.clone()
    with torch.no_grad():
        lean = trunk(features)
    assert torch.allclose(lean, trunk(features), rtol=1e-6, atol=1e-7)  # another tanh, to the last place but one
    assert torch.equal(features, kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_in_place(dtype: torch.dtype) -> None:
    """As torch computes it to two units in the last place, what is not finite included; into the same memory."""
    torch.manual_seed(0)
    values = torch.cat([4 * torch.randn(1001, dtype=dtype), torch.tensor([0.0, 1e-30, -1e30, torch.inf, -torch.inf])])
    expected, given = torch.tanh(values.double()), values.to(dtype).clone()
    assert tanh_(given) is given
    assert torch.allclose(given.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    assert tanh_(torch.tensor([torch.nan])).isnan().all()


def test_an_unknown_activation_is_refused() -> None:
    """The choices are named."""
    with pytest.raises(ValueError, match="tanh, relu, silu"):
        Trunk([2, 3], "gelu")


def rectified(network: ActorCritic) -> None:
    network.trunk[1] = nn.ReLU()


def layer_norm(network: ActorCritic) -> None:
    network.trunk.insert(1, nn.LayerNorm(8))


def own_module(network: ActorCritic) -> None:
    class Scaled(nn.Tanh):
        def forward(self, features: torch.Tensor) -> torch.Tensor:
            return 3 * super().forward(features)

    network.trunk[1] = Scaled()


def dropped_activation(network: ActorCritic) -> None:
    del network.trunk[3]


def hook_on_trunk(network: ActorCritic) -> None:
    network.trunk.register_forward_hook(lambda module, given, out: 2 * out)


def hook_on_activation(network: ActorCritic) -> None:
    network.trunk[1].register_forward_hook(lambda module, given, out: 2 * out)


def hook_before_a_layer(network: ActorCritic) -> None:
    network.trunk[2].register_forward_pre_hook(lambda module, given: (2 * given[0],))


def forward_replaced(network: ActorCritic) -> None:
    network.trunk[0].forward = lambda features: torch.ones(len(features), 8)


def normalised_weights(network: ActorCritic) -> None:
    nn.utils.parametrizations.weight_norm(network.trunk[0])
    with torch.no_grad():
        network.trunk[0].parametrizations.weight.original0.mul_(3)


def pruned(network: ActorCritic) -> None:
    prune.l1_unstructured(network.trunk[0], "weight", amount=0.5)


CHANGES = [rectified, layer_norm, own_module, dropped_activation, hook_on_trunk, hook_on_activation,
           hook_before_a_layer, forward_replaced, normalised_weights, pruned]  # fmt: skip


def by_its_modules(network: ActorCritic, features: torch.Tensor) -> torch.Tensor:
    """The network's logits by its modules alone, with a graph."""
    return network.policy_head(network.trunk(features))


def transitions(features: torch.Tensor) -> Batch:
    """Half of the actions taken were the first one; the old policy was uniform."""
    rows, nothing = len(features), torch.zeros(len(features))
    advantages = torch.linspace(-1, 1, rows)
    return Batch(features, None, torch.arange(rows) % 2, nothing - math.log(2), advantages, nothing, nothing)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_network_acts_and_learns_as_changed(change: Callable[[ActorCritic], None]) -> None:
    """Acting, valuing and updating all ask the modules that are there, and train them."""
    torch.manual_seed(0)
    network = ActorCritic(3, action_kind(spaces.Discrete(2)), hidden=(8, 8))
    features, before = torch.randn(40, 3), ActorCritic(3, action_kind(spaces.Discrete(2)), hidden=(8, 8))
    before.load_state_dict(network.state_dict())
    change(network)
    wanted = by_its_modules(network, features)
    assert not torch.allclose(wanted, by_its_modules(before, features), atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(network.policy(features), wanted)
        torch.testing.assert_close(acting_policy(network)(features), wanted)
    kind, batch = action_kind(spaces.Discrete(2)), transitions(features)
    loss, _ = backprop.loss_of(network)(network, kind, batch, Recipe(0.2, value=False))
    loss.backward()
    found = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    network.zero_grad(set_to_none=True)
    wanted = by_its_modules(network, features)  # what is normalised or pruned has new weights in each pass
    expected = policy_loss(kind.log_prob(wanted, batch.actions), batch.log_probs, batch.advantages, 0.2)[0]
    torch.testing.assert_close(loss.detach(), expected.detach())
    expected.backward()
    assert found
    for name, parameter in network.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found[name], parameter.grad)


@pytest.mark.parametrize("kind", ["module", "full", "weight"])
def test_a_hook_on_gradients_is_called(kind: str) -> None:
    """By hand no gradient would pass it."""
    network = ActorCritic(3, action_kind(spaces.Discrete(2)), hidden=(8, 8))
    called = []
    if kind == "module":
        network.trunk[0].register_full_backward_pre_hook(lambda module, slopes: called.append(1))
    elif kind == "full":
        network.trunk[1].register_full_backward_hook(lambda module, given, slopes: called.append(1))
    else:
        network.trunk[0].weight.register_hook(lambda slope: called.append(1))
    batch = transitions(torch.randn(40, 3))
    loss, _ = backprop.loss_of(network)(network, action_kind(spaces.Discrete(2)), batch, Recipe(0.2, value=False))
    loss.backward()
    assert called


def test_a_hook_on_all_modules_is_called() -> None:
    """torch has hooks for every module there is: profilers use them."""
    network, called = ActorCritic(3, action_kind(spaces.Discrete(2))), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, given, out: called.append(module))
    try:
        with torch.no_grad():
            acting_policy(network)(torch.randn(4, 3))
    finally:
        handle.remove()
    assert network.trunk[1] in called
