"""Observations as the network sees them: one row per environment, and the action mask apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from shoal.core.arrays import Array, Layout
from shoal.core.errors import Unsupported
from shoal.learn.pictures import Encoder, pictures

MASK_KEY = "action_mask"


class Features:
    """Turns leaf arrays of an observation space into features `[B, size]`.

    Numbers pass as float32, bytes are scaled to [0, 1], Discrete and MultiDiscrete become one-hot. In a Dict
    observation the part named `action_mask` is left out: it is not seen by the network but applied to its logits.

    Pictures for an `encoder` stay bytes: then a row is packed, uint8[bytes], the pictures first and the float32 numbers
    behind them, and `size` counts the numbers alone.
    """

    def __init__(self, space: spaces.Space[Any], encoder: Encoder = "flat") -> None:
        self.layout = Layout(space)
        self.pictures = pictures(space, encoder)
        seen = {picture.leaf for picture in self.pictures}
        self.mask_leaf: int | None = None
        self._parts: list[tuple[int, str, Any]] = []  # (leaf, how, detail)
        self.size = 0
        self.wide = False  # whether some number has more digits than a float32
        for leaf, (path, shape, dtype) in enumerate(self.layout.leaves):
            if path == (MASK_KEY,):
                self.mask_leaf = leaf
                continue
            if leaf in seen:
                continue
            part = _find(space, path)
            if isinstance(part, spaces.Discrete):
                self._one_hot(leaf, path, [int(part.start)], [int(part.n)])
            elif isinstance(part, spaces.MultiDiscrete):
                self._one_hot(leaf, path, part.start.ravel().tolist(), part.nvec.ravel().tolist())
            else:
                bytes_ = dtype == np.uint8 and isinstance(part, spaces.Box) and float(np.max(part.high)) == 255
                scale = 1 / 255 if bytes_ else 1.0
                self._parts.append((leaf, "number", scale))
                self.size += int(np.prod(shape))
                self.wide |= (dtype.kind == "f" and dtype.itemsize > 4) or (dtype.kind in "iu" and dtype.itemsize >= 4)
        if self.size == 0 and not self.pictures:
            raise Unsupported(f"expected an observation with something to see beside {MASK_KEY!r}, got {space}")
        self._plain = len(self._parts) == 1 and self._parts[0][1:] == ("number", 1.0)

    @property
    def width(self) -> int:
        """Columns of a row: numbers, or bytes where there are pictures."""
        return sum(picture.numbers for picture in self.pictures) + 4 * self.size if self.pictures else self.size

    @property
    def dtype(self) -> torch.dtype:
        """Of a row."""
        return torch.uint8 if self.pictures else torch.float32

    @property
    def is_picture(self) -> bool:
        """Whether a row is one picture and no more, so that the environment's own bytes are its rows."""
        return len(self.pictures) == 1 and self.size == 0

    def pack(self, leaves: Sequence[Tensor], numbers: Tensor) -> Tensor:
        """Rows for the network: `numbers` [B, size] themselves, or behind the pictures of `leaves`."""
        if not self.pictures:
            return numbers
        parts = [leaves[picture.leaf].flatten(1).to(numbers.device) for picture in self.pictures]
        return parts[0] if self.is_picture else torch.cat([*parts, numbers.contiguous().view(torch.uint8)], 1)

    def _one_hot(self, leaf: int, path: tuple[Any, ...], starts: list[int], counts: list[int]) -> None:
        first = np.cumsum([0, *counts[:-1]])  # column at which each component begins
        low, most = torch.tensor(starts), torch.tensor(counts)
        name = "the observation" + (f" part {'/'.join(map(str, path))}" if path else "")
        self._parts.append((leaf, "one-hot", (low, most, torch.from_numpy(first), sum(counts), name)))
        self.size += sum(counts)

    @property
    def known_variances(self) -> Array:
        """float64[size]: of one-hot features, were all states as common; NaN for the others: theirs is learned."""
        known = []
        for leaf, how, detail in self._parts:
            if how == "number":
                known.append(np.full(int(np.prod(self.layout.leaves[leaf][1])), np.nan))
            else:
                known += [np.full(count, 1 / count) for count in detail[1].tolist()]
        return np.concatenate(known) if known else np.zeros(0)

    def encode(self, leaves: Sequence[Tensor], dtype: torch.dtype = torch.float32) -> Tensor:
        """Leaf tensors `[B, *shape]` to features `[B, size]`, float32 unless a caller needs more digits."""
        if not self._parts:
            return torch.empty((len(leaves[0]), 0), dtype=dtype)
        if self._plain:
            return _rows(leaves[self._parts[0][0]]).to(dtype)
        columns = []
        for leaf, how, detail in self._parts:
            value = leaves[leaf]
            if how == "number":
                value = _rows(value).to(dtype)
                columns.append(value if detail == 1.0 else value.mul_(detail))  # bytes: the numbers are a copy
            else:
                low, most, first, size, name = detail
                value = _rows(value).long() - low
                if ((value < 0) | (value >= most)).any():
                    row, part = (int(i) for i in ((value < 0) | (value >= most)).nonzero()[0])
                    raise ValueError(
                        f"expected {name} in {int(low[part])} to {int(low[part] + most[part]) - 1}, got "
                        f"{int(value[row, part] + low[part])} in row {row}"
                    )
                columns.append(torch.zeros((len(value), size), dtype=dtype).scatter_(1, value + first, 1.0))
        return columns[0] if len(columns) == 1 else torch.cat(columns, 1)

    def masks(self, leaves: Sequence[Tensor]) -> Tensor | None:
        """Boolean action masks `[B, n]`, or None where the environment gives none."""
        if self.mask_leaf is None:
            return None
        return _rows(leaves[self.mask_leaf]) != 0


def check_masks(mask: Array, choices: Sequence[int] = (), *, first: int = 0, final: Array | None = None) -> None:
    """Refuse a row without a legal action. `mask` is [N, n], of the environments from `first` on.

    `choices` are the lengths of the parts of a MultiDiscrete action's mask: each needs a legal entry. Rows
    marked in `final` (bool[N]) hold an episode's last observation, from which nobody acts.
    """
    starts = np.cumsum([0, *choices[:-1]])
    legal = np.logical_or.reduceat(mask.reshape(len(mask), -1), starts, axis=1)  # bool[N, parts]
    if final is not None:
        legal[final] = True
    if not legal.all():
        row, part = (int(i) for i in np.argwhere(~legal)[0])
        where = "every entry" if len(starts) == 1 else f"every entry for part {part} of the action"
        raise ValueError(
            f"environment {first + row} allows no action at all: {where} of its action_mask is 0. "
            "An environment must leave at least one action legal in every state that is not final."
        )


def _rows(value: Tensor) -> Tensor:
    """`[B, *shape]` as `[B, size]`, a shape of () included."""
    return value.unsqueeze(1) if value.dim() == 1 else value.flatten(1)


def _find(space: Any, path: tuple[Any, ...]) -> spaces.Space[Any]:
    for key in path:
        space = space[key]  # a Dict by name, a Tuple by number
    found: spaces.Space[Any] = space
    return found
