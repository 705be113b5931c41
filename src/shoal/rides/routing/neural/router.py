"""Routes of any number of days from one network: padded tiles, chunks that fit into memory, costs in whole seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.core.arrays import Array
from shoal.core.seeds import generator
from shoal.rides.routing.neural.decode import STARTS_S, decode, drawn_noise, order_of
from shoal.rides.routing.neural.fleet import NOWHERE, City, make_batch
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.problem import REQUEST, Problem

TILES = {"cpu": 32, "cuda": 1024}  # days of one matrix product; a lone day is computed beside empty ones
SIZES = 2  # days are padded to a multiple of so many requests, by their own number alone
CHUNK = {"cpu": 256, "cuda": 8192}  # plans at once to begin with; one of 30 requests takes 0.11 MB, of 45 0.15 MB
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate|not enough memory|alloc_failed|cannot allocate", re.I)
_PAIR_NUMBERS, _STEP_BYTES = 90, 38_000  # measured: of a pair of requests while encoded, of a plan in a step
ORDERS = 4  # in which greedy decoding takes the requests of a day, until one finishes it
_STARTS, _SAMPLES = 0x57A7, 0x5A3B


@dataclass(frozen=True)
class Routed:
    """Routes of N days as `Plans` has them, and what they cost."""

    stops: Array  # int16[N, V, 2C]
    lengths: Array  # int16[N, V]
    placed: Array  # bool[N, C]: on a route
    cost_s: Array  # int64[N], travel of the routes

    @staticmethod
    def nowhere(days: int, vehicles: int, customers: int) -> Routed:
        """Nobody is on a route yet."""
        return Routed(
            np.zeros((days, vehicles, 2 * customers), np.int16),
            np.zeros((days, vehicles), np.int16),
            np.zeros((days, customers), np.bool_),
            np.zeros(days, np.int64),
        )


@dataclass(frozen=True)
class _Tries:
    """The plans that are made of every day: the same for all days, so that a day's plans depend on nothing else."""

    shifts_s: Tensor  # int32[n, C]
    noise: Tensor | None  # float32[n, C, K], 0 of those that are greedy

    @property
    def plans(self) -> int:
        return len(self.shifts_s)

    def one(self, number: int) -> _Tries:
        """One of the plans alone."""
        return _Tries(self.shifts_s[number : number + 1], None)

    @staticmethod
    def of(customers: int, starts: int, samples: int, seed: int, device: str) -> _Tries:
        rng = generator(seed, _STARTS)
        shifts = rng.integers(-STARTS_S, STARTS_S + 1, (starts + samples, customers)).astype(np.int32)
        shifts[0], shifts[starts:] = 0, 0
        noise = None
        if samples:
            draws = torch.Generator().manual_seed(int(generator(seed, _SAMPLES).integers(1 << 62)))
            noise = drawn_noise(starts + samples, customers, draws)
            noise[:starts] = 0
            noise = noise.to(device)
        return _Tries(torch.from_numpy(shifts).to(device), noise)


