"""Acting by NumPy: the same numbers as the network's own, for whoever qualifies."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from shoal.learn.distributions import action_kind
from shoal.learn.lean import acting_policy
from shoal.learn.networks import ActorCritic

SPACES = {"discrete": spaces.Discrete(5), "box": spaces.Box(-1, 1, (2,))}


def network_for(kind: str = "discrete", **options) -> ActorCritic:
    torch.manual_seed(0)
    network = ActorCritic(6, action_kind(SPACES[kind]), **options).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
    return network


@pytest.mark.parametrize("rows", [1, 40, 64, 2000])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(), (5,), (64, 64)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("kind", list(SPACES))
@torch.inference_mode()
def test_equals_the_network(kind, activation, hidden, shared, rows) -> None:
    """Whatever the layers and however many rows; the features are left alone."""
    network = network_for(kind, hidden=hidden, activation=activation, shared=shared)
    features = torch.randn(rows, 6)
    kept = features.clone()
    policy = acting_policy(network)
    assert policy != network.policy
    torch.testing.assert_close(policy(features), network.policy(features))
    assert torch.equal(features, kept)


def test_an_update_in_place_is_seen() -> None:
    """The optimiser and a checkpoint write into the same memory."""
    network, features = network_for(), torch.randn(9, 6)
    policy = acting_policy(network)
    with torch.inference_mode():
        before = policy(features)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.1)
    network.policy(features).sum().backward()
    optimiser.step()
    with torch.inference_mode():
        assert not torch.allclose(policy(features), before)
        torch.testing.assert_close(policy(features), network.policy(features))
    network.load_state_dict(network_for(hidden=(64, 64)).state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(policy(features), before)


def test_any_other_network_acts_itself() -> None:
    """Another activation, a subclass, a hook, another layer, double precision."""

    class Own(ActorCritic):
        def policy(self, features):
            return super().policy(features) + 1

    hooked, replaced = network_for(), network_for()
    hooked.trunk[0].register_forward_hook(lambda layer, given, out: 2 * out)
    replaced.policy_head = nn.Sequential(nn.Linear(64, 5))
    own = Own(6, action_kind(SPACES["discrete"]))
    for network in (network_for(activation="silu"), hooked, replaced, own, network_for().double()):
        assert acting_policy(network) == network.policy


@torch.inference_mode()
def test_what_is_not_finite_passes_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    """As torch does it: the guards of the learner are the ones to speak."""
    policy = acting_policy(network_for())
    assert policy(torch.full((3, 6), torch.nan)).isnan().all()
    policy(torch.full((3, 6), 3e38))
    assert not recwarn.list
