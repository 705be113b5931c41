"""The processes that train one policy together, as the learner sees them; distributed.py has those of torchrun.

Each rank steps its own share of the environments; all draw the same minibatches from the rows of all ranks, and each
works on its own of these rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shoal.core.arrays import Array
from shoal.core.protocols import Ranks
from shoal.learn.rollout import Rollout, Seen
from shoal.vector.infos import Numbers

Figures = dict[str, Tensor]


@dataclass
class SideBySide:
    """The rows of a rollout of all ranks, [T, N]."""

    rewards: Array
    ended: Array
    valid: Array
    broken: Array
    lost: Array
    said: list[tuple[int, Array, Numbers]]


class Team(Ranks):
    """One process alone: nothing is exchanged."""

    rank, size = 0, 1
    broken = False  # a rank is gone: nobody can be asked any more

    @property
    def leads(self) -> bool:
        """Does this rank write down what all do?"""
        return self.rank == 0

    def own(self, total: int) -> slice:
        """The environments of this rank, of so many."""
        if total % self.size:
            raise ValueError(
                f"expected --num-envs as a multiple of the {self.size} ranks, each of which has the same number of "
                f"environments, got {total}"
            )
        each = total // self.size
        return slice(self.rank * each, (self.rank + 1) * each)

    def gather(self, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
        """The arrays of every rank, in the order of ranks."""
        return [dict(arrays)]

    def hear(self, data: Any) -> list[Any]:
        """Plain data of every rank, in the order of ranks."""
        return [data]

    def lead(self, make: Callable[[], tuple[Mapping[str, Array], Any]]) -> tuple[dict[str, Array], Any]:
        """Arrays and plain data that rank 0 makes, on every rank. Its error ends them all."""
        arrays, data = make()
        return dict(arrays), data

    def decides(self, wish: bool) -> bool:
        """What rank 0 wishes."""
        return wish

    def side_by_side(self, rollout: Rollout, first: int, last: int) -> Seen:
        """These rows of all environments."""
        return rollout

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """What goes wrong for one rank in this block ends all of them at its end, at the same place."""
        yield

    def pooled(self, count: float, mean: Array, var: Array) -> tuple[float, Array, Array]:
        """Number, mean and variance of what all ranks have, from those of each."""
        return count, mean, var

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums over all ranks."""
        return list(values)

    def spread(self, network: nn.Module) -> None:
        """Give every rank the weights of rank 0."""

    def average(
        self, parameters: Sequence[nn.Parameter], figures: dict[str, Tensor], share: float
    ) -> dict[str, Tensor]:
        """Gradients and figures of a whole minibatch, of which this rank has done `share`: one all-reduce."""
        return figures

    def figures(self, values: dict[str, Any]) -> dict[str, Any]:
        """The means over those ranks that have a figure; of texts the first."""
        return values

    def ends(self, error: Exception) -> None:
        """This ends the training of this rank. Unless it ends all at the same place, nobody is asked any more."""

    def leave(self, error: BaseException | None) -> None:
        """This process ends its part."""


ALONE = Team()


def checksum(network: nn.Module) -> int:
    """Of the weights: ranks whose weights differ have learned from different things."""
    value = 0
    for tensor in network.state_dict().values():
        value = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), value)
    return value


def places(masks: Array, own: slice) -> Tensor:
    """Where each row that is learned from (of bool[T, N]) is among this rank's; -1: with another rank."""
    _, env = np.nonzero(masks)
    mine = (env >= own.start) & (env < own.stop)
    place = np.full(len(env), -1, np.int64)
    place[mine] = np.arange(int(mine.sum()))
    return torch.from_numpy(place)
