"""Threads of a compiled environment: they sleep, wake, fail and end as they should. The same bits: test_compiled."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import gymnasium as gym
import numpy as np
import pytest

from shoal.compiled.random import uniform
from shoal.compiled.threads import Pool
from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv
from shoal.core.errors import EnvRaised
from shoal.environments.cartpole import CartPole


class Fuse(CompiledEnv):
    """Blows when it is told to: 1 at once, 2 after some work."""

    state = np.dtype([("steps", "i8"), ("work", "f8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    @staticmethod
    def reset(state, rng):
        state.steps = 0
        state.work = 0.3

    @staticmethod
    def step(state, rng, action):
        state.steps += 1
        if action == 1:
            raise ValueError("blown")
        if action == 2:
            for _ in range(2_000_000):
                state.work = 3.9 * state.work * (1.0 - state.work)
            raise ValueError("burnt down")
        return 1.0, False

    @staticmethod
    def observe(state, out):
        out[0] = state.steps


def test_threads_that_fell_asleep_are_woken():
    """Steps at once and after a pause: always the same as on one thread."""
    one, many = CompiledVectorEnv(CartPole, 13), CompiledVectorEnv(CartPole, 13, threads=5)
    seen, alike = one.reset(seed=3)[0], many.reset(seed=3)[0]
    rng = np.random.default_rng(0)
    for turn in range(300):
        time.sleep((0.0, 0.0, 0.002)[turn % 3])
        actions = rng.integers(0, 2, 13)
        seen, alike = one.step(actions), many.step(actions)
        for part, other in zip(seen[:4], alike[:4], strict=True):
            assert np.array_equal(part, other)
    many.close()


def test_threads_that_are_not_asked_sleep():
    """Half a second without a step costs next to no CPU time."""
    many = CompiledVectorEnv(CartPole, 8, threads=4)
    many.reset(seed=0)
    many.step(np.zeros(8, np.int64))
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    many.close()


def test_goes_on_after_a_thread_raised():
    """Its exception reaches the caller when all have finished; the threads are still there for the next step."""
    many = CompiledVectorEnv(Fuse, 5, threads=3)
    many.reset(seed=0)
    threads = threading.active_count()
    for culprit in (4, 2, 0):  # in the last range, in the second, in the caller's own
        with pytest.raises(EnvRaised, match="blown") as caught:
            many.step((np.arange(5) == culprit).astype(np.int64))
        assert caught.value.env == culprit
        many.reset(seed=0)
        assert many.step(np.zeros(5, np.int64))[0].tolist() == [[1.0]] * 5
    assert threading.active_count() == threads
    many.close()
    assert threading.active_count() == threads - 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_is_told():
    """It has no threads: an error that says so, instead of waiting for ever."""
    many = CompiledVectorEnv(CartPole, 4, threads=2)
    many.reset(seed=0)
    many.step(np.zeros(4, np.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that forking with threads is a poor idea is the point
        child = os.fork()
    if child == 0:
        signal.alarm(100)
        try:
            many.step(np.zeros(4, np.int64))
        except RuntimeError as error:
            os._exit(0 if "after the fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    many.step(np.zeros(4, np.int64))  # the parent's are as they were
    many.close()


class Uneven(CompiledEnv):
    """The first environments of a batch take long: their actions say how long."""

    state = np.dtype([("steps", "i8"), ("work", "f8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(100_000)

    @staticmethod
    def reset(state, rng):
        state.steps = 0
        state.work = uniform(rng)

    @staticmethod
    def step(state, rng, action):
        state.steps += 1
        for _ in range(action):
            state.work = 3.9 * state.work * (1.0 - state.work)
        return state.work, state.steps == 5 or action in (7, 20_000)

    @staticmethod
    def observe(state, out):
        out[0] = state.steps
        out[1] = state.work


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_uneven_parts_change_nothing(threads):
    """One part is slow: all are waited for, and each environment steps once."""
    one, many = CompiledVectorEnv(Uneven, 700), CompiledVectorEnv(Uneven, 700, threads=threads)
    assert np.array_equal(one.reset(seed=3)[0], many.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(12):
        actions = np.where(np.arange(700) < 200, 3000, rng.integers(0, 50, 700))
        seen, alike = one.step(actions), many.step(actions)
        for part, other in zip(seen[:4], alike[:4], strict=True):
            assert np.array_equal(part, other)
        assert np.array_equal(one.final_obs[seen[2]], many.final_obs[seen[2]])
    many.close()


def test_a_fault_in_the_last_part_names_its_environment():
    """Not the first of its part."""
    many = CompiledVectorEnv(Fuse, 300, threads=2)
    many.reset(seed=0)
    with pytest.raises(EnvRaised) as caught:
        many.step((np.arange(300) == 299).astype(np.int64))
    assert caught.value.env == 299
    many.close()


def test_of_several_exceptions_the_lowest_environment_s_is_told():
    """With its own message, whichever thread raised first."""
    many = CompiledVectorEnv(Fuse, 256, threads=2)
    for _ in range(5):
        many.reset(seed=0)
        actions = np.zeros(256, np.int64)
        actions[[32, 70]] = 2, 1
        with pytest.raises(EnvRaised, match="burnt down") as caught:
            many.step(actions)
        assert caught.value.env == 32
    many.close()


def test_a_call_broken_off_by_ctrl_c_leaves_nobody_stepping():
    """It is raised when every thread has finished, and the next call begins with all of them."""
    pool, taken = Pool(3), []

    def kernel(low, high):
        if low == 0 and not taken:
            raise KeyboardInterrupt
        time.sleep(0.02)
        taken.append((low, high))
        return high - low

    with pytest.raises(KeyboardInterrupt):
        pool.run(kernel, (), 9)
    assert sorted(taken) == [(3, 6), (6, 9)]
    assert pool.run(kernel, (), 9) == [3, 3, 3]
    assert sorted(taken[2:]) == [(0, 3), (3, 6), (6, 9)]
    pool.close()


def test_the_interrupted_caller_waits_for_threads_it_had_not_woken_yet():
    """Ctrl-C while the threads are being woken: they are woken all the same, for nobody may be left half-way."""

    class Impatient(list):
        def __getitem__(self, index):
            if isinstance(index, slice):  # the caller's loop over the locks
                raise KeyboardInterrupt
            return super().__getitem__(index)

    pool = Pool(2)
    locks, pool._start = pool._start, Impatient(pool._start)
    with pytest.raises(KeyboardInterrupt):
        pool.run(lambda low, high: high - low, (), 4)
    pool._start = locks
    assert pool.run(lambda low, high: high - low, (), 4) == [2, 2]
    pool.close()
