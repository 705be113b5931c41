"""Routes of any number of days from one network: padded tiles, chunks that fit into memory, costs in whole seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from shoal.core.arrays import Array
from shoal.core.seeds import generator
from shoal.rides.routing.neural.decode import STARTS_S, decode, order_of
from shoal.rides.routing.neural.fleet import City, make_batch
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.problem import REQUEST, Problem

TILE = 32  # days of one matrix product; a lone day is computed beside 31 empty ones
SIZES = 8  # days are padded to a multiple of so many requests, by their own number alone
CHUNK = {"cpu": 256, "cuda": 8192}  # days at once to begin with; a day of 30 requests takes about 0.1 MB
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate|not enough memory|alloc_failed|cannot allocate", re.I)
_STARTS, _SAMPLES = 0x57A7, 0x5A3B


@dataclass(frozen=True)
class Routed:
    """Routes of N days as `Plans` has them, and what they cost."""

    stops: Array  # int16[N, V, 2C]
    lengths: Array  # int16[N, V]
    placed: Array  # bool[N, C]: on a route
    cost_s: Array  # int64[N], travel of the routes


class Router:
    """Routes days with a network, all of one call in as few batches as memory allows.

    `chunk` is how many days are in memory at once, "auto" or a number; it halves itself when memory runs out, and stays
    there. It changes no result.
    """

    def __init__(
        self, network: RoutingNetwork, problem: Problem, *, chunk: int | str = "auto", device: str = "cpu"
    ) -> None:
        self.network, self.problem, self.device = network.to(device).eval(), problem, device
        self.city = City.of(problem, device)
        self.chunk = chunk_days(chunk, device)
        self.halved = 0  # times that memory ran out

    def route(self, requests: Array, count: Array, *, starts: int = 1, samples: int = 0, seed: int = 0) -> Routed:
        """Greedy routes of days of requests REQUEST[N, C], the first count[n] of which are meant.

        With `starts` above 1 the best of so many greedy plans, of which each takes the requests in another order; with
        `samples` the best of the greedy plan and so many that are drawn. The best has the most requests on its routes,
        and of those the fewest seconds.
        """
        if requests.dtype != REQUEST or requests.ndim != 2 or len(requests) != len(count):
            raise ValueError(f"expected REQUEST[N, C] and count[N], got {requests.dtype}{list(requests.shape)}")
        if starts < 1 or samples < 0:
            raise ValueError(f"expected at least 1 start and 0 samples, got {starts} and {samples}")
        best = self._routed(requests, count, None, None)
        for start in range(1, starts):
            rng = generator(seed, _STARTS, start)
            shift_s = rng.integers(-STARTS_S, STARTS_S + 1, requests.shape[1]).astype(np.int32)
            best = _better(best, self._routed(requests, count, shift_s, None))
        for sample in range(samples):
            best = _better(
                best, self._routed(requests, count, None, int(generator(seed, _SAMPLES, sample).integers(1 << 62)))
            )
        return best

    def _routed(self, requests: Array, count: Array, shift_s: Array | None, noise: int | None) -> Routed:
        days, customers = requests.shape
        count = np.asarray(count, np.int64)
        found = Routed(
            np.zeros((days, self.problem.vehicles, 2 * customers), np.int16),
            np.zeros((days, self.problem.vehicles), np.int16),
            np.zeros((days, customers), np.bool_),
            np.zeros(days, np.int64),
        )
        sizes = np.minimum(-(-count // SIZES) * SIZES, max(customers, 1))
        for size in np.unique(sizes[count > 0]):
            rows = np.flatnonzero((sizes == size) & (count > 0))
            at = 0
            while at < len(rows):
                part = rows[at : at + self.chunk]
                try:
                    self._chunk(requests, count, part, int(size), shift_s, noise, found)
                    at += len(part)
                except (MemoryError, RuntimeError) as error:
                    self._halve(error)
        return found

    def _chunk(
        self,
        requests: Array,
        count: Array,
        rows: Array,
        size: int,
        shift_s: Array | None,
        noise: int | None,
        out: Routed,
    ) -> None:
        """Route some days of like size: whole tiles, of which the last is filled up with empty days."""
        padded = -(-len(rows) // TILE) * TILE
        asked = np.zeros((padded, size), REQUEST)
        counts = np.zeros(padded, np.int64)
        asked[: len(rows)], counts[: len(rows)] = requests[rows, :size], count[rows]
        batch = make_batch(self.city, asked, counts)
        shift = None if shift_s is None else torch.from_numpy(shift_s[:size]).to(self.device)
        generator_ = None if noise is None else torch.Generator(self.device).manual_seed(noise)
        decoded = decode(self.network, batch, order_of(batch, shift), tile=TILE, noise=generator_)
        stops, lengths = decoded.fleet.routes()
        out.stops[rows, :, : 2 * size], out.lengths[rows] = stops[: len(rows)], lengths[: len(rows)]
        out.placed[rows, :size] = decoded.placed[: len(rows)].cpu().numpy()
        zone = batch.zone.gather(1, decoded.fleet.node.flatten(1)).view(decoded.fleet.node.shape)
        legs = self.city.leg_s(zone[:, :, :-1], zone[:, :, 1:]).to(torch.int64)
        out.cost_s[rows] = legs.sum((1, 2))[: len(rows)].cpu().numpy()

    def _halve(self, error: Exception) -> None:
        """Go on with half as many days, if it was memory that ran out."""
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise error
        if self.chunk <= TILE:
            raise MemoryError(
                f"the neural oracle ran out of memory with {self.chunk} days at once, its smallest batch: "
                f"expected some 20 MB to be free on {self.device} ({error})"
            ) from error
        self.chunk = max(TILE, self.chunk // 2 // TILE * TILE)
        self.halved += 1


def chunk_days(chunk: int | str, device: str = "cpu") -> int:
    """Days at once, whole tiles.

    >>> chunk_days("auto"), chunk_days(100), chunk_days("1")
    (256, 128, 32)
    """
    if chunk == "auto":
        return CHUNK.get(torch.device(device).type, CHUNK["cpu"])
    try:
        days = int(chunk)
    except ValueError:
        days = 0
    if days < 1:
        raise ValueError(f"expected --oracle-batch as auto or a number of days from 1, got {chunk!r}")
    return -(-days // TILE) * TILE


def _better(one: Routed, other: Routed) -> Routed:
    """Day by day the better of two."""
    more, fewer = (other.placed.sum(1) > one.placed.sum(1)), (other.placed.sum(1) < one.placed.sum(1))
    takes = more | (~fewer & (other.cost_s < one.cost_s))

    def pick(a: Array, b: Array) -> Any:
        return np.where(takes.reshape(-1, *[1] * (a.ndim - 1)), b, a)

    return Routed(*(pick(getattr(one, name), getattr(other, name)) for name in Routed.__dataclass_fields__))
