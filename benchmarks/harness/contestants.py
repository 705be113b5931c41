"""Who competes: the ideal, shoal's backends and the peers', all stepping the same environments."""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.harness.synthetic import Synthetic

Factory = Callable[[], gym.Env[Any, Any]]
_ROLLOUT = 128  # rows that a trainer keeps
_TABLE = 256  # rows of actions sampled beforehand: acting is not what is measured


def factory(env: str | dict[str, Any]) -> Factory:
    """A Gymnasium id, or the options of a Synthetic, as a function that makes one."""
    if isinstance(env, dict):
        return functools.partial(Synthetic, **env)
    return functools.partial(gym.make, env, disable_env_checker=True)


class Stepped:
    """Any vector environment, stepped in lock-step with actions sampled beforehand."""

    def __init__(self, envs: Any, step: Callable[[Any], Any] | None = None) -> None:
        self.envs, self._step, self._time = envs, step or envs.step, 0
        space = envs.action_space if isinstance(envs, gym.vector.VectorEnv) else None
        if space is None:  # SB3 names the space of one environment so
            space = gym.vector.utils.batch_space(envs.action_space, envs.num_envs)
        space.seed(0)
        self._actions = [space.sample() for _ in range(_TABLE)]

    def block(self, seconds: float) -> int:
        step, actions, num_envs, began = self._step, self._actions, self.envs.num_envs, self._time
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            step(actions[self._time % _TABLE])
            self._time += 1
        return int((self._time - began) * num_envs)

    def close(self) -> None:
        self.envs.close()


def shoal_vector(env: str | dict[str, Any], num_envs: int, backend: str) -> Stepped:
    """shoal in lock-step, observations going into the rows of a rollout, one after another, as its trainer has it."""
    from shoal.vector.adapt import Stepper
    from shoal.vector.make import make_vec

    envs: Any = make_vec(factory(env) if isinstance(env, dict) else env, num_envs, backend=backend)
    stepper = Stepper(envs)
    leaves = stepper.allocate(_ROLLOUT)
    rows = itertools.cycle([stepper.layout.assemble([leaf[t] for leaf in leaves]) for t in range(_ROLLOUT)])
    envs.reset(seed=0)
    return Stepped(envs, lambda actions: envs.step(actions, out=next(rows)))


class FirstReady:
    """shoal with slices="ready": whoever has its observations is given its next actions at once."""

    def __init__(self, env: dict[str, Any], num_envs: int) -> None:
        from shoal.vector.make import make_vec

        self.envs: Any = make_vec(factory(env), num_envs, backend="process", slices="ready")
        self._out, _ = self.envs.reset(seed=0)
        self._actions = np.random.default_rng(0).integers(0, 2, (_TABLE, num_envs))  # int64[256, N]

    def block(self, seconds: float) -> int:
        envs, actions, out, slices = self.envs, self._actions, self._out, self.envs.slices
        waiting = list(range(len(slices)))
        for part in waiting:
            envs.send(part, actions[0, slices[part]])
        deadline = time.perf_counter() + seconds
        steps = 0
        for turn in itertools.count(1):
            for part in envs.ready(waiting):
                rows = slices[part]
                envs.recv(part, out=out[rows])
                steps += rows.stop - rows.start
                if time.perf_counter() < deadline:
                    envs.send(part, actions[turn % _TABLE, rows])
                else:
                    waiting.remove(part)  # its last; a block ends with nobody at work
            if not waiting:
                return steps
        raise AssertionError("count() does not end")

    def close(self) -> None:
        self.envs.close()


class Ideal:
    """As many bare processes as cores, each stepping its share of the environments in a plain loop; no hand-off."""

    def __init__(self, env: dict[str, Any], num_envs: int, processes: int) -> None:
        context = multiprocessing.get_context("fork")
        self._ends: list[Connection] = []
        for number in range(processes):
            ours, theirs = context.Pipe()
            seeds = range(num_envs)[number::processes]
            context.Process(target=_bare, args=(theirs, factory(env), seeds), daemon=True).start()
            self._ends.append(ours)
        for end in self._ends:
            end.recv()

    def block(self, seconds: float) -> int:
        for end in self._ends:
            end.send(seconds)
        return sum(end.recv() for end in self._ends)

    def close(self) -> None:
        for end in self._ends:
            end.close()


def _bare(end: Connection, make: Factory, seeds: range) -> None:
    envs = [make() for _ in seeds]
    for env, seed in zip(envs, seeds, strict=True):
        env.reset(seed=seed)
    turns = itertools.cycle(envs)
    action = np.int64(0)
    end.send("ready")
    while True:
        deadline = end.recv() + time.perf_counter()  # in this order: recv waits
        steps = 0
        while time.perf_counter() < deadline:
            next(turns).step(action)
            steps += 1
        end.send(steps)


def gymnasium_async(env: dict[str, Any], num_envs: int) -> Stepped:
    """Gymnasium's AsyncVectorEnv: a process per environment, shared memory."""
    envs = gym.vector.AsyncVectorEnv([factory(env)] * num_envs, shared_memory=True, context="fork")
    envs.reset(seed=0)
    return Stepped(envs)


def gymnasium_sync(env: str, num_envs: int) -> Stepped:
    """Gymnasium's SyncVectorEnv, as make_vec gives it."""
    envs = gym.make_vec(env, num_envs, vectorization_mode="sync")
    envs.reset(seed=0)
    return Stepped(envs)


def sb3_subproc(env: dict[str, Any], num_envs: int) -> Stepped:
    """Stable-Baselines3's SubprocVecEnv: a process per environment, pickles through pipes.

    Forked: its default imports torch in every process, minutes for 64; how fast they step is the same.
    """
    from stable_baselines3.common.vec_env import SubprocVecEnv

    envs = SubprocVecEnv([factory(env)] * num_envs, start_method="fork")
    envs.reset()
    return Stepped(envs)
