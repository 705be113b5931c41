"""The pure functions of PPO against hand-worked numbers."""

from __future__ import annotations

import math

import pytest
import torch

from shoal.learn.backprop import policy_loss_and_slope, value_loss_and_slope
from shoal.learn.losses import MAX_LOG_RATIO, policy_loss, value_loss
from shoal.learn.ppo import minibatches, normalised, schedule


def logs(*probabilities: float) -> torch.Tensor:
    return torch.tensor(probabilities).log()


def test_policy_loss_by_hand() -> None:
    """Ratios 1.5 and 0.5 against advantages of both signs, clip 0.2."""
    new, old = logs(0.3, 0.3, 0.1, 0.1), logs(0.2, 0.2, 0.2, 0.2)  # ratios 1.5, 1.5, 0.5, 0.5
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    loss, _, clipped = policy_loss(new, old, advantages, 0.2)
    # min(1.5, 1.2), min(-1.5, -1.2), min(0.5, 0.8), min(-0.5, -0.8)
    assert float(loss) == pytest.approx(-(1.2 - 1.5 + 0.5 - 0.8) / 4)
    assert float(clipped) == 1.0


def test_policy_loss_of_the_behaviour_policy_is_the_policy_gradient() -> None:
    """Where nothing has changed the loss is minus the mean advantage and its gradient that of -A log p."""
    log_probs, advantages = logs(0.2, 0.5), torch.tensor([2.0, -1.0])
    loss, kl, clipped, slope = policy_loss_and_slope(log_probs, log_probs, advantages, 0.2)
    assert loss.item() == pytest.approx(-0.5)
    assert slope.tolist() == pytest.approx([-1.0, 0.5])
    assert float(kl) == float(clipped) == 0.0


def test_clipped_samples_give_no_gradient() -> None:
    """A ratio beyond the clip range in the direction of its advantage is left alone."""
    _, _, _, slope = policy_loss_and_slope(logs(0.3, 0.1), logs(0.2, 0.2), torch.tensor([1.0, -1.0]), 0.2)
    assert slope.tolist() == [0.0, 0.0]


def test_kl_is_of_old_from_new() -> None:
    """Actions drawn in exact proportion to the old policy give KL(old || new), not its reverse."""
    old, new = (0.5, 0.25, 0.25), (0.125, 0.625, 0.25)
    drawn = [0, 0, 1, 2]
    _, kl, _ = policy_loss(logs(*(new[a] for a in drawn)), logs(*(old[a] for a in drawn)), torch.zeros(4), 0.2)
    assert float(kl) == pytest.approx(sum(p * math.log(p / q) for p, q in zip(old, new, strict=True)), rel=1e-5)
    assert float(kl) != pytest.approx(sum(q * math.log(q / p) for p, q in zip(old, new, strict=True)), rel=0.05)


@pytest.mark.parametrize("distance", [1e3, -1e3])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_huge_log_ratio_stays_finite(distance: float, advantage: float) -> None:
    """A log-ratio of 1,000 gives a finite loss, KL and gradient (FAULTS row 21)."""
    log_probs = torch.tensor([distance, 0.0])
    loss, kl, _, slope = policy_loss_and_slope(log_probs, torch.zeros(2), torch.tensor([advantage, 1.0]), 0.2)
    assert math.isfinite(loss.item())
    assert math.isfinite(float(kl))
    assert torch.isfinite(slope).all()
    assert abs(loss.item()) <= math.exp(MAX_LOG_RATIO)


def test_value_loss_by_hand() -> None:
    """Half the mean square; with a clip the worse of the plain and the clipped error counts."""
    values, targets, old = torch.tensor([2.0, 0.5]), torch.tensor([1.0, 1.0]), torch.tensor([0.5, 0.0])
    assert value_loss(values, targets, old, None).item() == pytest.approx(0.5 * (1 + 0.25) / 2)
    # Clipped to 0.2: estimates 0.7 and 0.2, errors 0.09 and 0.64; plain errors 1 and 0.25.
    assert value_loss(values, targets, old, 0.2).item() == pytest.approx(0.5 * (1 + 0.64) / 2)
    # Clipped to 1: estimates 1.5 and 0.5; the plain errors count.
    assert value_loss(values, targets, old, 1.0).item() == pytest.approx(0.5 * (1 + 0.25) / 2)


