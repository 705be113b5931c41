"""Routes of a batch of days: each step places the next request of every day, by the network's scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.rides.routing.neural.fleet import NOWHERE, Batch, Fleet
from shoal.rides.routing.neural.network import OFFERED, RoutingNetwork, gathered, links_of, place_features

STARTS_S = 1200  # requests of a further start come up to so much earlier or later


def order_of(batch: Batch, shift_s: Tensor | None = None) -> Tensor:
    """int64[B, C]: requests by the middle of their pickup windows, moved by `shift_s`; those of nobody come last."""
    middle = batch.opens[:, 0:-1:2] + batch.closes[:, 0:-1:2]
    if shift_s is not None:
        middle = middle + 2 * shift_s
    key = torch.where(batch.present, middle, NOWHERE).to(torch.int64) * batch.customers
    return (key + torch.arange(batch.customers, device=key.device)).argsort(1)


@dataclass(frozen=True)
class Decoded:
    """Routes of a batch."""

    fleet: Fleet
    placed: Tensor  # bool[B, C]; a request without a place is on no route


def drawn_noise(plans: int, customers: int, rng: torch.Generator) -> Tensor:
    """float32[plans, C, K]: added to scores, the largest sum is a draw from their softmax (Gumbel)."""
    return -torch.empty(plans, customers, OFFERED).exponential_(generator=rng).log()


@torch.inference_mode()
def decode(network: RoutingNetwork, batch: Batch, order: Tensor, *, tile: int, noise: Tensor | None = None) -> Decoded:
    """Greedy, or drawn from the scores as logits with `noise` (`drawn_noise`).

    Whatever is a matrix product is computed for `tile` days at a time, as those may round otherwise for another number
    of rows: a day gets the same bits whatever the days beside it. The number of days is a multiple of `tile`. With
    several orders a day, int64[B * n, C], the n plans of a day come one after the other, and share what is encoded.
    """
    days, customers = order.shape
    plans = days // len(batch.zone)
    nodes, requests, saving = _encoded(network, batch, tile)
    if plans > 1:
        batch = batch.repeated(plans)
        nodes, requests, saving = (part.repeat_interleave(plans, 0) for part in (nodes, requests, saving))
    fleet = Fleet(batch)
    placed = torch.zeros((days, customers), dtype=torch.bool, device=order.device)
    for step in range(int(batch.count.max())):
        request = order[:, step]
        known = step < batch.count
        places = fleet.places(request, OFFERED)
        features = place_features(fleet, places, request, saving, (batch.count - step).clamp(min=0) / 45.0)
        shown = (gathered(nodes, places.around), requests[fleet.day, request], features, places.extra_s)
        logits = torch.cat([network.score(*(part[rows] for part in shown)) for rows in _tiles(days, tile)])
        choice = (logits if noise is None else logits + noise[:, step]).argmax(1, keepdim=True)
        found = known & (places.extra_s.gather(1, choice)[:, 0] < NOWHERE)
        vehicle, gap_p, gap_d = (
            part.gather(1, choice)[:, 0] for part in (places.vehicle, places.pickup_gap, places.dropoff_gap)
        )
        fleet.put(request, vehicle, gap_p, gap_d, found)
        placed[fleet.day, request] = found
        saving[fleet.day, :, request] = 0.0
    return Decoded(fleet, placed)


def _encoded(network: RoutingNetwork, batch: Batch, tile: int) -> tuple[Tensor, ...]:
    """What the nodes and the requests add to a score, and what links save: tile by tile, as links take memory."""
    found: tuple[Tensor, ...] = ()
    for rows in _tiles(len(batch.zone), tile):
        some = batch.rows(rows)
        links = links_of(some)
        parts = (*network.encode(some, links), links.saving)
        found = found or tuple(part.new_empty((len(batch.zone), *part.shape[1:])) for part in parts)
        for whole, part in zip(found, parts, strict=True):
            whole[rows] = part
    return found


def _tiles(days: int, tile: int) -> Iterator[slice]:
    return (slice(low, low + tile) for low in range(0, days, tile))
