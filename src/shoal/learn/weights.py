"""A network's weights as plain arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from shoal.core.arrays import Array
from shoal.runs.manifest import CheckpointError


def weights_of(network: nn.Module) -> dict[str, Array]:
    """A network's weights and buffers as plain arrays."""
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in network.state_dict().items()}


def by_part(tensors: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """The arrays of a checkpoint, whose names are PART.NAME, by part.

    >>> by_part({"network.w": np.zeros(1), "noise": np.ones(2)})
    {'network': {'w': array([0.])}, 'noise': {'': array([1., 1.])}}
    """
    found: dict[str, dict[str, Array]] = {}
    for name, value in tensors.items():
        part, _, rest = name.partition(".")
        found.setdefault(part, {})[rest] = value
    return found


def load_weights(network: nn.Module, arrays: dict[str, Any]) -> None:
    """The inverse of `weights_of`; names and shapes must agree, and weights must be finite."""
    own = network.state_dict()
    for name in sorted(set(own) | set(arrays)):
        expected = tuple(own[name].shape) if name in own else "nothing"
        got = tuple(np.shape(arrays[name])) if name in arrays else "nothing"
        if expected != got:
            raise ValueError(
                f"the saved weights do not fit this network: expected {name} of shape {expected}, got {got}. "
                "Use the observation and action spaces and the network options of the run that saved them"
            )
    for name, parameter in network.named_parameters():  # a buffer may hold infinities, such as a mask of attention
        if parameter.is_floating_point() and not np.isfinite(arrays[name]).all():
            raise CheckpointError(f"the saved weights {name} are not all finite: use an older checkpoint")
    network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in arrays.items()})
