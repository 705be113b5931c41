"""The fleets of a batch of days while their routes are built: where the next requests can go, and putting them there.

Requests come roughly in the order of their windows, so a new one goes near the end of a route: into one of the last
`GAPS` gaps of each. Every pair of gaps is tested against the true matrix, in integer seconds, as `best_in_route` does
for one day. Routes are stored flush right, the return to the depot last, so that the ends of all routes are the same
columns; what is left of a route is the depot. Vehicles are alike: of the empty ones only the first is offered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.core.arrays import Array
from shoal.rides.routing.problem import Problem

ROWS = 8  # stops at the end of a route that are looked at, the depot included
GAPS = ROWS - 1
NOWHERE = 1 << 30  # extra seconds of a place that breaks a rule; times stay below it
_PICKUP_GAP = torch.tensor([i for o in range(GAPS) for i in range(GAPS - o)])
_DROPOFF_GAP = torch.tensor([i + o for o in range(GAPS) for i in range(GAPS - o)])
PAIRS = len(_PICKUP_GAP)  # (gap of the pickup, gap of the dropoff) of one vehicle, by distance


@dataclass(frozen=True)
class City:
    """A Problem on a device."""

    travel_s: Tensor  # int32[Z * Z]
    zones: int
    depot: int
    vehicles: int
    capacity: int
    open_s: int
    close_s: int

    @staticmethod
    def of(problem: Problem, device: torch.device | str = "cpu") -> City:
        """The same numbers as tensors."""
        travel = torch.from_numpy(np.array(problem.travel_s, np.int32)).to(device)
        return City(
            travel.reshape(-1), len(problem.travel_s), problem.depot, problem.vehicles, problem.capacity,
            problem.open_s, problem.close_s,
        )  # fmt: skip

    def leg_s(self, start: Tensor, end: Tensor) -> Tensor:
        """Travel between zones, int32 of the broadcast shape."""
        at = start * self.zones + end
        return self.travel_s.index_select(0, at.reshape(-1)).view(at.shape)


@dataclass(frozen=True)
class Batch:
    """Days of up to C requests; node 2r is the pickup of request r, 2r + 1 its dropoff, 2C the depot."""

    city: City
    zone: Tensor  # int64[B, 2C + 1]
    opens: Tensor  # int32[B, 2C + 1]
    closes: Tensor  # int32[B, 2C + 1]
    load: Tensor  # int32[B, 2C + 1], what a stop adds
    count: Tensor  # int64[B], requests of each day; those behind are nobody's

    @property
    def customers(self) -> int:
        return (self.zone.shape[1] - 1) // 2

    @property
    def present(self) -> Tensor:
        """bool[B, C]."""
        return torch.arange(self.customers, device=self.zone.device) < self.count[:, None]

    def rows(self, some: slice | Tensor) -> Batch:
        """Some of the days."""
        parts = (self.zone, self.opens, self.closes, self.load, self.count)
        return Batch(self.city, *(part[some] for part in parts))

    def repeated(self, times: int) -> Batch:
        """Every day so many times, one after the other."""
        parts = (self.zone, self.opens, self.closes, self.load, self.count)
        return Batch(self.city, *(part.repeat_interleave(times, 0) for part in parts))


def make_batch(city: City, requests: Array, count: Array) -> Batch:
    """Days as tensors on the city's device: requests REQUEST[B, C], of which the first count[b] are meant."""
    days, customers = requests.shape
    there = np.arange(customers) < count[:, None]
    device = city.travel_s.device

    def nodes(first: Any, second: Any, last: int, kind: Any) -> Tensor:
        out = np.full((days, 2 * customers + 1), last, kind)
        out[:, 0:-1:2], out[:, 1:-1:2] = np.where(there, first, last), np.where(there, second, last)
        return torch.from_numpy(out).to(device)

    names = requests.dtype.names
    assert names is not None
    part = {name: requests[name] for name in names}
    return Batch(
        city,
        nodes(part["pickup"], part["dropoff"], city.depot, np.int64),
        nodes(part["pickup_open"], part["dropoff_open"], city.open_s, np.int32),
        nodes(part["pickup_close"], part["dropoff_close"], city.close_s, np.int32),
        nodes(part["size"], -part["size"], 0, np.int32),
        torch.from_numpy(np.asarray(count, np.int64)).to(device),
    )


