"""Action distributions against torch.distributions, and what reaches the environment."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import distributions

from shoal.learn.distributions import ActionKind, Categorical, Gaussian, MultiCategorical, action_kind, gumbel


def random_params(kind, rows: int = 7, seed: int = 0) -> torch.Tensor:
    return torch.randn((rows, kind.num_params), generator=torch.Generator().manual_seed(seed))


def noise_for(kind, rows: int, seed: int = 0) -> torch.Tensor:
    return kind.noise((rows,), torch.Generator().manual_seed(seed))


def test_categorical_equals_torch() -> None:
    """Log-probability and entropy of one choice."""
    kind = Categorical(5)
    params, reference = random_params(kind), distributions.Categorical(logits=random_params(kind))
    actions = kind.sample(params, noise_for(kind, 7))
    torch.testing.assert_close(kind.log_prob(params, actions), reference.log_prob(actions))
    torch.testing.assert_close(kind.entropy(params), reference.entropy())
    assert torch.equal(kind.mode(params), reference.probs.argmax(-1))


def test_multi_categorical_equals_torch() -> None:
    """Log-probability and entropy of several choices are sums over them."""
    kind = MultiCategorical([2, 4, 3])
    params = random_params(kind)
    parts = [distributions.Categorical(logits=part) for part in params.split([2, 4, 3], -1)]
    actions = kind.sample(params, noise_for(kind, 7))
    expected = sum(part.log_prob(actions[:, i]) for i, part in enumerate(parts))
    torch.testing.assert_close(kind.log_prob(params, actions), expected)
    torch.testing.assert_close(kind.entropy(params), sum(part.entropy() for part in parts))
    assert kind.mode(params).tolist() == [
        list(row) for row in zip(*(p.probs.argmax(-1).tolist() for p in parts), strict=True)
    ]


def test_gaussian_equals_torch() -> None:
    """Log-probability and entropy of a diagonal Gaussian; its samples are mean + std * noise."""
    kind = Gaussian(spaces.Box(-1, 1, (3,)))
    params = random_params(kind)
    mean, log_std = params.chunk(2, -1)
    reference = distributions.Independent(distributions.Normal(mean, log_std.exp()), 1)
    noise = noise_for(kind, 7)
    actions = kind.sample(params, noise)
    torch.testing.assert_close(actions, mean + log_std.exp() * noise)
    torch.testing.assert_close(kind.log_prob(params, actions), reference.log_prob(actions))
    torch.testing.assert_close(kind.entropy(params), reference.entropy())
    assert torch.equal(kind.mode(params), mean)


def test_gumbel_sampling_has_the_probabilities_of_softmax() -> None:
    """100,000 samples: each frequency within 5 standard errors of its probability."""
    kind = Categorical(4)
    params = torch.tensor([0.0, 1.0, -1.0, 2.0])
    drawn = kind.sample(params.expand(100_000, 4), noise_for(kind, 100_000))
    probabilities = params.softmax(-1)
    frequencies = torch.bincount(drawn, minlength=4) / 100_000
    errors = (probabilities * (1 - probabilities) / 100_000).sqrt()
    assert ((frequencies - probabilities).abs() < 5 * errors).all()


def test_gumbel_noise_is_finite_and_has_eulers_mean() -> None:
    """Mean 0.5772 and variance pi^2 / 6 over a million draws."""
    noise = gumbel((1_000_000,), torch.Generator().manual_seed(0))
    assert torch.isfinite(noise).all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.007)
    assert float(noise.var()) == pytest.approx(np.pi**2 / 6, abs=0.02)


@pytest.mark.parametrize("shape", [(1,), (7, 3), (100, 60, 9), (3, 50_000, 2)])
def test_gumbel_noise_is_that_of_torchs_exponential_numbers(shape: tuple[int, ...]) -> None:
    """To the bit, and the generator is where it was left before: runs of older versions go on as they would have."""
    ours, theirs = torch.Generator().manual_seed(5), torch.Generator().manual_seed(5)
    expected = torch.empty(shape).exponential_(generator=theirs).clamp_(min=1e-30).log_().neg_()
    assert torch.equal(gumbel(shape, ours), expected)
    assert torch.equal(ours.get_state(), theirs.get_state())


@pytest.mark.parametrize("kind", [Categorical(4), MultiCategorical([2, 2]), action_kind(spaces.Box(-1, 1, (3,)))])
def test_noise_of_some_environments_is_that_part_of_all(kind: ActionKind) -> None:
    """Each rank keeps its own, and all go on alike."""
    one, another = torch.Generator().manual_seed(6), torch.Generator().manual_seed(6)
    whole = kind.noise((40, 600), one)
    for own in (slice(0, 200), slice(500, 600)):
        assert torch.equal(kind.noise((40, 600), torch.Generator().manual_seed(6), own), whole[:, own])
    kind.noise((40, 600), another, slice(0, 1))
    assert torch.equal(one.get_state(), another.get_state())


@pytest.mark.parametrize("kind", [Categorical(4), MultiCategorical([2, 2])], ids=["discrete", "multi"])
def test_a_forbidden_action_has_probability_exactly_0(kind) -> None:
    """Never sampled, never the mode, exp(log_prob) is 0.0, and the rest sums to 1."""
    mask = torch.tensor([True, False, True, False])
    params = kind.mask(torch.tensor([[-50.0, 50.0, 0.0, 50.0]]).expand(2000, 4), mask.expand(2000, 4))
    sampled, mode = kind.sample(params, noise_for(kind, 2000)), kind.mode(params)
    allowed = {0, 2} if isinstance(kind, Categorical) else {0}
    assert set(sampled.flatten().tolist()) <= allowed
    assert set(mode.flatten().tolist()) <= allowed
    forbidden = torch.ones_like(sampled)
    assert (kind.log_prob(params, forbidden).exp() == 0.0).all()
    assert torch.isfinite(kind.entropy(params)).all()
    assert float(kind.log_prob(params, mode).exp()[0]) == pytest.approx(1.0)


def test_entropy_under_a_mask_counts_legal_actions_only() -> None:
    """Two equal legal actions of four: log 2, with a finite gradient that is 0 for the forbidden."""
    kind = Categorical(4)
    logits = torch.zeros((1, 4), requires_grad=True)
    entropy = kind.entropy(kind.mask(logits, torch.tensor([[True, True, False, False]])))
    assert float(entropy.detach()) == pytest.approx(np.log(2))
    (
        entropy.sum()
        + kind.log_prob(kind.mask(logits, torch.tensor([[True, True, False, False]])), torch.tensor([0])).sum()
    ).backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2:].tolist() == [0.0, 0.0]


def test_a_mask_on_a_continuous_action_is_refused() -> None:
    """A Box has no actions to forbid one by one."""
    with pytest.raises(TypeError, match="Box"):
        Gaussian(spaces.Box(-1, 1, (1,))).mask(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))


finite = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=200, deadline=None)
@given(low=finite, size=st.floats(0, 1e6, width=32), action=st.floats(width=32, allow_nan=False))
def test_what_reaches_a_bounded_environment_is_inside_its_bounds(low, size, action) -> None:
    """Whatever the policy says, infinities included; rounding must not step over a bound."""
    space = spaces.Box(np.float32(low), np.float32(low) + np.float32(size), (1,), np.float32)
    assert Gaussian(space).to_env(np.array([[action]], np.float32))[0] in space


def test_bounded_actions_are_stretched() -> None:
    """-1, 0 and 1 become the low bound, the middle and the high bound; beyond is cut off."""
    kind = Gaussian(spaces.Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32)))
    given_ = np.array([[-1, -1], [0, 0], [1, 1], [9, -9]], np.float32)
    assert kind.to_env(given_).tolist() == [[-2, 0], [0, 5], [2, 10], [2, 0]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 1], np.float32)),
        spaces.Box(np.finfo(np.float32).min, np.finfo(np.float32).max, (2,)),
    ],
    ids=["unbounded", "half bounded", "bounds of the dtype"],
)
def test_unbounded_actions_pass_as_they_are(space) -> None:
    """Only what lies outside a bound is changed, and nothing becomes NaN."""
    assert Gaussian(space).to_env(np.array([[0.5, 0.25]], np.float32)).tolist() == [[0.5, 0.25]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_have_the_shape_and_dtype_of_the_space(dtype) -> None:
    """A matrix of actions keeps its shape."""
    actions = Gaussian(spaces.Box(-1, 1, (2, 3), dtype)).to_env(np.zeros((5, 6), np.float32))
    assert actions.shape == (5, 2, 3)
    assert actions.dtype == dtype


def test_discrete_actions_start_where_the_space_does() -> None:
    """Discrete(3, start=5) gets 5, 6, 7."""
    assert action_kind(spaces.Discrete(3, start=5)).to_env(np.array([0, 2])).tolist() == [5, 7]


def test_multi_binary_is_a_choice_of_two_each() -> None:
    """Three bits are three choices, and 1 means 1."""
    kind = action_kind(spaces.MultiBinary(3))
    assert kind.choices == [2, 2, 2]
    assert kind.mode(torch.tensor([[0.0, 1.0, 1.0, 0.0, 0.0, 1.0]])).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(3),
        spaces.Box(0, 9, (2,), np.int64),
        spaces.MultiDiscrete([[2, 2]]),
        spaces.MultiDiscrete([2, 2], start=[1, 0]),
        spaces.Dict(a=spaces.Discrete(2)),
    ],
)
def test_other_action_spaces_are_refused_by_name(space) -> None:
    """The message says what there is and what to do."""
    with pytest.raises(TypeError, match=r"acts in Discrete.*got .*Wrap the environment"):
        action_kind(space)
