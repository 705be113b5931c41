"""The neural oracle: all days of a step routed in one batch, behind the interface of the compiled oracle.

What the agent sees before it offers (menus, futures, credit) still comes from the compiled search; the plans of the
days themselves are decoded anew at every request. The plan that stands, with the request at its cheapest place, is kept
where it is shorter, and where the decoder finds no place for somebody.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from shoal.core.arrays import Array
from shoal.rides.routing.neural.decoding import GREEDY, Decoding
from shoal.rides.routing.neural.network import RoutingNetwork
from shoal.rides.routing.neural.router import Routed, Router
from shoal.rides.routing.oracle import ESCALATE, RoutingOracle
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import EFFECTS, OFFER_EARLIER_MIN, OFFER_LATER_MIN, REQUEST, Problem, Status


class NeuralOracle(RoutingOracle):
    """Plans days with a network; `batch` days are in memory at once (auto or a number), which changes no bit."""

    def __init__(
        self,
        problem: Problem,
        network: RoutingNetwork,
        *,
        threads: int = 1,
        batch: int | str = "auto",
        device: str = "cpu",
        decoding: Decoding = GREEDY,
    ) -> None:
        super().__init__(problem, threads)
        self.decoding = decoding
        self.router = Router(network, problem, chunk=batch, device=device)
        self.days = self.taken = self.fell_back = 0  # routed, decoded plans that were kept, and days not finished

    def serve(
        self, asked: Sequence[tuple[Plans, Array]], keys: Array, iterations: int = 30, active: Array | None = None
    ) -> list[Array]:
        """Serve one request on each day of several sets of days, all of them routed in one call.

        `iterations` are the compiled oracle's and mean nothing here.
        """
        checked = [(plans, *self._check(plans, request, active, room=1)) for plans, request in asked]
        found = self._routed([(plans, request[:, None], doing) for plans, request, doing in checked])
        statuses = []
        for (plans, request, doing), (routed, slots) in zip(checked, found, strict=True):
            whole = doing & (routed.placed.sum(1) == (slots >= 0).sum(1))
            before_s = plans.penalty_s.copy()
            status = self.add(plans, request, keys, 0, (), active=whole)
            rest = self.add(plans, request, keys, 0, ESCALATE, active=doing & ~whole)
            takes = whole & ((status != Status.OK) | (routed.cost_s < plans.cost_s))
            plans.served[takes, plans.count[takes] - 1] = True
            plans.penalty_s[takes] = before_s[takes]
            plans.stops[takes] = renumbered(routed.stops, routed.lengths, slots)[takes]
            plans.lengths[takes], plans.cost_s[takes] = routed.lengths[takes], routed.cost_s[takes]
            statuses.append(np.where(whole, Status.OK, rest).astype(np.int8))
            self.days += int(doing.sum())
            self.taken += int(takes.sum())
            self.fell_back += int((doing & ~whole).sum())
        return statuses

    def price(self, plans: Plans, request: Array, offers: Array, effect: str = "widen") -> tuple[Array, Array]:
        """What day n costs with request[n] under each of offers[n] (int[N, K]), decoded alone; changes nothing.

        (travel of the day int64[N, K], status int8[N, K]): a cost means something only where the status is OK.
        """
        request, _ = self._check(plans, request, None, room=1)
        count = offers.shape[1]
        offered = EFFECTS[effect](
            np.repeat(request[:, None], count, 1), OFFER_EARLIER_MIN[offers], OFFER_LATER_MIN[offers]
        )
        [(routed, slots)] = self._routed([(plans, offered, np.ones(plans.num_days, np.bool_))])
        whole = routed.placed.sum(1) == (slots >= 0).sum(1)
        status = np.where(whole, Status.OK, Status.UNKNOWN).astype(np.int8)
        return np.where(whole, routed.cost_s, 0).reshape(-1, count), status.reshape(-1, count)

    def bytes_needed(self, days: int, customers: int) -> int:
        """Memory that `serve` takes at its peak for so many days; a GPU's is not this machine's."""
        on_cpu = torch.device(self.router.device).type == "cpu"
        return self.router.bytes_needed(days, customers, sum(self.decoding)) if on_cpu else 0

    def figures(self) -> dict[str, float]:
        """Since the last call: percent of days whose decoded plan was kept, and of those that it did not finish."""
        days = max(1, self.days)
        out = {"oracle/taken": 100 * self.taken / days, "oracle/fell_back": 100 * self.fell_back / days}
        self.days = self.taken = self.fell_back = 0
        return out

    def _routed(self, asked: Sequence[tuple[Plans, Array, Array]]) -> list[tuple[Routed, Array]]:
        """Route days with each of K more requests (REQUEST[N, K]), all in one call.

        (routes of N * K days, in which requests have other numbers; those numbers int64[N * K, C], -1 for nobody).
        """
        days = [days_with(plans, more, active) for plans, more, active in asked]
        routed = self.router.route(
            np.concatenate([one[0] for one in days]),
            np.concatenate([one[1] for one in days]),
            **self.decoding._asdict(),
        )
        parts, at = [], 0
        for requests, _, slots in days:
            rows = slice(at, at + len(requests))
            parts.append((Routed(*(getattr(routed, name)[rows] for name in Routed.__dataclass_fields__)), slots))
            at += len(requests)
        return parts


def days_with(plans: Plans, more: Array, active: Array) -> tuple[Array, Array, Array]:
    """(REQUEST[N * K, C], count, slots): those whom each day serves and one more; slots say who is who."""
    each = more.shape[1]
    requests = np.repeat(plans.requests, each, 0)
    served = np.repeat(plans.served & (np.arange(plans.max_requests) < plans.count[:, None]), each, 0)
    last = np.repeat(np.minimum(plans.count, plans.max_requests - 1), each)
    rows = np.arange(len(requests))
    requests[rows, last], served[rows, last] = more.reshape(-1), True
    served &= np.repeat(active, each)[:, None]
    slots = np.argsort(~served, axis=1, kind="stable")
    count = served.sum(1)
    slots = np.where(np.arange(plans.max_requests) < count[:, None], slots, -1)
    chosen = np.take_along_axis(requests.view(np.int32).reshape(*requests.shape, -1), slots[:, :, None].clip(0), 1)
    return np.ascontiguousarray(chosen).view(REQUEST)[..., 0], count, slots


def renumbered(stops: Array, lengths: Array, slots: Array) -> Array:
    """Stops of requests by the numbers in `slots`, int16 of the same shape; what is behind a route's end is 0."""
    there = np.arange(stops.shape[2]) < lengths[:, :, None]
    owner = np.take_along_axis(slots[:, None].repeat(stops.shape[1], 1), stops.astype(np.int64) // 2, 2)
    return np.where(there, 2 * owner + stops % 2, 0).astype(np.int16)
