"""Networks: what they compute with and without a graph."""

from __future__ import annotations

import pytest
import torch

from shoal.learn.network import Trunk, tanh_


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
