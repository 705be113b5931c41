"""Networks: what they compute with and without a graph."""

from __future__ import annotations

import pytest
import torch

from shoal.learn.network import Trunk


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu"])
@pytest.mark.parametrize("hidden", [(), (5,), (7, 3)])
def test_a_trunk_without_a_graph_is_the_same(activation: str, hidden: tuple[int, ...]) -> None:
    """The lean way through the layers gives the layers' own numbers, and leaves its input alone."""
    torch.manual_seed(0)
    trunk, features = Trunk([6, *hidden], activation), torch.randn(9, 6)
    kept = features.clone()
    with torch.no_grad():
        lean = trunk(features)
    assert torch.equal(lean, trunk(features))
    assert torch.equal(features, kept)


def test_an_unknown_activation_is_refused() -> None:
    """The choices are named."""
    with pytest.raises(ValueError, match="tanh, relu, silu"):
        Trunk([2, 3], "gelu")
