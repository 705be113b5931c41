"""What crosses between a Ray actor and its owner: rows of a block as one array of bytes, each way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core.arrays import Array
from shoal.vector.memory import Block

SEEDING = ("reset_mask", "bases", "indices", "first_seeds", "episodes")  # what a reset is told, beside the options
OVER = ("terminated", "truncated")  # what a replay is told besides: whose episode was over
OUTCOME = ("rewards", "terminated", "truncated", "restarted", "seeds", "episodes", "elapsed")  # what comes back


def told(block: Block, names: Sequence[str]) -> list[Array]:
    """The arrays of these names."""
    return [getattr(block, name) for name in names]


def outcome(block: Block) -> list[Array]:
    """The arrays that come back from every reset and step: observations first."""
    return [*block.observations, *told(block, OUTCOME)]


def pack(arrays: Sequence[Array], rows: slice | Array = slice(None)) -> Array:
    """These rows of each array, one after another, as bytes: uint8[size]."""
    parts = [np.ascontiguousarray(array[rows]).reshape(-1).view(np.uint8) for array in arrays]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)


def unpack(packed: Array, arrays: Sequence[Array], rows: slice | Array = slice(None)) -> None:
    """The inverse of `pack`: write these rows of each array.

    >>> a, b = np.arange(6.0).reshape(3, 2), np.array([True, False, True])
    >>> c, d = np.zeros((5, 2)), np.zeros(5, bool)
    >>> unpack(pack([a, b], slice(1, 3)), [c, d], slice(0, 2))
    >>> c[:2].tolist(), d.tolist()
    ([[2.0, 3.0], [4.0, 5.0]], [False, True, False, False, False])
    """
    offset = 0
    for array in arrays:
        target = array[rows]
        part = packed[offset : offset + target.nbytes]
        array[rows] = np.frombuffer(part, array.dtype).reshape(target.shape)
        offset += target.nbytes
    if offset != packed.nbytes:
        raise ValueError(f"expected {offset} bytes of rows from an actor, got {packed.nbytes}: is its shoal another?")
