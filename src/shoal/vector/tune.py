"""`shoal tune`: which backend, and how many environments at once, are fastest for one's own environment here.

Timed is `step` of the whole batch, and nothing else: actions are drawn outside the clock, legal ones where the
observation says which are. All are started first and take turns, so that a busy moment of the machine touches all of
them, and the median of one's turns counts. Garbage collection waits until the turns are over: what a collection costs
depends on all that is in this process, not on the environment.
"""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv

from shoal.core.machine import usable_cores
from shoal.core.protocols import Batched, parts_of
from shoal.vector.choose import without_collections
from shoal.vector.foreign import is_compiled
from shoal.vector.make import make_vec
from shoal.vector.random_actions import RandomActions

NUM_ENVS = (8, 32, 128)
BACKENDS = ("serial", "process", "split")  # the others are for environments that step all at once
TURNS, SECONDS = 5, 1.0
_CLOSE = 1.05  # as fast as the fastest, for all that a measurement of a second can tell
_WARM_UP = 3  # steps: the first may compile, load or cache something


@dataclass(frozen=True)
class Trial:
    """One backend with one number of environments."""

    backend: str
    num_envs: int
    threads: int  # of a compiled environment
    steps_per_s: float  # environment steps, the median of the turns
    slowest: float  # the slowest turn, and the fastest
    fastest: float
    cpu_s_per_step: float | None  # CPU-seconds of an environment step, workers included; None where they do not say

    @property
    def label(self) -> str:
        """The backend in words."""
        return _label(self.backend, self.threads)

    @property
    def flags(self) -> str:
        """What to give to `shoal train`."""
        threads = f" --env-threads {self.threads}" if self.backend == "compiled" else ""
        return f"--backend {self.backend} --num-envs {self.num_envs}{threads}"


