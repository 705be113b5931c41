"""`shoal rides fit lookahead|taught|oracle`: make the weights that rides starts from, with a card that says how.

The weights that ship are in rides/data, each with such a card. Days are simulated in batches, each from a seed of its
own, so the weights do not depend on the number of processes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shoal.core.machine import usable_cores
from shoal.extras import require
from shoal.rides.options import RidesOptions
from shoal.runs.provenance import code, machine
from shoal.tasks import Command, Say, Shown

if TYPE_CHECKING:  # what needs torch is imported where it is used: other verbs of rides do without
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.fit.lookahead import Branches
    from shoal.rides.fit.teaching import Lessons

DAYS_AT_ONCE = 64
TAUGHT_WIDTH = 64  # of the network that `--start taught` begins with
Batches = Callable[..., list[Any]]  # (function, number of batches, arguments) -> what each batch gave, in order


@dataclass(frozen=True)
class FitOptions:
    """Make the weights of the lookahead, of the network that training starts from (taught), or of the neural routing
    oracle."""

    what: Literal["lookahead", "taught", "oracle"]
    """lookahead: what an accepted offer is worth, from days that branch. taught: the network that `shoal train rides`
    starts from, from sampled futures; it looks at the lookahead that ships. oracle: the network behind
    --oracle neural, which copies plans of the routing search; it takes --hours, --minutes, --seed and --out alone."""
    prices: Literal["insertion", "pooled"] = "pooled"
    """Prices of the 16 offers that the weights are for."""
    days: int = 10_000
    """Simulated days of training riders: about a CPU-second each. The weights that ship took more; see their cards."""
    customers: int = 30
    """Requests per day."""
    passes: int = 12
    """lookahead: passes of the fit over the days."""
    steps: int = 5000
    """taught: gradient steps of the fit."""
    seed: int = 0
    """Seed of the days and of the fit."""
    hours: float = 3.0
    """oracle: hours of CPU time for plans and fit together. A fit that was interrupted goes on where it was, from the
    folder beside its weights (OUT with .fit)."""
    minutes: float = float("inf")
    """oracle: stop after so many minutes of CPU time for now; the same command goes on. The learning rate falls over
    --hours."""
    workers: int | None = None
    """Processes that simulate days; default: one per usable core. They do not change the weights."""
    device: str = "cpu"
    """Where the fit is computed: cpu or cuda."""
    out: str = ""
    """File for the weights (.npz; of the oracle .safetensors); default: lookahead_PRICES.npz, taught_PRICES.npz or
    oracle.safetensors here. The card is beside it."""

    def __post_init__(self) -> None:
        shared, of_oracle = ("what", "seed", "out"), ("hours", "minutes")
        for one in fields(self):
            if one.name not in shared and getattr(self, one.name) != one.default:
                if self.what == "oracle" and one.name not in of_oracle:
                    raise ValueError(
                        f"expected of fit oracle --hours, --minutes, --seed and --out alone, got --{one.name}"
                    )
                if self.what != "oracle" and one.name in of_oracle:
                    raise ValueError(
                        f"--{one.name} is for fit oracle, got fit {self.what}: --days says how long that is"
                    )
        least = {"days": 20, "customers": 1, "passes": 1, "steps": 1, "seed": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise ValueError(f"expected --{name} of at least {bound}, got {getattr(self, name)}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"expected --workers of at least 1, got {self.workers}")
        if not 0 < self.hours < float("inf"):
            raise ValueError(f"expected --hours above 0, got {self.hours}")
        if not self.minutes > 0:
            raise ValueError(f"expected --minutes above 0, got {self.minutes}")
        if not self.file.name.endswith(self._ending):
            raise ValueError(f"expected --out as a file that ends in {self._ending}, got {self.out!r}")

    @property
    def _ending(self) -> str:
        return ".safetensors" if self.what == "oracle" else ".npz"

    @property
    def file(self) -> Path:
        """Where the weights go."""
        return Path(self.out or ("oracle" if self.what == "oracle" else f"{self.what}_{self.prices}") + self._ending)

    @property
    def command(self) -> str:
        """What makes these weights again. How many processes, and the file's name, are no part of that."""
        rest = {"what", "workers", "out", "hours", "minutes"}
        own = ("hours", "seed") if self.what == "oracle" else set(asdict(self)) - rest
        kept = {name: value for name, value in asdict(self).items() if name in own}
        return f"shoal rides fit {self.what} " + " ".join(f"--{name} {value}" for name, value in kept.items())


