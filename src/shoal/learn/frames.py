"""Observations of a rollout. Where they are stacks of frames (`--frame-stack`), each frame is kept once: a stack is put
together when a minibatch asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.core.arrays import Array
from shoal.learn.encoders import Features
from shoal.vector.adapt import Stepper

Rows = slice | Tensor  # of the flat rows [(T + 1) N]: row t N + n is of environment n at step t


class Observations:
    """What N environments show in T steps, rows 0 to T. They write into it themselves where they can."""

    def __init__(self, stepper: Stepper, steps: int) -> None:
        self.steps, self.num_envs = steps, stepper.env.num_envs
        self.kept = self._allocate(stepper)
        self.tensors = [torch.from_numpy(array) for array in self.kept]

    def _allocate(self, stepper: Stepper) -> list[Array]:
        return stepper.allocate(self.steps + 1)  # per leaf [T + 1, N, *shape]

    def __len__(self) -> int:
        return (self.steps + 1) * self.num_envs

    def places(self, t: int) -> list[Array]:
        """What the environments write row t into, per leaf [N, *shape]."""
        return [array[t] for array in self.kept]

    def written(self, t: int, rows: slice, begun: Array) -> None:
        """Row t is there, of these environments; in those marked in bool[n] an episode begins with it."""

    def shown(self, t: int, rows: slice) -> list[Tensor]:
        """What these environments showed last, that is row t, per leaf [n, *shape]."""
        return [tensor[t, rows] for tensor in self.tensors]

    def begin(self, observations: Sequence[Array] | None = None) -> None:
        """Row 0 is there: as it was written into `places(0)`, or as given."""
        for array, row in zip(self.places(0), observations or (), strict=False):
            array[:] = row

    def first(self) -> list[Array]:
        """Row 0, per leaf [N, *shape]."""
        return self.places(0)

    def carry_over(self) -> None:
        """The last row becomes the first one of the next rollout."""
        for array in self.kept:
            array[0] = array[-1]

    @property
    def flat(self) -> list[Tensor]:
        """Per leaf [(T + 1) N, *shape]; of stacks their frames, which are other rows."""
        return [tensor.flatten(0, 1) for tensor in self.tensors]

    def index(self, leaf: int, rows: Tensor) -> Tensor:
        """int64[B, k]: which of `flat` the flat rows int64[B] consist of; the newest frame of a stack is the last."""
        return rows.unsqueeze(1)

    def leaves(self, rows: slice) -> list[Tensor]:
        """Flat rows, per leaf [B, *shape]."""
        return [leaf[rows] for leaf in self.flat]


class FramedObservations(Observations):
    """The same where some leaves are stacks of the last `depth` frames: row t of a stack is frames t to t + depth - 1,
    its episode's first frame in the place of those from before the episode."""

    def __init__(self, stepper: Stepper, steps: int, depth: int, stacked: Sequence[int]) -> None:
        self.depth, self.stacked = depth, frozenset(stacked)
        self.present = [array[0] for array in stepper.allocate(1)]  # per leaf [N, *shape], whole stacks
        super().__init__(stepper, steps)
        self._earliest = np.zeros((steps + 1, self.num_envs), np.int64)  # frame that a stack may go back to

    def _allocate(self, stepper: Stepper) -> list[Array]:
        kept = []
        for leaf, (_, shape, dtype) in enumerate(stepper.layout.leaves):
            if leaf in self.stacked:
                one = shape[1:] if len(shape) == 4 else (*shape[:2], shape[2] // self.depth)
                kept.append(np.zeros((self.depth + self.steps, self.num_envs, *one), dtype))
            else:
                kept.append(np.zeros((self.steps + 1, self.num_envs, *shape), dtype))
        return kept

    def places(self, t: int) -> list[Array]:
        return self.present

    def written(self, t: int, rows: slice, begun: Array) -> None:
        for leaf, (array, now) in enumerate(zip(self.kept, self.present, strict=True)):
            if leaf in self.stacked:
                array[t + self.depth - 1, rows] = self._frames(now[rows])[-1]
            else:
                array[t, rows] = now[rows]
        self._earliest[t, rows] = np.where(begun, t + self.depth - 1, self._earliest[t - 1, rows])

    def shown(self, t: int, rows: slice) -> list[Tensor]:
        return [torch.from_numpy(now[rows]) for now in self.present]

    def begin(self, observations: Sequence[Array] | None = None) -> None:
        super().begin(observations)
        for leaf, (array, now) in enumerate(zip(self.kept, self.present, strict=True)):
            if leaf in self.stacked:
                array[: self.depth] = self._frames(now)
            else:
                array[0] = now
        self._earliest[0] = 0

    def first(self) -> list[Array]:
        rows = slice(0, self.num_envs)
        return [leaf.numpy() for leaf in self.leaves(rows)]

    def carry_over(self) -> None:
        self.begin()

    def index(self, leaf: int, rows: Tensor) -> Tensor:
        if leaf not in self.stacked:
            return super().index(leaf, rows)
        earliest = torch.from_numpy(self._earliest).flatten()[rows].unsqueeze(1)
        frames = torch.maximum(rows.unsqueeze(1) // self.num_envs + torch.arange(self.depth), earliest)
        return frames * self.num_envs + rows.unsqueeze(1) % self.num_envs

    def leaves(self, rows: slice) -> list[Tensor]:
        found = torch.arange(len(self))[rows]
        return [
            assembled(flat, self.index(leaf, found)).reshape(-1, *now.shape[1:]) if leaf in self.stacked else flat[rows]
            for leaf, (flat, now) in enumerate(zip(self.flat, self.present, strict=True))
        ]

    def _frames(self, stacks: Array) -> Array:
        """uint8[n, *shape] of stacks as [depth, n, *frame], a view."""
        if stacks.ndim == 5:
            return np.moveaxis(stacks, 1, 0)
        apart = stacks.reshape(*stacks.shape[:3], self.depth, -1)
        return np.moveaxis(apart, 3, 0)


def assembled(frames: Tensor, index: Tensor) -> Tensor:
    """uint8[B, bytes] of stacks that consist of these of `frames` [rows, *frame]. Frames are channels, as the
    environment has them; where channels would be more than rows, an axis of their own."""
    rows, depth = index.shape
    taken = frames.flatten(1).index_select(0, index.flatten())
    if depth == 1:
        return taken
    height, _, channels = frames.shape[1:]
    if depth * channels > height:
        return taken.view(rows, -1)
    return taken.view(rows, depth, -1, channels).transpose(1, 2).reshape(rows, -1)


class PictureRows:
    """Packed rows for a network that sees pictures, uint8[B, bytes] (`Features.pack`), each made when it is asked for.
    Indexed like a tensor."""

    dtype = torch.uint8

    def __init__(
        self, seen: Observations, features: Features, rows: Tensor, numbers: Tensor | None, device: str
    ) -> None:
        """The flat `rows` int64[B] of what was seen, with `numbers` float32[B, size] behind the pictures."""
        flat = seen.flat
        self._parts = [(flat[one.leaf].to(device), seen.index(one.leaf, rows).to(device)) for one in features.pictures]
        self._numbers = numbers
        self.device = self._parts[0][0].device

    def __len__(self) -> int:
        return len(self._parts[0][1])

    def __getitem__(self, rows: Any) -> Tensor:
        parts = [assembled(frames, index[rows]) for frames, index in self._parts]
        if self._numbers is not None:
            parts.append(self._numbers[rows].view(torch.uint8))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def index_select(self, dim: int, rows: Tensor) -> Tensor:
        """As of a tensor."""
        return self[rows]


def observations_of(stepper: Stepper, steps: int, features: Features, depth: int) -> Observations:
    """Room for a rollout. The pictures that `features` has are stacks of `depth` frames, made by `--frame-stack`."""
    stacked = [picture.leaf for picture in features.pictures] if depth > 1 else []
    return FramedObservations(stepper, steps, depth, stacked) if stacked else Observations(stepper, steps)