@dataclass(frozen=True)
class Tuning:
    """All trials, and the one to prefer."""

    trials: tuple[Trial, ...]
    best: Trial
    took_s: float

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the flags of each."""
        trials = [asdict(trial) | {"flags": trial.flags} for trial in self.trials]
        return {"flags": self.best.flags, "took_s": round(self.took_s, 1), "trials": trials}


def tune(
    env: Any,
    *,
    num_envs: Sequence[int] = NUM_ENVS,
    backends: Sequence[str] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    workers: int | None = None,
    start_method: str | None = None,
    seconds: float = SECONDS,
    turns: int = TURNS,
    say: Callable[[str], None] = lambda text: None,
) -> Tuning:
    """Measure backends and numbers of environments; `env` is what `make_vec` takes, but for a ready VectorEnv.

    Each trial is stepped for `seconds` in all, in `turns` turns. `say` hears what will be measured and for how long.

    >>> found = tune("CartPole-v1", num_envs=(2,), backends=("serial",), seconds=0.05)
    >>> found.best.flags
    '--backend serial --num-envs 2'
    """
    if isinstance(env, VectorEnv):
        raise TypeError(f"expected an id or a function that makes one environment, got the VectorEnv {env} itself")
    if not num_envs or min(num_envs) < 1:
        raise ValueError(f"expected --num-envs as whole numbers of at least 1, got {list(num_envs)}")
    if not (math.isfinite(seconds) and seconds > 0) or turns < 1:
        raise ValueError(f"expected --seconds above 0 and --turns of at least 1, got {seconds:g} and {turns}")
    began = time.perf_counter()
    plan = [
        (backend, number, threads)
        for number in sorted(set(num_envs))
        for backend, threads in _contenders(env, number, backends, workers)
    ]
    say(_about(plan, seconds, turns))
    with ExitStack() as to_close:
        clocks = []
        for backend, number, threads in plan:
            more: dict[str, Any] = {"env_threads": threads} if backend == "compiled" else {}
            made = make_vec(
                env, number, backend=backend, workers=workers, start_method=start_method, env_kwargs=env_kwargs, **more
            )
            clocks.append(_Clock(to_close.enter_context(closing(made))))
        for clock in clocks:
            clock.warm_up()
        gc.collect()
        with without_collections():
            for _ in range(turns):
                for clock in clocks:
                    clock.turn(seconds / turns)
        trials = tuple(clock.trial(backend, threads) for clock, (backend, _, threads) in zip(clocks, plan, strict=True))
    return Tuning(trials, prefer(trials), time.perf_counter() - began)


def prefer(trials: Sequence[Trial]) -> Trial:
    """Of those about as fast as the fastest, the one that leaves most CPU time to the learner; then the smallest."""
    fastest = max(trial.steps_per_s for trial in trials)
    close = [trial for trial in trials if _CLOSE * trial.steps_per_s >= fastest]
    return min(close, key=lambda one: (one.cpu_s_per_step is None, one.cpu_s_per_step or 0.0, one.num_envs))


def _contenders(env: Any, num_envs: int, backends: Sequence[str] | None, workers: int | None) -> list[tuple[str, int]]:
    """(backend, threads) that can step so many of them."""
    if isinstance(env, Batched) or is_compiled(env):
        if backends is not None and set(backends) != {"compiled"}:
            raise ValueError(f"{env} steps all its environments at once: expected no --backends, got {list(backends)}")
        return [("compiled", threads) for threads in sorted({1, min(usable_cores(), num_envs)})]
    if backends is not None and (not backends or not set(backends) <= set(BACKENDS)):
        raise ValueError(f"expected --backends of {', '.join(BACKENDS)}, got {', '.join(backends) or 'none'}")
    if backends is None and (num_envs == 1 or usable_cores() == 1):
        return [("serial", 1)]  # nothing to share out
    if backends is None:
        backends = [name for name in BACKENDS if name != "split" or workers is None or workers > 1]
    return [(name, 1) for name in BACKENDS if name in backends]


def _about(plan: list[tuple[str, int, int]], seconds: float, turns: int) -> str:
    names = ", ".join(dict.fromkeys(_label(backend, threads) for backend, _, threads in plan))
    numbers = ", ".join(dict.fromkeys(f"{number:,}" for _, number, _ in plan))
    load, cores = os.getloadavg()[0], usable_cores()
    busy = f"; load {load:.1f}: other programs are running, the figures will be off" if load > 0.25 * cores else ""
    return (
        f"measuring {names} with {numbers} environments: each steps for {seconds:g} s in {turns} turns, random legal "
        f"actions, about {seconds * len(plan):,.0f} s in all and the time to start them; {cores} core(s){busy}"
    )


def _label(backend: str, threads: int) -> str:
    return backend if backend != "compiled" else f"{backend}, {threads} thread{'s' if threads > 1 else ''}"


class _Clock:
    """A batch of environments, and what its steps took."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self.env, self._legal = env, RandomActions(env, seed=0)
        self._rates: list[float] = []
        self._steps, self._cpu_s = 0, 0.0

    def warm_up(self) -> None:
        self._observations, _ = self.env.reset(seed=0)
        for _ in range(_WARM_UP):
            self._observations = self.env.step(self._legal(self._observations))[0]

    def turn(self, seconds: float) -> None:
        """Step for so long, at least once."""
        env, legal, observations = self.env, self._legal, self._observations
        pids = parts_of(env).pids
        workers_s = worker_cpu_s(pids)
        spent_s = cpu_s = 0.0
        steps = 0
        while spent_s < seconds:
            actions = legal(observations)
            cpu, wall = time.process_time(), time.perf_counter()
            observations = env.step(actions)[0]
            spent_s += time.perf_counter() - wall
            cpu_s += time.process_time() - cpu
            steps += env.num_envs
        workers_s = worker_cpu_s(pids) - workers_s
        self._observations = observations
        self._rates.append(steps / spent_s)
        self._steps += steps
        self._cpu_s += cpu_s + workers_s

    def trial(self, backend: str, threads: int) -> Trial:
        """What the turns amount to."""
        rates = self._rates
        cpu_s = None if math.isnan(self._cpu_s) else self._cpu_s / self._steps
        return Trial(backend, self.env.num_envs, threads, statistics.median(rates), min(rates), max(rates), cpu_s)


def worker_cpu_s(pids: Sequence[int]) -> float:
    """CPU seconds that these processes have had, to a hundredth; NaN on systems that do not tell. proc_pid_stat(5)."""
    if pids and not Path("/proc/self/stat").exists():
        return math.nan
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system
    return ticks / os.sysconf("SC_CLK_TCK")
