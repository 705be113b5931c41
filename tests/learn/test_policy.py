"""Agent and networks: what acts, and which networks are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from shoal.config import PPOConfig
from shoal.learn.distributions import action_kind
from shoal.learn.networks import ActorCritic, Trunk
from shoal.learn.policy import CLIP, Agent, check_device
from shoal.learn.weights import load_weights, weights_of

BOX, DISCRETE = spaces.Box(-9, 9, (3,)), spaces.Discrete(2)


class Custom(nn.Module):
    """A network of the user's, with dropout; `value_shape` may be wrong on purpose."""

    def __init__(self, outputs: int = 2, flat: bool = True) -> None:
        super().__init__()
        self.body, self.flat = nn.Sequential(nn.Linear(3, 32), nn.Dropout(0.5)), flat
        self.head, self.critic = nn.Linear(32, outputs), nn.Linear(32, 1)

    def policy(self, features: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(features))

    def value(self, features: torch.Tensor) -> torch.Tensor:
        value = self.critic(self.body(features))
        return value.squeeze(-1) if self.flat else value


def test_the_same_seed_gives_the_same_weights_and_leaves_torchs_generator_alone() -> None:
    """Initialisation depends on its seed only, and disturbs nobody else's random numbers."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one = Agent(BOX, DISCRETE, PPOConfig(), init_seed=1)
    assert torch.equal(torch.rand(3), expected)
    two, three = (Agent(BOX, DISCRETE, PPOConfig(), init_seed=seed) for seed in (1, 2))
    weights = [weights_of(agent.network)["trunk.0.weight"] for agent in (one, two, three)]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_initialisation_is_orthogonal_with_the_gains_of_the_paper() -> None:
    """sqrt 2 inside, 0.01 for the policy's last layer, 1 for the value's; biases 0."""
    network = ActorCritic(8, action_kind(spaces.Discrete(4)))
    gains = [(network.trunk[0], 2.0), (network.policy_head, 1e-4), (network.value_head, 1.0)]
    for layer, square in gains:
        rows = min(layer.weight.shape)
        gram = layer.weight @ layer.weight.T if layer.weight.shape[0] == rows else layer.weight.T @ layer.weight
        torch.testing.assert_close(gram, square * torch.eye(rows), rtol=1e-3, atol=1e-6)
        assert not layer.bias.any()


def test_a_shared_trunk_is_one_and_separate_ones_are_two() -> None:
    """A gradient of the value reaches the policy's trunk only if it is shared."""
    for shared in (True, False):
        network = ActorCritic(3, action_kind(DISCRETE), shared=shared)
        network.value(torch.ones(1, 3)).sum().backward()
        assert (network.trunk[0].weight.grad is not None) is shared


def test_initial_std_of_a_gaussian_policy() -> None:
    """The second half of the parameters is the logarithm of the standard deviation, the same for every state."""
    network = ActorCritic(3, action_kind(spaces.Box(-1, 1, (2,))), initial_std=0.5)
    params = network.policy(torch.randn(4, 3))
    assert params.shape == (4, 4)
    torch.testing.assert_close(params[:, 2:].exp(), torch.full((4, 2), 0.5))


def test_an_unknown_activation_is_refused() -> None:
    """By name, with those there are."""
    with pytest.raises(ValueError, match=r"expected an activation of tanh, relu, silu, got 'gelu'"):
        Trunk([1, 2], "gelu")


def test_acting_uses_no_dropout() -> None:
    """A network is in eval mode whenever it acts: the same state, the same parameters."""
    agent = Agent(BOX, DISCRETE, PPOConfig(), network=Custom())
    leaves = [torch.ones(4, 3)]
    assert torch.equal(agent.distribution(leaves), agent.distribution(leaves))


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (Custom(flat=False), r"Custom.value to give shape \(2,\) .* got \(2, 1\)"),
        (Custom(outputs=5), r"Custom.policy to give shape \(2, 2\) .* got \(2, 5\)"),
    ],
)
def test_a_network_with_outputs_of_the_wrong_shape_is_refused(network, message) -> None:
    """A value of shape [B, 1] would broadcast against [B] targets and learn nonsense."""
    with pytest.raises(ValueError, match=message):
        Agent(BOX, DISCRETE, PPOConfig(), network=network)


