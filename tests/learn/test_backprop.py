"""Gradients by hand equal those of autograd, for every network and kind of action that has them."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from shoal.learn import backprop
from shoal.learn.credit import AllActions, advantages_of
from shoal.learn.distributions import action_kind, is_tall
from shoal.learn.losses import Batch, Recipe, ppo_loss
from shoal.learn.networks import ActorCritic

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


def batch_of(network, family, features, masked: bool = False) -> Batch:
    """Transitions whose old policy and values are near the present ones: some inside the clip range, some outside."""
    draw = torch.Generator().manual_seed(5)
    rows = len(features)
    with torch.no_grad():
        params, values = network.policy(features), network.value(features)
        masks = None
        if masked:
            masks = torch.rand((rows, family.num_masks), generator=draw) > 0.3
            masks[:, 0] = masks[:, -1] = True
            params = family.mask(params, masks)
        actions = family.sample(params, family.noise((rows,), draw))
        old = family.log_prob(params, actions) + 0.3 * torch.randn(rows, generator=draw)
    advantages, targets = (torch.randn(rows, generator=draw) for _ in range(2))
    near = values + 0.3 * torch.randn(rows, generator=draw)
    return Batch(features, masks, actions, old, advantages, targets, near)


def learnt(loss_of, network, family, batch, recipe):
    """What is told, the loss, and the gradient of every weight."""
    network.zero_grad(set_to_none=True)
    loss, told = loss_of(network, family, batch, recipe)
    loss.backward()
    return told, loss.detach(), [p.grad for p in network.parameters()]


def both(network, features) -> None:
    """A gradient step's loss, backward."""
    family = action_kind(SPACES["discrete"])
    learnt(backprop.loss_of(network), network, family, batch_of(network, family, features), Recipe(0.2))


def alike(one, other, **near) -> None:
    """The same figures, the same loss, the same gradients; a weight that a loss does not reach has none either way."""
    assert one[0].keys() == other[0].keys()
    for name, figure in one[0].items():
        torch.testing.assert_close(figure, other[0][name], **near)
        assert not figure.requires_grad
    torch.testing.assert_close(one[1], other[1], **near)
    for mine, wanted in zip(one[2], other[2], strict=True):
        assert (mine is None) == (wanted is None)
        if mine is not None:
            torch.testing.assert_close(mine, wanted, **near)
            assert not mine.requires_grad