def test_value_clip_stops_the_gradient_of_a_far_estimate() -> None:
    """An estimate that moved from 0.5 beyond the clip range towards its target counts as 0.7 and is not pushed on."""
    loss, slope = value_loss_and_slope(torch.tensor([0.9]), torch.tensor([1.0]), torch.tensor([0.5]), 0.2)
    assert loss.item() == pytest.approx(0.5 * 0.3**2)
    assert slope.tolist() == [0.0]


def test_slopes_equal_autograd() -> None:
    """Of both losses, on samples inside and outside of the clip range, pushed either way, and beyond the guard."""
    rng = torch.Generator().manual_seed(0)
    old, advantages = torch.randn(200, generator=rng), torch.randn(200, generator=rng)
    new = (old + 0.4 * torch.randn(200, generator=rng)).index_fill(0, torch.tensor([3, 4]), 1e3).requires_grad_()
    loss, kl, clipped = policy_loss(new, old, advantages, 0.2)
    assert 0.3 < float(clipped) < 0.9
    *same, slope = policy_loss_and_slope(new, old, advantages, 0.2)
    for one, other in zip(same, (loss, kl, clipped), strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(slope, torch.autograd.grad(loss, new)[0])
    for clip in (None, 0.3):
        error, slope = value_loss_and_slope(new, advantages, old, clip)
        assert torch.equal(error, value_loss(new, advantages, old, clip))
        torch.testing.assert_close(slope, torch.autograd.grad(error, new)[0])


@pytest.mark.parametrize(
    ("name", "expected"),
    [("constant", [4, 4, 4]), ("linear", [4, 3, 2]), ("cosine", [4, 3, 2])],
)
def test_schedules_at_start_middle_and_end(name, expected) -> None:
    """From start to end, half-way in the middle, held outside."""
    assert [schedule(name, 4.0, 2.0, p) for p in (0.0, 0.5, 1.0)] == pytest.approx(expected)
    assert schedule(name, 4.0, 2.0, 7.0) == pytest.approx(expected[2])
    assert schedule(name, 4.0, 2.0, -1.0) == pytest.approx(expected[0])


def test_cosine_is_flat_at_both_ends() -> None:
    """A quarter of the way the cosine has gone less than the line, three quarters of the way more."""
    assert schedule("cosine", 1.0, 0.0, 0.25) == pytest.approx(0.5 + math.sqrt(0.125))
    assert schedule("cosine", 1.0, 0.0, 0.75) == pytest.approx(0.5 - math.sqrt(0.125))


def test_normalised_advantages_have_mean_0_and_spread_1() -> None:
    """Over the whole batch."""
    advantages, done = normalised(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert done
    assert float(advantages.mean()) == pytest.approx(0, abs=1e-6)
    assert float(advantages.std()) == pytest.approx(1)


@pytest.mark.parametrize("advantages", [[3.0], [2.0, 2.0, 2.0], [float("nan"), 1.0], []])
def test_advantages_without_spread_stay_as_they_are(advantages) -> None:
    """One sample, equal samples, or a spread that is not a number: nothing is divided."""
    given = torch.tensor(advantages)
    result, done = normalised(given)
    assert not done
    assert result is given


@pytest.mark.parametrize(("size", "most", "sizes"), [(10, 4, [4, 3, 3]), (8, 4, [4, 4]), (3, 100, [3]), (1, 1, [1])])
def test_minibatches_hold_every_row_once(size, most, sizes) -> None:
    """Equal parts, no row twice, none left out, another order each time."""
    generator = torch.Generator().manual_seed(1)
    parts = list(minibatches(size, most, generator))
    assert sorted((len(part) for part in parts), reverse=True) == sizes
    assert sorted(torch.cat(parts).tolist()) == list(range(size))
    if size == 10:
        assert torch.cat(list(minibatches(size, most, generator))).tolist() != torch.cat(parts).tolist()
