"""What the routing network learns from: steps of the decoder, and a choice at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from shoal.rides.routing.neural.fleet import Batch
from shoal.rides.routing.neural.network import RoutingNetwork, gathered, links_of


class Step(NamedTuple):
    """One step of all days: what the scorer sees, what it shall choose, and on which days that is known."""

    around: Tensor  # int64[B, 4, K]
    features: Tensor  # float32[B, K, F]
    extra_s: Tensor  # int32[B, K]
    choice: Tensor  # int64[B]
    known: Tensor  # bool[B]


@dataclass(frozen=True)
class Lesson:
    """The C steps of each of B days."""

    batch: Batch
    request: Tensor  # int64[B, C], who is placed
    around: Tensor  # int64[B, C, 4, K]
    features: Tensor  # float32[B, C, K, F]
    extra_s: Tensor  # int32[B, C, K]
    choice: Tensor  # int64[B, C]
    known: Tensor  # bool[B, C]; elsewhere the choice means nothing

    def rows(self, some: Tensor) -> Lesson:
        """Some of the days."""
        parts = (self.request, self.around, self.features, self.extra_s, self.choice, self.known)
        return Lesson(self.batch.rows(some), *(part[some] for part in parts))


def lesson_of(batch: Batch, order: Tensor, steps: Sequence[Step]) -> Lesson:
    """From the steps of each day in this order."""
    return Lesson(batch, order, *(torch.stack(part, 1) for part in zip(*steps, strict=True)))


def loss_of(network: RoutingNetwork, lesson: Lesson) -> tuple[Tensor, Tensor]:
    """(mean cross-entropy, share of the choices that have the best score)."""
    batch = lesson.batch
    days, steps, _, offered = lesson.around.shape
    nodes, requests = network.encode(batch, links_of(batch))
    sides = gathered(nodes, lesson.around.transpose(1, 2).reshape(days, 4, -1)).view(days * steps, offered, -1)
    who = lesson.request[:, :, None].expand(-1, -1, requests.shape[2])
    placed = requests.gather(1, who).reshape(days * steps, -1)
    kept = lesson.known.flatten()
    parts = (sides, placed, lesson.features.flatten(0, 1), lesson.extra_s.flatten(0, 1))
    logits, wanted = network.score(*(part[kept] for part in parts)), lesson.choice.flatten()[kept]
    hit = (logits.detach().argmax(1) == wanted).float().mean()
    return F.cross_entropy(logits, wanted), hit