class Router:
    """Routes days with a network, all of one call in as few batches as memory allows.

    `chunk` is how many plans are in memory at once, "auto" or a number; it halves itself when memory runs out, and
    stays there. It changes no result.
    """

    def __init__(
        self, network: RoutingNetwork, problem: Problem, *, chunk: int | str = "auto", device: str = "cpu"
    ) -> None:
        if torch.device(device).type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"the neural oracle was to be computed on {device}, and torch sees no CUDA device here: use cpu "
                "(shoal train rides: --oracle-device, shoal rides oracle report: --device), or a CUDA build of torch"
            )
        self.network, self.problem, self.device = network.to(device).eval(), problem, device
        self.city = City.of(problem, device)
        self.tile = tile_days(device)
        self.chunk = chunk_days(chunk, device)
        self.halved = 0  # times that memory ran out

    def route(self, requests: Array, count: Array, *, starts: int = 1, samples: int = 0, seed: int = 0) -> Routed:
        """Greedy routes of days of requests REQUEST[N, C], the first count[n] of which are meant.

        With `starts` above 1 the best of so many greedy plans, of which each takes the requests in another order; with
        `samples` the best of those and so many that are drawn. The best has the most requests on its routes, and of
        those the fewest seconds. All plans of a day are made in one batch. A day that its one greedy plan does not
        finish is decoded again with the requests in another order, and in a third and fourth if need be.
        """
        if requests.dtype != REQUEST or requests.ndim != 2 or len(requests) != len(count):
            raise ValueError(f"expected REQUEST[N, C] and count[N], got {requests.dtype}{list(requests.shape)}")
        if starts < 1 or samples < 0:
            raise ValueError(f"expected at least 1 start and 0 samples, got {starts} and {samples}")
        days, customers = requests.shape
        count = np.asarray(count, np.int64)
        found = Routed.nowhere(days, self.problem.vehicles, customers)
        if starts + samples > 1:
            self._route(requests, count, _Tries.of(customers, starts, samples, seed, self.device), found)
            return found
        orders = _Tries.of(customers, ORDERS, 0, seed, self.device)
        self._route(requests, count, orders.one(0), found)
        for number in range(1, ORDERS):
            left = np.flatnonzero(found.placed.sum(1) < count)
            if not len(left):
                break
            again = Routed.nowhere(len(left), self.problem.vehicles, customers)
            self._route(requests[left], count[left], orders.one(number), again)
            better = again.placed.sum(1) > found.placed[left].sum(1)
            for name in Routed.__dataclass_fields__:
                getattr(found, name)[left[better]] = getattr(again, name)[better]
        return found

    def _route(self, requests: Array, count: Array, tries: _Tries, found: Routed) -> None:
        """Route days of like size together, as many at once as memory allows."""
        customers = requests.shape[1]
        sizes = np.minimum(-(-count // SIZES) * SIZES, max(customers, 1))
        for size in np.unique(sizes[count > 0]):
            rows = np.flatnonzero((sizes == size) & (count > 0))
            at = 0
            while at < len(rows):
                part = rows[at : at + self._days_at_once(tries.plans)]
                try:
                    self._chunk(requests, count, part, int(size), tries, found)
                    at += len(part)
                except (MemoryError, RuntimeError) as error:
                    self._halve(error)

    def bytes_needed(self, days: int, customers: int, plans: int = 1) -> int:
        """Memory at the peak of `route`, in bytes: days beyond a chunk are routed later and take none.

        Of the days of a chunk, what is encoded is kept; beside it there is one tile that is being encoded, or the
        fleets and one step of all plans.
        """
        size = -(-customers // SIZES) * SIZES
        width, _, _, hidden = self.network.shape
        at_once = min(-(-days // self.tile) * self.tile, self._days_at_once(plans))
        encoded = 4 * ((2 * size + 1) * 4 * hidden + size * hidden + size * size)
        fleet = 2 * 16 * self.city.vehicles * (2 * size + 2)
        encoding = 4 * self.tile * ((size + 1) ** 2 * _PAIR_NUMBERS + (size + 1) * 12 * width)
        kept = at_once * (encoded if plans == 1 else encoded * (plans + 1))
        return max(at_once * encoded + encoding, kept + at_once * plans * (fleet + _STEP_BYTES))

    def _days_at_once(self, plans: int) -> int:
        return max(self.tile, self.chunk // plans // self.tile * self.tile)

    def _chunk(self, requests: Array, count: Array, rows: Array, size: int, tries: _Tries, out: Routed) -> None:
        """Route some days of like size: whole tiles, of which the last is filled up with empty days."""
        padded = -(-len(rows) // self.tile) * self.tile
        asked = np.zeros((padded, size), REQUEST)
        counts = np.zeros(padded, np.int64)
        asked[: len(rows)], counts[: len(rows)] = requests[rows, :size], count[rows]
        batch = make_batch(self.city, asked, counts)
        orders = torch.stack([order_of(batch, shift_s[:size]) for shift_s in tries.shifts_s], 1)
        noise = None if tries.noise is None else tries.noise[:, :size].repeat(padded, 1, 1)
        decoded = decode(self.network, batch, orders.flatten(0, 1), tile=self.tile, noise=noise)
        placed, cost_s = decoded.placed.view(padded, tries.plans, size), decoded.fleet.cost_s().view(padded, -1)
        missing = batch.count[:, None] - placed.sum(2)
        best = (missing * NOWHERE + cost_s).argmin(1)  # the first of several
        each = torch.arange(padded, device=best.device)
        stops, lengths = decoded.fleet.routes(each * tries.plans + best)
        out.stops[rows, :, : 2 * size], out.lengths[rows] = stops[: len(rows)], lengths[: len(rows)]
        out.placed[rows, :size] = placed[each, best][: len(rows)].cpu().numpy()
        out.cost_s[rows] = cost_s[each, best][: len(rows)].cpu().numpy()

    def _halve(self, error: Exception) -> None:
        """Go on with half as many days, if it was memory that ran out."""
        if not isinstance(error, MemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise error
        if self.chunk <= self.tile:
            raise MemoryError(
                f"the neural oracle ran out of memory with {self.tile} days at once, its smallest batch: "
                f"expected some {0.9 * self.tile:.0f} MB to be free on {self.device} ({error})"
            ) from error
        self.chunk = max(self.tile, self.chunk // 2 // self.tile * self.tile)
        self.halved += 1


def tile_days(device: str) -> int:
    """Days of one matrix product on a device: the same whatever is asked of it, so that no day's bits change."""
    return TILES.get(torch.device(device).type, TILES["cpu"])


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
    tile = tile_days(device)
    return -(-days // tile) * tile
