"""Fit the routing network to plans: at each step of the decoder, the place that the plan gives the request.

A plan that knows only the requests so far is the plan with the others left out, so each place is well defined, whatever
the order in which vehicles are named: a route that is new goes to the first empty vehicle.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from shoal.core.arrays import Array
from shoal.core.seeds import generator
from shoal.rides.fit.lessons import Lesson, Step, lesson_of, loss_of
from shoal.rides.fit.plans_to_copy import Copybook, copybook, joined
from shoal.rides.routing.neural.decode import STARTS_S, order_of
from shoal.rides.routing.neural.fleet import NOWHERE, ROWS, Batch, City, Fleet, make_batch
from shoal.rides.routing.neural.network import OFFERED, RoutingNetwork, links_of, place_features
from shoal.rides.world.world import World

BOOK_DAYS = 512  # plans made at once ...
PASSES = 4  # ... after which so many times as many are learned from, of all made so far
FORCED, AGAIN = 256, 2  # plans whose steps are found at once, and how often those are learned from
AT_ONCE = 32  # plans in a gradient step
RATE, WARM = 1.5e-3, 200  # learning rate, and the steps until it is reached
_ORDER = 0x51FF


def places_in_plan(book: Copybook, order: Tensor) -> tuple[Tensor, Tensor]:
    """Gaps of pickup and dropoff, int64[B, C], when requests come in this order; negative if too far from the end."""
    customers = order.shape[1]
    route = torch.from_numpy(book.route[:, :customers])
    position = torch.from_numpy(book.position[:, : 2 * customers])
    rank = order.argsort(1)
    before = (rank[:, None] < rank[:, :, None]) & (route[:, None] == route[:, :, None]) & (route[:, None] >= 0)
    pickup, dropoff = position[:, 0::2], position[:, 1::2]

    def behind(stop: Tensor) -> Tensor:
        later = (pickup[:, None] > stop[:, :, None]).long() + (dropoff[:, None] > stop[:, :, None]).long()
        return (later * before).sum(2)

    return ROWS - 2 - behind(pickup), ROWS - 2 - behind(dropoff)


def copied(city: City, book: Copybook, rng: np.random.Generator) -> Lesson:
    """Every step of the plans. A step counts if the place of the plan is among those that are offered."""
    batch, order = asked(city, book, rng)
    gap_p, gap_d = places_in_plan(book, order)
    days, customers = order.shape
    route, saving = torch.from_numpy(book.route[:, :customers]), links_of(batch).saving
    fleet = Fleet(batch)
    car = torch.full((days, city.vehicles), -1)
    used = torch.zeros(days, dtype=torch.int64)
    good = torch.ones(days, dtype=torch.bool)
    steps = []
    for step in range(customers):
        request = order[:, step]
        places = fleet.places(request, OFFERED)
        features = place_features(fleet, places, request, saving, (batch.count - step).clamp(min=0) / 45.0)
        of_plan = route[fleet.day, request].clamp(min=0)
        vehicle = car[fleet.day, of_plan]
        vehicle = torch.where(vehicle < 0, used, vehicle).clamp(max=city.vehicles - 1)
        at_p, at_d = gap_p[fleet.day, request], gap_d[fleet.day, request]
        active = good & (step < batch.count)
        good = good & (at_p >= 0)  # a place too far from the end of a route: the rest of that day is left out
        active = active & good
        same = (
            (places.vehicle == vehicle[:, None])
            & (places.pickup_gap == at_p[:, None])
            & (places.dropoff_gap == at_d[:, None])
            & (places.extra_s < NOWHERE)
        )
        steps.append(Step(places.around, features, places.extra_s, same.int().argmax(1), active & same.any(1)))
        fleet.put(request, vehicle, at_p.clamp(min=0), at_d.clamp(min=0), active)
        new = active & (car[fleet.day, of_plan] < 0)
        car[fleet.day, of_plan] = torch.where(active, vehicle, car[fleet.day, of_plan])
        used = used + new
        saving[fleet.day, :, request] = 0.0
    return lesson_of(batch, order, steps)


def asked(city: City, book: Copybook, rng: np.random.Generator) -> tuple[Batch, Tensor]:
    """The days of a book, half of them with requests in another order than that of their windows."""
    days = len(book.count)
    customers = min(int(-(-book.count.max() // 8) * 8), book.requests.shape[1])
    batch = make_batch(city, book.requests[:, :customers], book.count)
    shift_s = rng.integers(-STARTS_S, STARTS_S + 1, (days, customers)) * rng.integers(2, size=(days, 1))
    return batch, order_of(batch, torch.from_numpy(shift_s.astype(np.int32)))


class Imitation:
    """A fit that can be interrupted: everything it needs to go on is in its folder."""

    def __init__(self, world: World, folder: Path, *, seed: int, seconds: float, say: Callable[[str], None]) -> None:
        self.world, self.folder, self.seed, self.seconds, self.say = world, folder, seed, seconds, say
        self.city = City.of(world.problem)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = RoutingNetwork()
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE)
        self.books: list[Copybook] = []
        self.numbers = {"seed": seed, "books": 0, "steps": 0, "ms": 0, "cpu_ms": 0}
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "state.safetensors").is_file():
            self._restore()

    def run(self, now_s: float = float("inf")) -> None:
        """Until the CPU time is up, or after `now_s` of it for now: make plans, learn from them, save."""
        until_ms = min(1000 * self.seconds, self.numbers["cpu_ms"] + 1000 * now_s)
        while self.numbers["cpu_ms"] < until_ms:
            began, began_cpu = time.perf_counter(), time.process_time()
            self._make_book()
            loss, hit = self._learn(began_cpu)
            self.numbers["ms"] += int(1000 * (time.perf_counter() - began))
            self.numbers["cpu_ms"] += int(1000 * (time.process_time() - began_cpu))
            self._save()
            self.say(
                f"{self.numbers['cpu_ms'] / 1000:.0f} of {self.seconds:.0f} s of CPU: {self.days:,} days, "
                f"{self.numbers['steps']:,} steps, loss {loss:.4f}, the plan's place in {100 * hit:.1f} %"
            )

    @property
    def days(self) -> int:
        """Days that have been planned."""
        return sum(len(book.count) for book in self.books)

    def _make_book(self) -> None:
        book = copybook(self.world, self.seed, self.numbers["books"], BOOK_DAYS)
        self._keep(book, self.numbers["books"])
        self.books.append(book)
        self.numbers["books"] += 1

    def _file(self, number: int) -> Path:
        return self.folder / f"plans-{number:05}.npz"

    def _keep(self, book: Copybook, number: int) -> None:
        names = ("requests", "count", "route", "position")
        np.savez(self._file(number), allow_pickle=False, **{name: getattr(book, name) for name in names})

    def _learn(self, began: float) -> tuple[float, float]:
        """As many days as one book has, several times, drawn from all books; days of like size together."""
        rng = generator(self.seed, _ORDER, self.numbers["books"])
        found = []
        for _ in range(PASSES):
            chosen = rng.choice(self.days, min(BOOK_DAYS, self.days), replace=False)
            sizes = np.concatenate([book.count for book in self.books])[chosen]
            by_size = chosen[np.argsort(sizes, kind="stable")]
            parts: list[Lesson] = []
            for group in np.array_split(by_size, -(-len(by_size) // FORCED)):
                lesson = copied(self.city, self._pick(group), rng)
                for _ in range(AGAIN):
                    mixed = torch.from_numpy(rng.permutation(len(group)))
                    parts += [lesson.rows(rows) for rows in mixed.tensor_split(-(-len(group) // AT_ONCE))]
            found += [self._step(parts[part], began) for part in rng.permutation(len(parts))]
        loss, hit = np.mean(found, 0)
        return float(loss), float(hit)

    def _step(self, lesson: Lesson, began: float) -> list[float]:
        self._set_rate(time.process_time() - began)
        loss, hit = loss_of(self.network, lesson)
        self.optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step()
        self.numbers["steps"] += 1
        return [float(loss.detach()), float(hit)]

    def _pick(self, rows: Array) -> Copybook:
        starts = np.cumsum([0, *(len(book.count) for book in self.books)])
        which = np.searchsorted(starts, rows, side="right") - 1
        return joined([self.books[one].rows(rows[which == one] - starts[one]) for one in np.unique(which)])

    def _set_rate(self, since_s: float) -> None:
        """Up in the first steps, then down with the time that is left."""
        done = min(1.0, (self.numbers["cpu_ms"] / 1000 + since_s) / self.seconds)
        rate = RATE * min(1.0, (self.numbers["steps"] + 1) / WARM) * max(0.02, 0.5 * (1 + np.cos(np.pi * done)))
        for group in self.optimiser.param_groups:
            group["lr"] = rate

    def _save(self) -> None:
        tensors = {f"network.{name}": value.contiguous() for name, value in self.network.state_dict().items()}
        for name, parameter in self.network.named_parameters():
            for part, value in self.optimiser.state[parameter].items():
                tensors[f"optimiser.{part}.{name}"] = value.contiguous().clone()
        unfinished = self.folder / "state.part"
        save_file(tensors, unfinished, metadata={name: str(value) for name, value in self.numbers.items()})
        unfinished.replace(self.folder / "state.safetensors")

    def _restore(self) -> None:
        path = self.folder / "state.safetensors"
        with safe_open(path, "pt") as file:
            self.numbers = {name: int(file.metadata()[name]) for name in self.numbers}
        if self.numbers["seed"] != self.seed:
            raise ValueError(
                f"{self.folder} holds a fit of --seed {self.numbers['seed']}, got --seed {self.seed}: give that seed "
                "to go on, or another --out"
            )
        tensors = load_file(path)
        prefix = "network."
        self.network.load_state_dict({n[len(prefix) :]: v for n, v in tensors.items() if n.startswith(prefix)})
        for name, parameter in self.network.named_parameters():
            parts = {part: tensors[f"optimiser.{part}.{name}"] for part in ("step", "exp_avg", "exp_avg_sq")}
            self.optimiser.state[parameter] = parts
        for number in range(self.numbers["books"]):
            if not self._file(number).is_file():  # thrown away to save space: it can be made again
                self._keep(copybook(self.world, self.seed, number, BOOK_DAYS), number)
            with np.load(self._file(number), allow_pickle=False) as file:
                self.books.append(Copybook(**{name: file[name] for name in file.files}))
        self.say(f"going on after {self.numbers['steps']:,} steps")