@pytest.mark.parametrize("parts", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [(), (5,), (70, 40), (4, 6, 5)])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_the_hand_equals_autograd(kind, activation, hidden, shared, parts) -> None:
    """The readable loss and the fast one: figures, loss and every gradient."""
    network, family, features = pieces(kind, hidden=hidden, activation=activation, shared=shared)
    batch = batch_of(network, family, features)
    recipe = Recipe(0.2, 0.25, 0.05, 0.5, *parts)
    ways = (backprop.loss_by_hand, ppo_loss)
    alike(*(learnt(way, network, family, batch, recipe) for way in ways), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("entropy", [0.0, 0.3])
@pytest.mark.parametrize("credit", [False, True])
@pytest.mark.parametrize("kind", ["discrete", "multi-discrete"])
def test_the_hand_equals_autograd_under_masks_and_credit(kind, credit, entropy) -> None:
    """With forbidden actions, and where the environment says what all actions were worth."""
    if credit and kind != "discrete":
        return
    network, family, features = pieces(kind)
    batch = batch_of(network, family, features, masked=True)
    if credit:
        with torch.no_grad():
            old = torch.log_softmax(family.mask(network.policy(features) + torch.randn(40, 5), batch.masks), -1)
        batch.every = AllActions(old, advantages_of(torch.randn(40, 5), old))
    ways = (backprop.loss_by_hand, ppo_loss)
    alike(*(learnt(way, network, family, batch, Recipe(0.2, None, entropy)) for way in ways), rtol=1e-4, atol=1e-6)


def test_what_is_added_to_the_loss_is_learnt_too() -> None:
    """By hand as by autograd: two terms, one without a graph."""
    network, family, features = pieces()
    batch = batch_of(network, family, features)

    def longer(way):
        def loss_of(*given):
            loss, told = way(*given)
            small = sum(p.square().sum() for p in network.parameters())
            return loss + 0.1 * small + network.value(features).mean() + torch.ones(()), told

        return loss_of

    ways = (backprop.loss_by_hand, ppo_loss)
    found = [learnt(longer(way), network, family, batch, Recipe(0.2)) for way in ways]
    alike(*found, rtol=1e-4, atol=1e-6)
    without = learnt(ppo_loss, network, family, batch, Recipe(0.2))
    assert not torch.allclose(found[0][2][0], without[2][0], atol=1e-3)


def test_who_goes_which_way() -> None:
    """Only the built-in network as it is; a subclass may have changed anything."""

    class Own(ActorCritic):
        pass

    network, family, _ = pieces()
    assert backprop.loss_of(network) is backprop.loss_by_hand
    for other in (Own(6, family), ActorCritic(6, family, activation="silu")):
        assert backprop.loss_of(other) is ppo_loss


def test_frozen_weights_get_no_gradient() -> None:
    """By hand as by autograd."""
    network, _, features = pieces(hidden=(5, 5))
    network.trunk[0].weight.requires_grad_(False)
    both(network, features)
    assert network.trunk[0].weight.grad is None
    assert network.trunk[2].weight.grad is not None


@pytest.mark.parametrize("rows", [30, 600])
@pytest.mark.parametrize("entropy", [0.0, -0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", list(SPACES))
def test_slopes_of_log_probabilities_and_entropies(kind, masked, entropy, rows) -> None:
    """What `differentiated` gives is what autograd gives for `log_prob` and `entropy`; forbidden actions get none."""
    family = action_kind(SPACES[kind])
    torch.manual_seed(1)
    params = torch.randn(rows, family.num_params)
    actions = family.sample(params, family.noise((rows,), torch.Generator().manual_seed(2)))
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
    weights = torch.randn(rows)
    log_probs, entropies, slopes = backprop.differentiated(family, params, actions)
    wanted_log_probs, wanted_entropies, wanted_slopes = backprop.by_autograd(family, params, actions)
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
    assert backprop.loss_of(network) is ppo_loss
    both(network, features)
    assert spectral.parametrizations.weight.original.grad is not None


@pytest.mark.parametrize("kind", ["discrete", "box"])
def test_many_rows_go_column_by_column_to_the_same_numbers(kind) -> None:
    """Outputs, gradients and log-probabilities of 600 rows are those of the layers themselves, 8 rows at a time."""
    network, family, features = pieces(kind, rows=600)
    assert is_tall((600, network.policy_head.out_features))
    slopes, actions = torch.randn(600, family.num_params), torch.zeros(600, dtype=torch.int64)
    if kind == "box":
        actions = torch.randn(600, 2)
    with torch.no_grad():
        passes = backprop._Passes(network, features)
        params = passes.policy()
        passes.policy_slope(slopes)
    tall = [passes.gradients.get(p) for p in network.parameters()]
    wanted = torch.cat([network.policy(rows).detach() for rows in features.split(8)])
    torch.testing.assert_close(params, wanted)
    log_probs = torch.cat([family.log_prob(*rows) for rows in zip(wanted.split(8), actions.split(8), strict=True)])
    torch.testing.assert_close(family.log_prob(params, actions), log_probs)
    network.zero_grad(set_to_none=True)
    for rows, slope in zip(features.split(8), slopes.split(8), strict=True):
        network.policy(rows).backward(slope)
    for one, parameter in zip(tall, network.parameters(), strict=True):
        if one is not None:
            torch.testing.assert_close(one, parameter.grad, rtol=1e-4, atol=1e-4)  # sums of 600 in another order


@pytest.mark.parametrize("rows", [8, 600])
def test_any_head_may_be_put_in(rows) -> None:
    """One that is no layer, one without a bias, one with a hook before it: each is asked, however many the rows."""
    network, _, features = pieces(rows=rows, hidden=(7,))
    with torch.no_grad():
        hidden = network.trunk(features)
        for head in (nn.Sequential(nn.Linear(7, 5)), nn.Linear(7, 5, bias=False)):
            network.policy_head = head
            assert torch.equal(network.policy(features), head(hidden))
        network.policy_head = nn.Linear(7, 5)
        network.policy_head.register_forward_pre_hook(lambda layer, given: (2 * given[0],))
        assert torch.equal(network.policy(features), network.policy_head(hidden))


def test_features_of_any_leading_shape() -> None:
    """Acting takes one row, or rows of rows, as torch's layers do."""
    network, _, features = pieces()
    with torch.no_grad():
        assert network.policy(features[0]).shape == (5,)
        assert network.policy(features.reshape(4, 10, 6)).shape == (4, 10, 5)


def test_slopes_in_the_precision_of_the_parameters() -> None:
    """A network under autocast gives bfloat16 logits; an entropy bonus must not trip over them."""
    family = action_kind(SPACES["discrete"])
    _, _, slopes = backprop.differentiated(
        family, torch.randn(8, 5, dtype=torch.bfloat16), torch.zeros(8, dtype=torch.int64)
    )
    assert slopes(torch.ones(8), -0.1).dtype == torch.bfloat16
