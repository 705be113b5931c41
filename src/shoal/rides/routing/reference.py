"""The `reference` oracle: PyVRP with a fixed budget, for evaluation only; the policy never trains on it.

A day is priced from scratch, so a price depends on nothing but the day. Prices are remembered on disk: a baseline is
priced once. What is remembered are the routes; cost and feasibility are worked out anew by the checker whenever they
are read, so a damaged file can cost time but not truth.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shoal.rides.routing.checker import check_routes
from shoal.rides.routing.problem import REQUEST, Problem, Status
from shoal.rides.routing.pyvrp_day import SETTINGS, Budget, solve_day, total_cost_s, unserved
from shoal.vector.workers.launch import light_start, safe_start_method

Array = np.ndarray[Any, Any]
Solved = tuple[list[list[int]], list[str]]


@dataclass(frozen=True)
class Priced:
    """What a day costs: travel plus the penalties of the unserved, in seconds.

    The status is OK, unserved requests included: they are data. ERROR means that the search failed or broke a rule
    (`problems` says how); the plan is then to drive nowhere, which is poor but true.
    """

    cost_s: int
    status: Status
    routes: list[list[int]]
    unserved: tuple[int, ...]
    problems: tuple[str, ...] = ()


class Reference:
    """Prices days with PyVRP: `iterations` for each of `seeds` searches, the best counts.

    `cache` names a file that is made, read and added to. With `serve_all` nobody may be turned away, as in
    benchmark instances. `errors` counts the days that ended in ERROR.
    """

    def __init__(
        self,
        problem: Problem,
        iterations: int = 1000,
        seeds: int = 2,
        cache: str | Path | None = None,
        *,
        serve_all: bool = False,
    ) -> None:
        if seeds < 1:
            raise ValueError(f"expected at least 1 seed, got {seeds}")
        self.problem, self.seeds, self.serve_all = problem, seeds, serve_all
        self.budget = Budget(iterations=iterations)
        self.errors = 0
        self._cache = None if cache is None else RouteCache(Path(cache))

    def price(
        self, days: Sequence[Array], workers: int = 2, on_priced: Callable[[int, int], None] | None = None
    ) -> list[Priced]:
        """One price a day (REQUEST[C] each). The result does not depend on `workers`.

        `on_priced(done, of)` is called as prices come in. What was priced before an interruption stays in the cache.
        """
        return self._price(days, self.budget, self.seeds, workers, on_priced)

    def best_known(
        self,
        days: Sequence[Array],
        seconds: float = 60.0,
        seeds: int = 3,
        workers: int = 2,
        candidates: Sequence[Sequence[list[list[int]]]] | None = None,
    ) -> list[Priced]:
        """The best that is known of each day: of `seeds` searches of `seconds` each, and of routes found otherwise.

        `candidates[d]` are plans of day d by anybody; one that breaks a rule raises, as an error of whoever made it.
        Depends on how fast the machine is: it is a yardstick for gaps, not a price.
        """
        found = self._price(days, Budget(seconds=seconds), seeds, workers, None)
        for number, plans in enumerate(candidates or []):
            for routes in plans:
                other = _judged(self.problem, days[number], routes, self.serve_all)
                if other.problems:
                    raise ValueError(f"candidate of day {number}: {'; '.join(other.problems)}")
                if found[number].status != Status.OK or other.cost_s < found[number].cost_s:
                    found[number] = other
        return found

    def _price(
        self,
        days: Sequence[Array],
        budget: Budget,
        seeds: int,
        workers: int,
        on_priced: Callable[[int, int], None] | None,
    ) -> list[Priced]:
        keys = [self._key(_checked(day, number, self.problem), budget, seeds) for number, day in enumerate(days)]
        known = self._remembered(dict(zip(keys, days, strict=True)))
        todo = {key: day for key, day in zip(keys, days, strict=True) if key not in known}  # a day twice: once
        for key, (routes, problems) in _solve_all(self.problem, todo, budget, seeds, self.serve_all, workers):
            known[key] = _judged(self.problem, todo[key], routes, self.serve_all, tuple(problems))
            if known[key].status == Status.ERROR:
                self.errors += 1
            elif self._cache is not None:
                self._cache.append(key, known[key].routes)
            if on_priced is not None:
                on_priced(len(known), len(set(keys)))
        return [known[key] for key in keys]

    def _remembered(self, days: dict[str, Array]) -> dict[str, Priced]:
        if self._cache is None:
            return {}
        found = {}
        for key, routes in self._cache.routes().items():
            if key in days:
                priced = _judged(self.problem, days[key], routes, self.serve_all)
                if priced.status == Status.OK:  # else the file is damaged here: price it again
                    found[key] = priced
        return found

    def _key(self, day: Array, budget: Budget, seeds: int) -> str:
        """Everything that a price depends on, as 64 hexadecimal digits."""
        settings = (budget.iterations, budget.seconds, seeds, self.serve_all, SETTINGS, _pyvrp_version())
        digest = hashlib.sha256(json.dumps([self._problem_key, *settings]).encode())
        digest.update(np.ascontiguousarray(day.astype(REQUEST.newbyteorder("<"))).tobytes())
        return digest.hexdigest()

    @functools.cached_property
    def _problem_key(self) -> str:
        problem = self.problem
        numbers = (problem.depot, problem.vehicles, problem.capacity, problem.open_s, problem.close_s)
        digest = hashlib.sha256(json.dumps([*map(int, numbers), *problem.travel_s.shape]).encode())
        digest.update(np.ascontiguousarray(problem.travel_s, "<i4").tobytes())
        return digest.hexdigest()


class RouteCache:
    """Routes by key, one line of JSON each, in a file that is only ever added to."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise ValueError(f"expected the cache as a file, got the folder {path}")
        self.path = path

    def routes(self) -> dict[str, list[list[int]]]:
        """All that can be read; lines that cannot are passed over, of two with the same key the later counts."""
        found: dict[str, list[list[int]]] = {}
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return found
        for line in lines:
            try:
                entry = json.loads(line)
                key, routes = str(entry["key"]), [[int(stop) for stop in route] for route in entry["routes"]]
                if entry["sum"] == _checksum(key, routes):
                    found[key] = routes
            except (ValueError, TypeError, KeyError):
                continue
        return found

    def append(self, key: str, routes: list[list[int]]) -> None:
        """Add a line in one write, as O_APPEND keeps apart what several processes write.

        It begins with a newline too: a line cut short by a crash spoils itself only.
        """
        entry = {"key": key, "routes": routes, "sum": _checksum(key, routes)}
        line = json.dumps(entry, separators=(",", ":"))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, f"\n{line}\n".encode())
        finally:
            os.close(handle)


