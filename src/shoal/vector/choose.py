"""`--backend auto`: measure, pick, say why."""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from shoal.core.errors import EnvFault, text_of
from shoal.core.machine import usable_cores
from shoal.vector.random_actions import RandomActions

Make = Callable[[], VectorEnv[Any, Any, Any]]

_PROBE_S = 0.05  # time given to stepping one environment
_TRIAL_S = 0.3  # time given to each backend where any could win
_TURNS = 5
_HAND_OFF_S = 60e-6  # waking workers and waiting for them: below this no split can pay
_WORTH = 1.05  # serial is kept unless another is this much faster: it leaves the cores to the learner; then process
_CLEAR_S = 20e-3  # a batch step this long is worth splitting whatever the hand-off costs


class Measured(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that can say what a step of it costs where it lives: in a worker, say."""

    def step_cost_s(self) -> float:
        """Seconds of a step with random legal actions; an episode's reset counts with its steps."""
        from shoal.vector.serial import SerialVectorEnv

        batch = SerialVectorEnv([lambda: self.env])
        try:
            return step_cost_s(batch)
        finally:
            batch.closed = True  # the environment is its owner's to close


def step_cost_s(env: VectorEnv[Any, Any, Any]) -> float:
    """Seconds of a step of a batch, with random legal actions; an episode's reset counts with its steps.

    The middle one of several short means: one pause of the machine is in one of them only.
    """
    return 1 / _batches_per_s(env, _PROBE_S, most=400)


def choose(
    one: Make,
    num_envs: int,
    serial: Make,
    process: Make,
    split: Make | None,
    workers: int | None,
    say: Callable[[str], None],
) -> VectorEnv[Any, Any, Any]:
    """The first of serial, process and split that is nearly as fast as the fastest, for this environment on this
    machine. Nothing is ever swapped for a compiled twin: the environment asked for is the one that runs.

    No more than one batch is open at a time. A backend that cannot be built or stepped is out, and it is said why.
    """
    count = min(workers or usable_cores(), num_envs)
    if count == 1:
        say("backend serial: there is one " + ("environment" if num_envs == 1 else "core"))
        return serial()
    with closing(one()) as env:
        cost_s = step_cost_s(env)
    batch_s = num_envs * cost_s
    about = f"with random actions a step takes {cost_s * 1e6:,.0f} us, a batch of {num_envs} {batch_s * 1e3:,.2f} ms"
    if batch_s < 2 * _HAND_OFF_S:
        say(f"backend serial: {about}, less than waking {count} workers would save")
        return serial()
    if batch_s > _CLEAR_S:
        try:
            made = process()
        except Exception as error:  # of many kinds: cannot be pickled, no children allowed, dead workers, ...
            say(f"backend serial: {about}, but {_out('process', error)}")
            return serial()
        say(f"backend process: {about}, split over {count} workers")
        return made
    makers = {"serial": serial, "process": process} | ({} if split is None else {"split": split})
    speeds: dict[str, float] = {}
    for name, make in makers.items():
        try:
            with closing(make()) as env:
                speeds[name] = env.num_envs * _batches_per_s(env, _TRIAL_S)
        except Exception as error:
            if name == "serial":  # nothing but the environment itself is at work here
                raise
            say(_out(name, error))
    best = next(name for name, speed in speeds.items() if _WORTH * speed > max(speeds.values()))
    figures = ", ".join(f"{name} {speed:,.0f} steps/s" for name, speed in speeds.items())
    close = speeds[best] < max(speeds.values())
    say(f"backend {best}: measured {figures}" + (", the others are not clearly faster" if close else ""))
    return makers[best]()


def _batches_per_s(env: VectorEnv[Any, Any, Any], for_s: float, most: int | None = None) -> float:
    """Steps of a batch per second, the median of several turns of at most so many steps."""
    actions, rates = RandomActions(env, seed=0), []
    observations, _ = env.reset(seed=0)
    observations, *_ = env.step(actions(observations))  # the first may compile, load or cache something
    with without_collections():
        for _ in range(_TURNS):
            seconds, steps, observations = _play(env, actions, observations, for_s / _TURNS, most)
            rates.append(steps / seconds)
    return statistics.median(rates)


def _play(
    env: VectorEnv[Any, Any, Any], actions: RandomActions, observations: Any, for_s: float, most: int | None
) -> tuple[float, int, Any]:
    """(seconds spent in steps, steps, last observations) of about so long, at least one step."""
    seconds, steps, deadline = 0.0, 0, time.perf_counter() + for_s
    while steps == 0 or (time.perf_counter() < deadline and steps != most):
        drawn = actions(observations)
        start = time.perf_counter()
        observations, *_ = env.step(drawn)
        seconds += time.perf_counter() - start
        steps += 1
    return seconds, steps, observations


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """One full collection takes longer than a whole measurement."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _out(name: str, error: Exception) -> str:
    what = error.message if isinstance(error, EnvFault) else f"{type(error).__name__}: {text_of(error)}"
    return f"backend {name} is out: {what}"