class Places(NamedTuple):
    """The cheapest places of one request of each day, K of them, the cheapest first; NOWHERE where there are fewer."""

    extra_s: Tensor  # int32[B, K], seconds that the route gets longer
    vehicle: Tensor  # int64[B, K]
    pickup_gap: Tensor  # int64[B, K], behind this row of the end of the route
    dropoff_gap: Tensor  # int64[B, K]
    seconds: Tensor  # int32[B, 7, K]: to and from the pickup, to and from the dropoff, waits before them, slack after
    slack_s: Tensor  # int32[B, 2, K], until the window of the pickup and of the dropoff closes
    around: Tensor  # int64[B, 4, K]: nodes before and after the pickup, before and after the dropoff
    load: Tensor  # int32[B, K], riders aboard when the pickup is reached


class Fleet:
    """Routes under construction."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.city = batch, batch.city
        device = batch.zone.device
        days, vehicles = len(batch.zone), self.city.vehicles
        width = max(2 * batch.customers + 1, ROWS + 2) + 1
        self.depot = 2 * batch.customers
        self.day = torch.arange(days, device=device)
        self.node = torch.full((days, vehicles, width), self.depot, device=device)
        self.earliest = torch.full((days, vehicles, width), self.city.open_s, dtype=torch.int32, device=device)
        self.latest = torch.full((days, vehicles, ROWS), self.city.close_s, dtype=torch.int32, device=device)
        self.load = torch.zeros((days, vehicles, width), dtype=torch.int32, device=device)
        # Of the last ROWS stops, and of the legs between them.
        self.zone = torch.full((days, vehicles, ROWS), self.city.depot, device=device)
        self.opens = torch.full((days, vehicles, ROWS), self.city.open_s, dtype=torch.int32, device=device)
        self.leg = torch.zeros((days, vehicles, GAPS), dtype=torch.int32, device=device)
        self.stops = torch.zeros((days, vehicles), device=device)  # of each route
        self._pairs = (_PICKUP_GAP.to(device), _DROPOFF_GAP.to(device))

    def places(self, request: Tensor, most: int) -> Places:
        """Where request[b] of day b can go: the `most` cheapest of all pairs of gaps that break no rule."""
        batch, city = self.batch, self.city
        pickup, dropoff = 2 * request[:, None], 2 * request[:, None] + 1

        def own(table: Tensor, stop: Tensor) -> Tensor:
            return table.gather(1, stop)[:, :, None]

        zone_p, zone_d = own(batch.zone, pickup), own(batch.zone, dropoff)
        open_p, close_p = own(batch.opens, pickup), own(batch.closes, pickup)
        open_d, close_d = own(batch.opens, dropoff), own(batch.closes, dropoff)
        direct = city.leg_s(zone_p, zone_d)
        node, earliest, load = self.node[:, :, -ROWS:], self.earliest[:, :, -ROWS:-1], self.load[:, :, -ROWS:-1]
        before, after = self.zone[:, :, :-1] * city.zones, self.zone[:, :, 1:]
        ends = [before + zone_p, after + city.zones * zone_p, before + zone_d, after + city.zones * zone_d]
        to_p, from_p, to_d, from_d = city.travel_s.take(torch.stack(ends)).unbind()
        arrive_p = earliest + to_p
        begin_p = torch.maximum(arrive_p, open_p)
        roomy = load + own(batch.load, pickup) <= city.capacity
        fits = (arrive_p <= close_p) & roomy & self._gaps(node)
        leave_by = self.latest[:, :, 1:] - from_d  # the dropoff, for what follows to be in time
        arrive_by = torch.where(open_d <= leave_by, torch.minimum(close_d, leave_by), -1)
        # The dropoff right behind the pickup; then one row further at a time.
        at_end = from_d - self.leg
        arrive_d = begin_p + direct
        extras = [torch.where(fits & (arrive_d <= arrive_by), to_p + direct + at_end, NOWHERE)]
        arrivals = [arrive_d]
        detour, at_end = to_p + from_p - self.leg, to_d + at_end
        now = begin_p + from_p
        fits = fits & (now <= self.latest[:, :, 1:])  # then so are the stops up to the dropoff
        for apart in range(1, GAPS):
            now = torch.maximum(now[:, :, :-1], self.opens[:, :, apart:-1])
            fits = fits[:, :, :-1] & roomy[:, :, apart:]
            arrive_d = now + to_d[:, :, apart:]
            good = fits & (arrive_d <= arrive_by[:, :, apart:])
            extras.append(torch.where(good, detour[:, :, :-apart] + at_end[:, :, apart:], NOWHERE))
            arrivals.append(arrive_d)
            now = now + self.leg[:, :, apart:]
        parts = (arrive_p, to_p, from_p, to_d, from_d, load, leave_by)
        return self._cheapest(
            most, torch.cat(extras, 2), torch.cat(arrivals, 2), torch.stack(parts, 1), node,
            (pickup, dropoff, open_p, close_p, open_d, close_d, direct),
        )  # fmt: skip

    def _cheapest(
        self, most: int, extra: Tensor, arrive_d: Tensor, parts: Tensor, node: Tensor, own: tuple[Tensor, ...]
    ) -> Places:
        days, vehicles, _ = extra.shape
        pickup, dropoff, *windows = own
        open_p, close_p, open_d, close_d, direct = (part[:, :, 0] for part in windows)
        flat = extra.reshape(days, vehicles * PAIRS)
        index = torch.arange(flat.shape[1], device=flat.device)
        keyed = flat.to(torch.int64) * flat.shape[1] + index  # no two alike: the order says which is which
        chosen = keyed.topk(min(most, flat.shape[1]), largest=False, sorted=True).values % flat.shape[1]
        if chosen.shape[1] < most:
            chosen = torch.cat([chosen, chosen[:, -1:].expand(-1, most - chosen.shape[1])], 1)
        vehicle, pair = chosen // PAIRS, chosen % PAIRS
        gap_p, gap_d = self._pairs[0][pair], self._pairs[1][pair]
        at_p, at_d = vehicle * GAPS + gap_p, vehicle * GAPS + gap_d
        table = parts.reshape(days, parts.shape[1], vehicles * GAPS)
        reach_p, to_p, from_p, _, _, load, _ = _columns(table, at_p)
        _, _, _, to_d, from_d, _, leave_by = _columns(table, at_d)
        together = gap_p == gap_d
        reach_d = arrive_d.reshape(days, -1).gather(1, chosen)
        begin_p, begin_d = torch.maximum(reach_p, open_p), torch.maximum(reach_d, open_d)
        nodes = node.reshape(days, vehicles * ROWS)
        row_p, row_d = vehicle * ROWS + gap_p, vehicle * ROWS + gap_d
        around = torch.stack([
            nodes.gather(1, row_p), torch.where(together, dropoff, nodes.gather(1, row_p + 1)),
            torch.where(together, pickup, nodes.gather(1, row_d)), nodes.gather(1, row_d + 1),
        ], 1)  # fmt: skip
        seconds = torch.stack([
            to_p, torch.where(together, direct, from_p), torch.where(together, direct, to_d), from_d,
            begin_p - reach_p, begin_d - reach_d, leave_by - begin_d,
        ], 1)  # fmt: skip
        slack = torch.stack([close_p - begin_p, close_d - begin_d], 1)
        return Places(flat.gather(1, chosen), vehicle, gap_p, gap_d, seconds, slack, around, load)

    def _gaps(self, node: Tensor) -> Tensor:
        """bool[B, V, GAPS]: gaps that are one, for the first empty vehicle too: before a stop, or the last."""
        real = node[:, :, 1:] != self.depot
        used = real[:, :, -2]  # the last stop before the return
        real[:, :, -1] = used | ((~used).cumsum(1) == 1)
        return real

    def put(self, request: Tensor, vehicle: Tensor, gap_p: Tensor, gap_d: Tensor, active: Tensor) -> None:
        """Stop for request[b] in a vehicle: the pickup behind row gap_p of its end, the dropoff behind gap_d.

        Days that are not active stay as they are.
        """
        day, batch, city = self.day, self.batch, self.city
        self.stops[day, vehicle] += 2.0 * active
        tables = (self.node, self.earliest, self.load, self.latest, self.zone, self.opens, self.leg)
        before = [table[day, vehicle] for table in tables]
        width = self.node.shape[2]
        before_p, before_d = (width - ROWS + gap_p)[:, None], (width - ROWS + gap_d)[:, None]
        column = torch.arange(width, device=day.device)[None]
        shift = 2 * (column < before_p - 1) + ((column >= before_p) & (column < before_d))
        source = (column + shift).clamp(max=width - 1)
        node, earliest, load = (table.gather(1, source.expand_as(table)) for table in before[:3])
        node = torch.where(column == before_p - 1, 2 * request[:, None], node)
        node = torch.where(column == before_d, 2 * request[:, None] + 1, node)
        first = width - ROWS - 1  # the leftmost column that may have changed
        end = node[:, first - 1 :]
        zone = batch.zone.gather(1, end)
        opens, closes = batch.opens.gather(1, end), batch.closes.gather(1, end)
        leg = city.leg_s(zone[:, :-1], zone[:, 1:])
        now = earliest[:, first - 1]
        times = []
        for step in range(ROWS + 1):
            now = torch.maximum(now + leg[:, step], opens[:, step + 1])
            times.append(now)
        until = closes[:, -1]
        limits = [until]
        for step in range(ROWS - 1):
            until = torch.minimum(until - leg[:, ROWS - step], closes[:, ROWS - step])
            limits.append(until)
        earliest[:, first:] = torch.stack(times, 1)
        load[:, first:] = load[:, first - 1, None] + batch.load.gather(1, end)[:, 1:].cumsum(1).to(torch.int32)
        after = (node, earliest, load, torch.stack(limits[::-1], 1), zone[:, 2:], opens[:, 2:], leg[:, 2:])
        for table, old, new in zip(tables, before, after, strict=True):
            table[day, vehicle] = torch.where(active[:, None], new, old)

    def cost_s(self) -> Tensor:
        """int64[B], travel of the routes."""
        zone = self.batch.zone.gather(1, self.node.flatten(1)).view(self.node.shape)
        return self.city.leg_s(zone[:, :, :-1], zone[:, :, 1:]).to(torch.int64).sum((1, 2))

    def routes(self, some: slice | Tensor = slice(None)) -> tuple[Array, Array]:
        """(stops int16[B, V, 2C], lengths int16[B, V]) of some of the days, as `Plans` has them."""
        node = self.node[some][:, :, :-1].cpu().numpy()
        lengths = (node != self.depot).sum(2)
        column = np.arange(2 * self.batch.customers)
        source = np.minimum(node.shape[2] - lengths[:, :, None] + column, node.shape[2] - 1)
        stops = np.where(column < lengths[:, :, None], np.take_along_axis(node, source, 2), 0)
        return stops.astype(np.int16), lengths.astype(np.int16)


def _columns(table: Tensor, at: Tensor) -> Any:
    """The parts [B, n, m] at columns [B, K], one by one."""
    return table.gather(2, at[:, None].expand(-1, table.shape[1], -1)).unbind(1)
