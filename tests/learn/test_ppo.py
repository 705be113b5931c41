"""The update: what a batch does to weights, and what poisoned numbers do not (FAULTS rows 21 and 22)."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from shoal.config import PPOConfig
from shoal.learn import backprop
from shoal.learn.distributions import action_kind
from shoal.learn.losses import Batch
from shoal.learn.networks import ActorCritic
from shoal.learn.ppo import PPO, Diverged

KINDS = {"discrete": spaces.Discrete(3), "box": spaces.Box(-1, 1, (2,)), "multi": spaces.MultiDiscrete([2, 3])}


def learner(kind: str = "discrete", **options) -> PPO:
    torch.manual_seed(0)
    family = action_kind(KINDS[kind])
    config = PPOConfig(**{"minibatch_size": 8, "update_epochs": 2, "lr_schedule": "constant", **options})
    return PPO(ActorCritic(4, family, hidden=(8,)).eval(), family, config)


def batch_for(ppo: PPO, size: int = 32, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((size, 4), generator=generator)
    with torch.no_grad():
        params = ppo.network.policy(features)
        actions = ppo.kind.sample(params, ppo.kind.noise((size,), generator))
        values = ppo.network.value(features)
        log_probs = ppo.kind.log_prob(params, actions)
    advantages = torch.randn(size, generator=generator)
    return Batch(features, None, actions, log_probs, advantages, values + advantages, values)


def shuffle() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def weights(ppo: PPO) -> list[torch.Tensor]:
    return [p.detach().clone() for p in ppo.parameters]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def all_finite(ppo: PPO) -> bool:
    state = [torch.from_numpy(np.asarray(value)) for value in ppo.state().values()]
    return all(bool(torch.isfinite(p).all()) for p in [*ppo.parameters, *state])


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_makes_good_actions_more_probable(kind) -> None:
    """For every kind of action: the surrogate and the value error both get better on the same batch."""
    ppo = learner(kind, learning_rate=3e-3, update_epochs=5)
    batch = batch_for(ppo)
    before = batch.log_probs
    metrics = ppo.update(batch, 0.0, shuffle())
    with torch.no_grad():
        after = ppo.kind.log_prob(ppo.network.policy(batch.features), batch.actions)
        values = ppo.network.value(batch.features)
    centred = batch.advantages - batch.advantages.mean()
    assert float(((after - before) * centred).mean()) > 0
    assert (values - batch.targets).square().mean() < (batch.values - batch.targets).square().mean()
    assert metrics["optim/gradient_steps"] == 5 * 4
    assert metrics["policy/kl"] > 0
    assert not ppo.network.training


def test_metrics_of_a_single_step_by_hand() -> None:
    """One minibatch of everything: losses, entropy and explained variance as computed apart."""
    ppo = learner(minibatch_size=64, update_epochs=1, entropy_coef=0.01)
    batch = batch_for(ppo)
    params = ppo.network.policy(batch.features).detach()
    metrics = ppo.update(batch, 0.0, shuffle())
    normalised = (batch.advantages - batch.advantages.mean()) / batch.advantages.std()
    assert metrics["loss/policy"] == pytest.approx(-float(normalised.mean()), abs=1e-6)
    assert metrics["loss/value"] == pytest.approx(0.5 * float((batch.targets - batch.values).square().mean()), rel=1e-5)
    assert metrics["policy/entropy"] == pytest.approx(float(ppo.kind.entropy(params).mean()), rel=1e-5)
    assert metrics["policy/kl"] == pytest.approx(0, abs=1e-6)
    explained = 1 - float((batch.targets - batch.values).var() / batch.targets.var())
    assert metrics["value/explained_variance"] == pytest.approx(explained, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_entropy_bonus_makes_a_policy_less_certain(kind) -> None:
    """With nothing else to gain, the weight of the entropy moves it up."""
    ppo = learner(kind, entropy_coef=1.0, learning_rate=1e-2, normalise_advantages=False, max_grad_norm=10.0)
    with torch.no_grad():
        ppo.network.policy_head.weight.normal_(0.0, 1.0, generator=torch.Generator().manual_seed(1))
    batch = batch_for(ppo)
    batch.advantages[:] = 0.0
    before = float(ppo.kind.entropy(ppo.network.policy(batch.features)).mean().detach())
    ppo.update(batch, 0.0, shuffle())
    after = float(ppo.kind.entropy(ppo.network.policy(batch.features)).mean().detach())
    assert after > before + 0.01


def test_explained_variance_ignores_a_constant_error() -> None:
    """1 for estimates off by a constant, 0 for a constant estimate, no number where targets do not vary."""
    ppo = learner()
    batch = batch_for(ppo)
    batch.values = batch.targets + 5
    assert ppo.update(batch, 0.0, shuffle())["value/explained_variance"] == pytest.approx(1.0, abs=1e-5)
    batch.values = torch.full_like(batch.targets, 2.0)
    assert ppo.update(batch, 0.0, shuffle())["value/explained_variance"] == pytest.approx(0.0, abs=1e-5)
    batch.targets = torch.ones_like(batch.targets)
    assert math.isnan(ppo.update(batch, 0.0, shuffle())["value/explained_variance"])


def test_advantages_are_normalised_over_the_batch_and_the_batch_stays_as_it_was() -> None:
    """Scaling and shifting all advantages changes nothing; the caller's batch is not written to."""
    one, other = learner(), learner()
    batch, scaled = batch_for(one), batch_for(other)
    scaled.advantages = scaled.advantages * 50 + 7
    kept = scaled.advantages.clone()
    one.update(batch, 0.0, shuffle())
    other.update(scaled, 0.0, shuffle())
    for a, b in zip(weights(one), weights(other), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert torch.equal(scaled.advantages, kept)


def test_schedules_reach_the_optimiser() -> None:
    """Learning rate, clip and entropy weight a quarter of the way."""
    options = {"lr_schedule": "linear", "learning_rate": 0.004, "lr_final": 0.0, "clip_schedule": "linear"}
    ppo = learner(**options, entropy_coef=0.1, entropy_schedule="linear")
    metrics = ppo.update(batch_for(ppo), 0.25, shuffle())
    assert metrics["optim/learning_rate"] == ppo.optimiser.param_groups[0]["lr"] == pytest.approx(0.003)
    assert metrics["optim/clip"] == pytest.approx(0.15)
    assert metrics["optim/entropy_coef"] == pytest.approx(0.075)


def test_clipping_knows_how_a_weight_lies_in_memory() -> None:
    """The same weights, row by row or column by column in memory, take the same step from clipped gradients."""
    stepped = []
    for transposed in (False, True):
        ppo = learner(max_grad_norm=1e-3)
        for layer in ppo.network.trunk.linears:
            if transposed:
                layer.weight.data = layer.weight.data.t().contiguous().t()
        ppo.update(batch_for(ppo), 0.0, shuffle())
        stepped.append(weights(ppo))
    for one, other in zip(*stepped, strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_clipped_to_the_norm() -> None:
    """The reported norm is of before the clipping, what the optimiser sees has at most the limit."""
    ppo = learner(max_grad_norm=1e-3, update_epochs=1, minibatch_size=64)
    metrics = ppo.update(batch_for(ppo), 0.0, shuffle())
    assert metrics["optim/grad_norm"] > 1e-3
    norm = torch.stack([p.grad.norm() for p in ppo.parameters]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)


def test_policy_and_value_train_apart_when_asked() -> None:
    """Three passes for the policy, one for the value; neither touches the other's weights."""
    ppo = learner(policy_epochs=3, value_epochs=1)
    calls: list[tuple[bool, bool]] = []
    step = ppo._step

    def spy(batch, recipe):
        frozen = ppo.network.value_trunk if recipe.policy else ppo.network.trunk
        before = frozen[0].weight.detach().clone()
        calls.append((recipe.policy, recipe.value))
        result = step(batch, recipe)
        assert torch.equal(frozen[0].weight, before)
        return result

    ppo._step = spy  # type: ignore[method-assign]
    metrics = ppo.update(batch_for(ppo), 0.0, shuffle())
    assert calls == [(True, False)] * 12 + [(False, True)] * 4
    assert metrics["optim/gradient_steps"] == 16


def test_a_kl_beyond_the_target_stops_the_update() -> None:
    """Early, counted, and before the step that would have gone further."""
    ppo = learner(target_kl=1e-3, learning_rate=0.05, update_epochs=20)
    metrics = ppo.update(batch_for(ppo), 0.0, shuffle())
    assert metrics["guard/kl_stops"] == 1
    assert 0 < metrics["optim/gradient_steps"] < 80


def test_a_kl_that_is_not_a_number_stops_the_update(monkeypatch) -> None:
    """Written `not (kl <= limit)`, so NaN stops too, at the first minibatch and without a step (row 22)."""
    plain = backprop.policy_loss_and_slope

    def poisoned(*arguments):
        loss, _, clipped, slope = plain(*arguments)
        return loss, torch.tensor(math.nan), clipped, slope

    monkeypatch.setattr(backprop, "policy_loss_and_slope", poisoned)
    ppo = learner(target_kl=0.1)
    before = weights(ppo)
    metrics = ppo.update(batch_for(ppo), 0.0, shuffle())
    assert metrics["guard/kl_stops"] == 1
    assert metrics["optim/gradient_steps"] == 0
    assert math.isnan(metrics["policy/kl"])
    assert same(weights(ppo), before)


@pytest.mark.parametrize("field", ["features", "log_probs", "advantages", "targets"])
def test_a_poisoned_row_is_kept_out_of_weights_and_optimiser(field) -> None:
    """NaN in one sample skips the minibatches that hold it, and only those."""
    ppo = learner(normalise_advantages=False)
    batch = batch_for(ppo)
    getattr(batch, field)[3] = math.nan
    before = weights(ppo)
    metrics = ppo.update(batch, 0.0, shuffle())
    assert all_finite(ppo)
    assert metrics["guard/skipped_steps"] == 2  # one minibatch in each of two passes
    assert metrics["optim/gradient_steps"] == 6
    assert not same(weights(ppo), before)


def test_gradients_that_stay_broken_stop_the_run() -> None:
    """Ten in a row raise Diverged with advice; weights stay what they were."""
    ppo = learner(update_epochs=50)
    batch = batch_for(ppo)
    batch.targets[:] = math.inf
    before = weights(ppo)
    with pytest.raises(Diverged, match=r"10 gradient steps in a row.*last good checkpoint.*--learning-rate"):
        ppo.update(batch, 0.0, shuffle())
    assert same(weights(ppo), before)
    assert not ppo.network.training


def test_skipped_steps_are_counted_over_updates() -> None:
    """Four bad minibatches an update: the third update reaches ten."""
    ppo = learner(update_epochs=1)
    batch = batch_for(ppo)
    batch.targets[:] = math.nan
    for _ in range(2):
        assert ppo.update(batch, 0.0, shuffle())["guard/skipped_steps"] == 4
    with pytest.raises(Diverged):
        ppo.update(batch, 0.0, shuffle())


def test_one_good_step_ends_a_row_of_bad_ones() -> None:
    """`in a row` means in a row."""
    ppo = learner(update_epochs=1)
    bad, good = batch_for(ppo), batch_for(ppo)
    bad.targets[:] = math.nan
    for _ in range(4):
        ppo.update(bad, 0.0, shuffle())
        ppo.update(good, 0.0, shuffle())
    assert ppo.skipped_in_a_row == 0


def break_weights(ppo: PPO) -> None:
    """Make every optimiser step write an infinity, beside what it does."""
    plain = ppo.optimiser.step

    def step(*_):
        plain()
        with torch.no_grad():
            ppo.parameters[0].fill_(math.inf)

    ppo.optimiser.step = step  # type: ignore[method-assign]


def test_an_update_that_breaks_the_weights_is_undone() -> None:
    """Weights and optimiser return to what they were, and it is counted."""
    ppo = learner(minibatch_size=64, update_epochs=1)
    ppo.update(batch_for(ppo), 0.0, shuffle())
    before, state = weights(ppo), ppo.state()
    break_weights(ppo)
    assert ppo.update(batch_for(ppo), 0.0, shuffle())["guard/restored_updates"] == 1
    assert same(weights(ppo), before)
    assert all(np.array_equal(ppo.state()[name], value) for name, value in state.items())


def test_updates_that_are_always_undone_stop_the_run() -> None:
    """A run that makes no progress for ever is worse than one that ends; its weights are still the good ones."""
    ppo = learner(minibatch_size=64, update_epochs=1)
    before = weights(ppo)
    break_weights(ppo)
    for _ in range(9):
        ppo.update(batch_for(ppo), 0.0, shuffle())
    with pytest.raises(Diverged, match="10 updates in a row"):
        ppo.update(batch_for(ppo), 0.0, shuffle())
    assert same(weights(ppo), before)


@pytest.mark.parametrize("size", [1, 2, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_tiny_and_flat_batches(kind, size) -> None:
    """One sample, or advantages without spread: normalisation is skipped and counted, weights stay finite."""
    ppo = learner(kind)
    batch = batch_for(ppo, size)
    batch.advantages[:] = 1.0
    metrics = ppo.update(batch, 0.0, shuffle())
    assert metrics["guard/flat_advantages"] == 1
    assert all_finite(ppo)


@pytest.mark.parametrize("kind", KINDS)
def test_a_learning_rate_of_ten_leaves_finite_weights(kind) -> None:
    """Nonsense options give nonsense policies, a stop, or Diverged, but never NaN in weights or Adam (row 22)."""
    ppo = learner(kind, learning_rate=10.0, update_epochs=10)
    try:
        for seed in range(20):
            ppo.update(batch_for(ppo, seed=seed), 0.0, shuffle())
    except Diverged:
        pass
    assert all_finite(ppo)


def test_behaviour_from_far_away_leaves_finite_weights() -> None:
    """Log-ratios of 1,000 in a whole batch."""
    ppo = learner()
    batch = batch_for(ppo)
    batch.log_probs = batch.log_probs + torch.where(torch.arange(32) % 2 == 0, 1e3, -1e3)
    metrics = ppo.update(batch, 0.0, shuffle())
    assert all_finite(ppo)
    assert math.isfinite(metrics["policy/kl"])


def test_the_optimiser_comes_back_from_its_state() -> None:
    """A copy goes on to the same bits."""
    one, other = learner(), learner()
    one.update(batch_for(one), 0.0, shuffle())
    other.network.load_state_dict(one.network.state_dict())
    other.set_state(one.state())
    for ppo in (one, other):
        ppo.update(batch_for(ppo, seed=1), 0.0, shuffle())
    assert same(weights(one), weights(other))
    assert all(np.array_equal(one.state()[name], value) for name, value in other.state().items())


def test_frozen_weights_are_not_trained() -> None:
    """A parameter with requires_grad=False stays, and Adam keeps nothing for it."""
    ppo = learner()
    network: nn.Module = ppo.network
    network.trunk[0].weight.requires_grad_(False)
    ppo = PPO(network, ppo.kind, ppo.config)
    before = network.trunk[0].weight.clone()
    ppo.update(batch_for(ppo), 0.0, shuffle())
    assert torch.equal(network.trunk[0].weight, before)
    assert len({name.split(".")[0] for name in ppo.state()}) == len(list(network.parameters())) - 1


def test_an_entropy_that_is_no_number_matters_only_with_a_bonus() -> None:
    """Logits of -inf, as some networks forbid actions, have a finite gradient and an entropy of NaN."""

    class Forbidding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def policy(self, features):
            return self.layer(features) + torch.tensor([0.0, 0.0, -math.inf])

        def value(self, features):
            return features.sum(-1)

    ppo = PPO(
        Forbidding(), action_kind(spaces.Discrete(3)), PPOConfig(minibatch_size=16, update_epochs=1, entropy_coef=0.0)
    )
    metrics = ppo.update(batch_for(ppo), 0.0, shuffle())
    assert metrics["guard/skipped_steps"] == 0
