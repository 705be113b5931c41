"""`--backend auto`: measure, pick, say why."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from gymnasium.vector import VectorEnv

from shoal.vector.launch import usable_cores

_PROBE_S = 0.05  # time given to stepping one environment
_TRIAL_S = 0.3  # time given to each backend where any could win
_TURNS = 5
_HAND_OFF_S = 60e-6  # waking workers and waiting for them: below this no split can pay
_WORTH = 1.05  # serial is kept unless another is this much faster: it leaves the cores to the learner; then process
_CLEAR_S = 20e-3  # a batch step this long is worth splitting whatever the hand-off costs


def step_cost_s(make: Callable[[], VectorEnv[Any, Any, Any]]) -> float:
    """Mean seconds of a step of a batch, with random actions; an episode's reset counts with its steps."""
    with closing(make()) as env:
        return _step_cost_s(env)


def _step_cost_s(env: VectorEnv[Any, Any, Any]) -> float:
    env.action_space.seed(0)
    env.reset(seed=0)
    env.step(env.action_space.sample())  # the first may compile, load or cache something
    total_s, steps = 0.0, 0
    deadline = time.perf_counter() + _PROBE_S
    while steps < 5 or (time.perf_counter() < deadline and steps < 2000):
        action = env.action_space.sample()
        start = time.perf_counter()
        env.step(action)
        total_s += time.perf_counter() - start
        steps += 1
    return total_s / steps


def choose(
    one: Callable[[], VectorEnv[Any, Any, Any]],
    num_envs: int,
    serial: Callable[[], VectorEnv[Any, Any, Any]],
    process: Callable[[], VectorEnv[Any, Any, Any]],
    split: Callable[[], VectorEnv[Any, Any, Any]] | None,
    workers: int | None,
    say: Callable[[str], None],
) -> VectorEnv[Any, Any, Any]:
    """The first of serial, process and split that is nearly as fast as the fastest, for this environment on this
    machine. Nothing is ever swapped for a compiled twin: the environment asked for is the one that runs."""
    count = min(workers or usable_cores(), num_envs)
    if count == 1:
        say("backend serial: there is one " + ("environment" if num_envs == 1 else "core"))
        return serial()
    cost_s = step_cost_s(one)
    batch_s = num_envs * cost_s
    about = f"a step takes {cost_s * 1e6:,.0f} us, a batch of {num_envs} {batch_s * 1e3:,.2f} ms"
    if batch_s < 2 * _HAND_OFF_S:
        say(f"backend serial: {about}, less than waking {count} workers would save")
        return serial()
    if batch_s > _CLEAR_S:
        say(f"backend process: {about}, split over {count} workers")
        return process()
    with ExitStack() as to_close:
        contenders: dict[str, VectorEnv[Any, Any, Any]] = {}
        makers: dict[str, Callable[[], VectorEnv[Any, Any, Any]]] = {"serial": serial, "process": process}
        if split is not None:
            makers["split"] = split
        for name, make in makers.items():
            contenders[name] = make()
            to_close.callback(contenders[name].close)
        for env in contenders.values():
            env.action_space.seed(0)
            env.reset(seed=0)
        turns = [  # in turn, so that a busy moment of the machine hits all
            {name: _steps_per_s(env, _TRIAL_S / _TURNS) for name, env in contenders.items()} for _ in range(_TURNS)
        ]
        speeds = {name: statistics.median(turn[name] for turn in turns) for name in contenders}
        to_close.pop_all()
    best = next(name for name, speed in speeds.items() if _WORTH * speed > max(speeds.values()))
    for name, env in contenders.items():
        if name != best:
            env.close()
    figures = ", ".join(f"{name} {speed:,.0f} steps/s" for name, speed in speeds.items())
    close = speeds[best] < max(speeds.values())
    say(f"backend {best}: measured {figures}" + (f", too close to prefer another to {best}" if close else ""))
    return contenders[best]


def _steps_per_s(env: VectorEnv[Any, Any, Any], seconds: float) -> float:
    actions = env.action_space.sample()
    start = time.perf_counter()
    steps = 0
    while time.perf_counter() < start + seconds:
        env.step(actions)
        steps += env.num_envs
    return steps / (time.perf_counter() - start)