def _checksum(key: str, routes: list[list[int]]) -> str:
    """Routes with a stop missing may still be routes that somebody could drive."""
    return hashlib.sha256(json.dumps([key, routes]).encode()).hexdigest()[:16]


def _checked(day: Array, number: int, problem: Problem) -> Array:
    if day.dtype != REQUEST or day.ndim != 1:
        raise ValueError(f"day {number}: expected REQUEST[C], got {day.dtype}{list(day.shape)}")
    for side in ("pickup", "dropoff"):
        outside = (day[side] < 0) | (day[side] >= len(problem.travel_s))
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise ValueError(
                f"day {number}, request {row}: expected a {side} zone of 0 to {len(problem.travel_s) - 1}, "
                f"got {int(day[side][row])}"
            )
    if (day["size"] < 1).any():
        row = int(np.flatnonzero(day["size"] < 1)[0])
        raise ValueError(f"day {number}, request {row}: expected a party of at least 1, got {int(day['size'][row])}")
    return day


def _judged(
    problem: Problem, day: Array, routes: list[list[int]], serve_all: bool, problems: tuple[str, ...] = ()
) -> Priced:
    """The price of routes that the checker passes, or ERROR."""
    away = unserved(routes, len(day))
    served = None if serve_all else [request not in away for request in range(len(day))]
    problems = problems or tuple(check_routes(problem, day, routes, served))
    if problems:
        return Priced(total_cost_s(problem, day, []), Status.ERROR, [], tuple(range(len(day))), problems)
    return Priced(total_cost_s(problem, day, routes), Status.OK, routes, away)


def _solve_all(
    problem: Problem, days: dict[str, Array], budget: Budget, seeds: int, serve_all: bool, workers: int
) -> Iterator[tuple[str, Solved]]:
    """Solved days, in the order in which they come."""
    if workers < 1:
        raise ValueError(f"expected at least 1 worker, got {workers}")
    workers = min(workers, len(days))
    if workers <= 1:
        for key, day in days.items():
            yield key, _solve(problem, day, budget, seeds, serve_all)
        return
    method = safe_start_method(None)
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context(method))
    try:
        queue = iter(days.items())
        waiting: dict[Future[Solved], str] = {}
        with light_start(method):  # the workers start when the first day is handed in
            for _ in range(workers):
                key, day = next(queue)
                waiting[pool.submit(_solve, problem, day, budget, seeds, serve_all)] = key
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                key = waiting.pop(future)
                following = next(queue, None)  # few are handed in at a time: an interruption waits for these only
                if following is not None:
                    waiting[pool.submit(_solve, problem, following[1], budget, seeds, serve_all)] = following[0]
                yield key, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _solve(problem: Problem, day: Array, budget: Budget, seeds: int, serve_all: bool) -> Solved:
    """In a worker: one day that fails must not end the others."""
    try:
        return solve_day(problem, day, budget, seeds, serve_all)
    except (ValueError, RuntimeError, ArithmeticError, LookupError, TypeError) as error:
        return [], [f"PyVRP failed: {type(error).__name__}: {error}"]


@functools.cache
def _pyvrp_version() -> str:
    return importlib.metadata.version("pyvrp")
