"""The compiled routing oracle: prices and plans many days at once, in integer seconds.

`add` keeps every day's routes and improves them around each new request (the *incremental* oracle of the task);
`insertion_menu` prices all 16 offers in a few microseconds without changing anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.compiled.threads import Pool
from shoal.core.arrays import Array
from shoal.rides.routing.machine import compiled
from shoal.rides.routing.plans import Plans
from shoal.rides.routing.problem import (
    EFFECTS,
    NUM_OFFERS,
    OFFER_EARLIER_MIN,
    OFFER_LATER_MIN,
    REQUEST,
    Problem,
    Status,
    turned_away_s,
)
from shoal.rides.routing.settings import QUICK, THOROUGH, kernel_limits, search_settings

ESCALATE = (1000, 3000, 3000, 3000)  # ruin-and-recreate iterations to place a request that fits nowhere
_EARLIER_S = (60 * OFFER_EARLIER_MIN).astype(np.int64)
_LATER_S = (60 * OFFER_LATER_MIN).astype(np.int64)


@dataclass(frozen=True)
class PooledMenu:
    """What a day costs under each offer, and the routes that show it."""

    cost_s: Array  # int64[N, 16], travel of the whole day with the request served; means something only where OK
    status: Array  # int8[N, 16], OK or UNKNOWN
    request: Array  # REQUEST[N], as asked
    effect: str
    active: Array  # bool[N]
    count: Array  # int32[N], requests that each day knew
    stops: Array  # int16[N, 16, V, 2C]
    lengths: Array  # int16[N, 16, V]

    def __iter__(self) -> Iterator[Array]:
        """Unpacks like the insertion menu: prices, status."""
        return iter((self.cost_s, self.status))

    def offered(self, chosen: Array) -> Array:
        """REQUEST[N] with the windows of offer chosen[n]."""
        return EFFECTS[self.effect](self.request, OFFER_EARLIER_MIN[chosen], OFFER_LATER_MIN[chosen])


class RoutingOracle:
    """Plans the days of one city. The same keys give the same bits, for any number of threads.

    >>> travel_s = np.array([[0, 600, 900], [500, 0, 300], [800, 400, 0]], np.int32)
    >>> problem = Problem(travel_s, depot=0)
    >>> oracle, plans = RoutingOracle(problem), Plans(problem, num_days=1, max_requests=2)
    >>> request = np.array([(1, 2, 1, 3600, 5400, 4200, 6000)], REQUEST)  # zone 1 to zone 2, from 1:00
    >>> oracle.add(plans, request, keys=np.array([7], np.uint64)).tolist()
    [0]
    >>> plans.routes(0)[0], plans.total_s.tolist()
    ([0, 1], [1700])
    """

    def __init__(self, problem: Problem, threads: int = 1) -> None:
        if threads < 1:
            raise ValueError(f"expected at least 1 thread, got {threads}")
        self.problem, self.threads = problem, threads
        self.notices: Sequence[str] = ()  # for whoever trains with it
        self._travel_s = _plain(problem.travel_s, np.int32)
        self._limits = kernel_limits(problem)
        self._quick, self._thorough = (search_settings(self._travel_s, effort) for effort in (QUICK, THOROUGH))
        self._pool: Pool | None = None

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None

    def insertion_menu(
        self, plans: Plans, request: Array, effect: str = "widen", active: Array | None = None
    ) -> tuple[Array, Array]:
        """Extra travel of the cheapest insertion of request[n] into day n under each offer, nothing else moved.

        (extra_s int64[N, 16], status int8[N, 16]). A price means something only where the status is OK; UNKNOWN says
        that there is no place without moving others. Rows that are not active stay 0 and UNKNOWN.
        """
        request, active = self._check(plans, request, active, room=0)
        extra_s = np.zeros((plans.num_days, NUM_OFFERS), np.int64)
        status = np.full((plans.num_days, NUM_OFFERS), Status.UNKNOWN, np.int8)
        from shoal.rides.routing.menu import menu_range

        arguments = (self._travel_s, self._limits, plans.requests, plans.count, plans.stops, plans.lengths, request,
                     active, _EARLIER_S, _LATER_S, widens(effect), extra_s, status)  # fmt: skip
        self._run(menu_range, plans.num_days, arguments)
        return extra_s, status

    def add(
        self,
        plans: Plans,
        request: Array,
        keys: Array,
        iterations: int = 30,
        escalate: Sequence[int] = ESCALATE,
        active: Array | None = None,
    ) -> Array:
        """Serve request[n] on day n, in place, and improve the routes around it; status int8[N], OK or UNSERVED.

        The request goes to its cheapest place; if it has none, `escalate` says how many iterations each further attempt
        may use to make one. Who cannot be placed is turned away: not served, and the penalty is charged.
        Rows that are not active stay as they are, with status OK.
        """
        request, active = self._check(plans, request, active, room=1)
        status = np.zeros(plans.num_days, np.int8)
        from shoal.rides.routing.planning import add_range

        arguments = (self._travel_s, self._limits, plans.requests, plans.served, plans.count, plans.stops,
                     plans.lengths, plans.cost_s, request, active, _keys(keys, plans.num_days), int(iterations),
                     self._quick, np.array(tuple(escalate), np.int64), status)  # fmt: skip
        self._run(add_range, plans.num_days, arguments)
        away = status == Status.UNSERVED
        if away.any():
            plans.penalty_s[away] += turned_away_s(self.problem, request[away])
        return status

    def serve(
        self, asked: Sequence[tuple[Plans, Array]], keys: Array, iterations: int = 30, active: Array | None = None
    ) -> list[Array]:
        """`add` for several sets of days with the same keys, each with its own requests; their statuses."""
        return [self.add(plans, request, keys, iterations, active=active) for plans, request in asked]

    def figures(self) -> dict[str, float]:
        """Figures of this oracle for the metrics; the compiled one has none."""
        return {}

    def bytes_needed(self, days: int, customers: int) -> int:
        """Memory that `serve` takes beside the plans; the compiled one takes next to none."""
        return 0

    def pooled_menu(
        self,
        plans: Plans,
        request: Array,
        keys: Array,
        effect: str = "widen",
        bases: int = 4,
        iterations: int = 30,
        active: Array | None = None,
    ) -> PooledMenu:
        """What day n costs with request[n] under each offer, searched for and compared on common routes.

        Changes nothing; `adopt_pooled` then takes over the routes of one offer. `bases` offers are searched with
        `iterations` each. UNKNOWN where no feasible plan came up.
        """
        request, active = self._check(plans, request, active, room=1)
        from shoal.rides.routing.pooled import BASES, pooled_range

        if not 1 <= bases <= len(BASES):
            raise ValueError(f"expected 1 to {len(BASES)} bases, got {bases}")
        count, vehicles, width = plans.stops.shape
        menu = PooledMenu(
            cost_s=np.zeros((count, NUM_OFFERS), np.int64),
            status=np.full((count, NUM_OFFERS), Status.UNKNOWN, np.int8),
            request=request,
            effect=effect,
            active=active,
            count=plans.count.copy(),
            stops=np.zeros((count, NUM_OFFERS, vehicles, width), np.int16),
            lengths=np.zeros((count, NUM_OFFERS, vehicles), np.int16),
        )
        arguments = (self._travel_s, self._limits, plans.requests, plans.count, plans.stops, plans.lengths, request,
                     active, _keys(keys, count), _EARLIER_S, _LATER_S, widens(effect), int(bases), int(iterations),
                     self._quick, menu.cost_s, menu.status, menu.stops, menu.lengths)  # fmt: skip
        self._run(pooled_range, count, arguments)
        return menu

    def adopt_pooled(
        self, plans: Plans, menu: PooledMenu, chosen: Array, keys: Array, escalate: Sequence[int] = ESCALATE
    ) -> Array:
        """Serve the menu's request under offer chosen[n] (NO_CHANGE if refused) by the menu's routes; status int8[N].

        Where the menu has no routes for that offer the request is added as `add` does. The routes found replace day
        n's, so days must be as they were when the menu was made.
        """
        chosen = np.asarray(chosen)
        if chosen.shape != (plans.num_days,) or ((chosen < 0) | (chosen >= NUM_OFFERS)).any():
            raise ValueError(f"expected an offer of 0 to {NUM_OFFERS - 1} for each of {plans.num_days} days")
        if (menu.active & (menu.count != plans.count)).any():
            raise ValueError("a day has changed since the menu was made: ask for a new pooled_menu")
        offered = menu.offered(chosen)
        rows = np.arange(plans.num_days)
        found = menu.active & (menu.status[rows, chosen] == Status.OK)
        status = self.add(plans, offered, keys, 0, escalate, active=menu.active & ~found)
        rows, offers = rows[found], chosen[found]
        plans.requests[rows, plans.count[rows]] = offered[rows]
        plans.served[rows, plans.count[rows]] = True
        plans.count[rows] += 1
        plans.stops[rows], plans.lengths[rows] = menu.stops[rows, offers], menu.lengths[rows, offers]
        plans.cost_s[rows] = menu.cost_s[rows, offers]
        return status

    def polish(self, plans: Plans, keys: Array, iterations: int, active: Array | None = None) -> None:
        """Improve the routes of every day, in place; nothing else changes and no day gets longer."""
        active = self._active(plans, active)
        from shoal.rides.routing.planning import polish_range

        arguments = (self._travel_s, self._limits, plans.requests, plans.count, plans.stops, plans.lengths,
                     plans.cost_s, active, _keys(keys, plans.num_days), int(iterations), self._thorough)  # fmt: skip
        self._run(polish_range, plans.num_days, arguments)

    def _run(self, function: Any, num_days: int, arguments: tuple[Any, ...]) -> None:
        machine_code = compiled(function, (*arguments, 0, num_days))
        if self.threads == 1:
            machine_code(*arguments, 0, num_days)
            return
        if self._pool is None:
            self._pool = Pool(self.threads)
        self._pool.run(machine_code, arguments, num_days)

    def _active(self, plans: Plans, active: Array | None) -> Array:
        if plans.problem.vehicles != self.problem.vehicles:
            raise ValueError(f"expected plans for {self.problem.vehicles} vehicles, got {plans.problem.vehicles}")
        active = np.ones(plans.num_days, np.bool_) if active is None else _plain(active, np.bool_)
        if active.shape != (plans.num_days,):
            raise ValueError(f"expected active as bool[{plans.num_days}], got shape {list(active.shape)}")
        return active

    def _check(self, plans: Plans, request: Array, active: Array | None, room: int) -> tuple[Array, Array]:
        """The request and the mask as the kernels need them; they would read past the arrays for anything else."""
        count = plans.num_days
        if request.dtype != REQUEST or request.shape != (count,):
            raise ValueError(f"expected one REQUEST for each of {count} days, got {request.dtype}{list(request.shape)}")
        active = self._active(plans, active)
        chosen = request[active] if not active.all() else request
        for stop in ("pickup", "dropoff"):
            zones = chosen[stop]
            if zones.size and not (zones.min() >= 0 and zones.max() < len(self._travel_s)):
                raise ValueError(
                    f"expected every {stop} as a zone of 0 to {len(self._travel_s) - 1}, "
                    f"got {zones.min()} to {zones.max()}"
                )
        full = active & (plans.count + room > plans.max_requests)
        if full.any():
            raise ValueError(
                f"day {int(np.argmax(full))} is full: it has {plans.max_requests} requests; "
                "make Plans with more max_requests"
            )
        return _plain(request, REQUEST), active


def widens(effect: str) -> bool:
    """Whether an offer's effect is to widen; otherwise it shifts."""
    if effect not in EFFECTS:
        raise ValueError(f"expected an effect of {', '.join(EFFECTS)}, got {effect!r}")
    return effect == "widen"


def _plain(array: Any, dtype: Any) -> Array:
    """Contiguous and writable: for anything else the kernels would have to be compiled again."""
    return np.require(array, dtype, ["C", "W"])


def _keys(keys: Array, count: int) -> Array:
    keys = _plain(keys, np.uint64)
    if keys.shape != (count,):
        raise ValueError(f"expected keys as uint64[{count}], got shape {list(keys.shape)}")
    return keys