def test_a_network_without_the_two_methods_is_refused() -> None:
    """The message says which one is missing."""
    with pytest.raises(TypeError, match=r"Linear has no policy"):
        Agent(BOX, DISCRETE, PPOConfig(), network=nn.Linear(3, 2))


def test_a_mask_of_the_wrong_width_is_refused() -> None:
    """Three mask entries for two actions."""
    space = spaces.Dict(obs=BOX, action_mask=spaces.MultiBinary(3))
    with pytest.raises(ValueError, match=r"action_mask of 2 entries, got shape \(3,\)"):
        Agent(space, DISCRETE, PPOConfig())


def test_observations_are_normalised_and_cut_off() -> None:
    """(x - mean) / std of what was learned, cut off at +-10; before anything is learned they pass."""
    agent = Agent(BOX, DISCRETE, PPOConfig(normalise_observations=True))
    data = np.random.default_rng(0).normal(3, 2, (500, 3)).astype(np.float32)
    raw = [torch.from_numpy(data)]
    torch.testing.assert_close(agent.encode(raw), raw[0].clamp(-CLIP, CLIP))
    agent.learn_scale(raw, np.ones(500, bool))
    expected = (data - data.mean(0)) / data.std(0)
    np.testing.assert_allclose(agent.encode(raw).numpy(), expected, rtol=1e-3, atol=1e-4)
    assert agent.encode([torch.full((1, 3), 1e9)]).tolist() == [[CLIP] * 3]


def test_weights_of_another_shape_are_refused_by_name() -> None:
    """The message names the tensor and both shapes."""
    small, large = (ActorCritic(3, action_kind(DISCRETE), hidden=(width,)) for width in (4, 8))
    with pytest.raises(ValueError, match=r"expected policy_head.weight of shape \(2, 8\), got \(2, 4\)"):
        load_weights(large, weights_of(small))


def test_a_device_that_is_not_there_is_refused() -> None:
    """With what to do instead."""
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match=r"--device cuda.*Use --device cpu"):
            check_device("cuda")
    check_device("cpu")


def test_the_same_weights_whatever_the_number_of_threads() -> None:
    """The core allowance of a machine is no part of the seed."""
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        agent = Agent(spaces.Box(-1, 1, (96,)), DISCRETE, PPOConfig(hidden=(256, 256)), init_seed=5)
        assert torch.get_num_threads() == threads
        found.append(weights_of(agent.network))
    torch.set_num_threads(1)
    for name, value in found[0].items():
        assert all(np.array_equal(value, other[name]) for other in found[1:]), name


@pytest.mark.parametrize(("size", "dtype"), [(1e6, np.float64), (1e8, np.float64), (10**9, np.int64)])
def test_digits_are_cut_after_the_mean_is_taken_off(size, dtype) -> None:
    """Time stamps, prices, UTM coordinates: a spread of some units around a huge mean is all there is to see."""
    space = spaces.Box(-np.inf, np.inf, (2,), dtype) if dtype == np.float64 else spaces.Box(0, 10**12, (2,), dtype)
    agent = Agent(space, DISCRETE, PPOConfig(normalise_observations=True))
    small = np.random.default_rng(0).integers(-4, 5, (500, 2))
    raw = [torch.from_numpy((small + size).astype(dtype))]
    agent.learn_scale(raw, np.ones(500, bool))
    expected = (small - small.mean(0)) / small.std(0)
    np.testing.assert_allclose(agent.encode(raw).numpy(), expected, rtol=1e-4, atol=1e-4)
    assert agent.encode(raw).dtype == torch.float32