def fit(options: FitOptions, say: Say = lambda text: None) -> dict[str, Any]:
    """Simulate days, fit, and write the weights and their card; returns the card."""
    options.file.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    took: dict[str, Any] = {"days": options.days}
    if options.what == "oracle":
        from shoal.rides.fit.oracle import fit_oracle

        took, scores = fit_oracle(
            options.file, hours=options.hours, minutes=options.minutes, seed=options.seed, say=say
        )
    else:
        with _workers(options) as batches:
            scores = (_fit_lookahead if options.what == "lookahead" else _teach)(options, batches, say)
    card = {
        "weights": options.file.name,
        "sha256": hashlib.sha256(options.file.read_bytes()).hexdigest(),
        "command": options.command,
        "code": code(),
        "machine": machine(),
        "seed": options.seed,
        **took,
        "scores": scores,
        "wall_s": round(time.perf_counter() - began, 1),
    }
    options.file.with_suffix(".json").write_text(json.dumps(card, indent=2) + "\n")
    return card


def _fit_lookahead(options: FitOptions, batches: Batches, say: Say) -> dict[str, float]:
    """Half of the days under a generous policy, the others under the lookahead that was fitted on those."""
    from shoal.rides.fit import lookahead

    half = -(-options.days // 2)
    say(f"{half} days under a generous policy")
    first = batches(_branches, range(_count(half)), options, "")
    found, scores = lookahead.fit_lookahead(
        lookahead.joined(first), seed=options.seed, epochs=options.passes, device=options.device
    )
    if options.days > half:
        say(
            f"{options.days - half} days under that lookahead, whose R2 on held-out days is {scores['held_out_r2']:.3f}"
        )
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "lookahead.npz")
            found.save(file)
            rest = range(_count(half), _count(half) + _count(options.days - half))
            later = batches(_branches, rest, options, file)
        found, scores = lookahead.fit_lookahead(
            lookahead.joined(first + later), seed=options.seed, epochs=options.passes, device=options.device
        )
    found.save(options.file)
    return scores


def _branches(batch: int, options: FitOptions, file: str) -> Branches:
    """One batch of days; with a lookahead in `file`, days go on under that."""
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.fit.lookahead import collect_branches

    world = RidesOptions(
        customers=options.customers, start="lookahead" if file else "none", lookahead=file, knowledge="true",
        mask="off", futures=0, prices=options.prices if file else "insertion",
    )  # fmt: skip
    env = RidesVectorEnv(_days_at_once(options), world)
    found = collect_branches(
        env, seed=options.seed, batch=batch, follow=bool(file), prices=None if file else options.prices
    )
    env.close()
    return found


def _teach(options: FitOptions, batches: Batches, say: Say) -> dict[str, float]:
    import torch

    from shoal.rides.fit import teaching
    from shoal.rides.policies.network import RidesNetwork

    say(f"{options.days} days of sampled futures")
    lessons = teaching.joined(batches(_lessons, range(_count(options.days)), options))
    env: Any = _taught_env(options, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        network = RidesNetwork(env.single_observation_space, width=TAUGHT_WIDTH, start="lookahead", temperature=1.0)
    say(f"{len(lessons.day):,} requests; {options.steps} gradient steps")
    scores = teaching.teach(network, lessons, seed=options.seed, steps=options.steps, device=options.device)
    np.savez(options.file, allow_pickle=False, **network.taught())
    return scores


def _lessons(batch: int, options: FitOptions) -> Lessons:
    from shoal.rides.fit.teaching import collect_lessons

    env = _taught_env(options, _days_at_once(options))
    found = collect_lessons(env, seed=options.seed, batch=batch)
    env.close()
    return found


def _taught_env(options: FitOptions, num_envs: int) -> RidesVectorEnv:
    """Days as they are taught: P is known, nothing is masked."""
    from shoal.rides.env import RidesVectorEnv

    return RidesVectorEnv(num_envs, RidesOptions(
        customers=options.customers, start="lookahead", knowledge="true", mask="off", futures=0, prices=options.prices,
    ))  # fmt: skip


def _days_at_once(options: FitOptions) -> int:
    return min(DAYS_AT_ONCE, options.days if options.what == "taught" else -(-options.days // 2))


def _count(days: int) -> int:
    """Batches of as many days."""
    return -(-days // DAYS_AT_ONCE)


@contextmanager
def _workers(options: FitOptions) -> Iterator[Batches]:
    """Runs a function over batches, in processes where there is more than one."""
    count = min(options.workers or usable_cores(), _count(options.days))
    if count == 1:
        yield lambda function, numbers, *given: [function(number, *given) for number in numbers]
        return
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        yield lambda function, numbers, *given: list(pool.map(function, numbers, *map(itertools.repeat, given)))


def _run(options: FitOptions, say: Say) -> Shown:
    require("rides", "shoal rides")
    card = fit(options, say)
    scores = [f"{name}  {value:.3f}" for name, value in card["scores"].items()]
    return Shown(card, [*scores, f"weights  {options.file}", f"card     {options.file.with_suffix('.json')}"])


COMMAND = Command(
    "make the weights that rides starts from, with a card that says how",
    FitOptions,
    _run,
    "lookahead|taught|oracle",
    "what",
)
