"""Gradients by hand equal those of autograd, for every network and kind of action that has them."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from shoal.learn import backprop
from shoal.learn.actions import action_kind, by_autograd
from shoal.learn.network import ActorCritic

SPACES = {
    "discrete": spaces.Discrete(5),
    "multi-discrete": spaces.MultiDiscrete([3, 2]),
    "box": spaces.Box(-1, 1, (2,)),
}


def pieces(kind: str = "discrete", rows: int = 40, **options):
    torch.manual_seed(0)
    family = action_kind(SPACES[kind])
    network = ActorCritic(6, family, **options)
    with torch.no_grad():
        for parameter in network.parameters():  # a head of nearly zero would hide mistakes
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return network, family, torch.randn(rows, 6)


def both(network, features) -> None:
    """A pass with slopes of 1 everywhere."""
    run = backprop.begin(network, features)
    run.policy_slope(torch.ones_like(run.policy()))
    run.value_slope(torch.ones_like(run.value()))
    run.finish()


@pytest.mark.parametrize("parts", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(), (5,), (70, 40), (4, 6, 5)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_the_hand_equals_autograd(kind, activation, hidden, shared, parts) -> None:
    """Outputs and every gradient; a weight that a loss does not reach has none either way."""
    policy, value = parts
    network, family, features = pieces(kind, hidden=hidden, activation=activation, shared=shared)
    slopes = torch.randn(len(features), family.num_params), torch.randn(len(features))
    found = []
    for way in (backprop._ByHand, backprop._ByAutograd):
        network.zero_grad(set_to_none=True)
        run = way(network, features)
        outputs = []
        if policy:
            outputs.append(run.policy())
            run.policy_slope(slopes[0])
        if value:
            outputs.append(run.value())
            run.value_slope(slopes[1])
        run.finish()
        found.append([*outputs, *(p.grad for p in network.parameters())])
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)
            assert not one.requires_grad


def test_who_goes_which_way() -> None:
    """Only the built-in network as it is; a subclass may have changed anything."""

    class Own(ActorCritic):
        pass

    network, family, features = pieces()
    assert isinstance(backprop.begin(network, features), backprop._ByHand)
    for other in (Own(6, family), ActorCritic(6, family, activation="silu")):
        assert isinstance(backprop.begin(other, features), backprop._ByAutograd)


def test_frozen_weights_get_no_gradient() -> None:
    """By hand as by autograd; also where nothing at all is left to train."""
    network, family, features = pieces(hidden=(5, 5))
    network.trunk[0].weight.requires_grad_(False)
    both(network, features)
    assert network.trunk[0].weight.grad is None
    assert network.trunk[2].weight.grad is not None

    class Fixed(nn.Module):
        def policy(self, features):
            return torch.zeros(len(features), family.num_params)

        def value(self, features):
            return features.sum(-1)

    both(Fixed(), features)


@pytest.mark.parametrize("entropy", [0.0, -0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", list(SPACES))
def test_slopes_of_log_probabilities_and_entropies(kind, masked, entropy) -> None:
    """What `differentiated` gives is what autograd gives for `log_prob` and `entropy`; forbidden actions get none."""
    family = action_kind(SPACES[kind])
    torch.manual_seed(1)
    params = torch.randn(30, family.num_params)
    actions = family.sample(params, family.noise((30,), torch.Generator().manual_seed(2)))
    allowed = torch.ones_like(params, dtype=torch.bool)
    if masked and family.num_masks:
        allowed = torch.rand(params.shape) > 0.4
        allowed[:, 0] = True
        if kind == "discrete":
            allowed.scatter_(1, actions.unsqueeze(-1), True)
        else:
            allowed[:, 3] = True
            allowed.scatter_(1, actions + torch.tensor([0, 3]), True)
        params = family.mask(params, allowed)
    weights = torch.randn(30)
    log_probs, entropies, slopes = family.differentiated(params, actions)
    wanted_log_probs, wanted_entropies, wanted_slopes = by_autograd(family, params, actions)
    torch.testing.assert_close(log_probs, family.log_prob(params, actions))
    torch.testing.assert_close(log_probs, wanted_log_probs)
    torch.testing.assert_close(entropies, wanted_entropies)
    found = slopes(weights, entropy)
    torch.testing.assert_close(found, wanted_slopes(weights, entropy))
    assert (found[~allowed] == 0).all()


def test_a_layer_put_in_later_is_the_one_that_acts_and_learns() -> None:
    """No second list of layers: what the network holds is what is used, with a graph and without."""
    network, _, features = pieces(hidden=(5, 5))
    network.trunk[0] = nn.Linear(6, 5)
    with torch.no_grad():
        lean = network.policy(features)
    torch.testing.assert_close(lean, network.policy(features).detach())
    both(network, features)
    assert network.trunk[0].weight.grad is not None
    spectral = nn.utils.parametrizations.spectral_norm(network.value_head)
    assert isinstance(backprop.begin(network, features), backprop._ByAutograd)
    both(network, features)
    assert spectral.parametrizations.weight.original.grad is not None


def test_features_of_any_leading_shape() -> None:
    """Acting takes one row, or rows of rows, as torch's layers do."""
    network, _, features = pieces()
    with torch.no_grad():
        assert network.policy(features[0]).shape == (5,)
        assert network.policy(features.reshape(4, 10, 6)).shape == (4, 10, 5)


def test_slopes_in_the_precision_of_the_parameters() -> None:
    """A network under autocast gives bfloat16 logits; an entropy bonus must not trip over them."""
    family = action_kind(SPACES["discrete"])
    _, _, slopes = family.differentiated(torch.randn(8, 5, dtype=torch.bfloat16), torch.zeros(8, dtype=torch.int64))
    assert slopes(torch.ones(8), -0.1).dtype == torch.bfloat16
