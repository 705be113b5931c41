"""Threads that stay in machine code: they sleep, wake, fail and end as they should. The same bits: test_compiled."""

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
from shoal.compiled.team import _LINE, _RESULT, LOOK_S
from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv
from shoal.core.errors import EnvRaised
from shoal.environments.cartpole import CartPole


class Fuse(CompiledEnv):
    """Blows when it is told to."""

    state = np.dtype([("steps", "i8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    @staticmethod
    def reset(state, rng):
        state.steps = 0

    @staticmethod
    def step(state, rng, action):
        state.steps += 1
        if action == 1:
            raise ValueError("blown")
        return 1.0, False

    @staticmethod
    def observe(state, out):
        out[0] = state.steps


def test_members_that_fell_asleep_are_woken():
    """Steps at once, after a moment and after a long pause: always the same as on one thread."""
    one, team = CompiledVectorEnv(CartPole, 13), CompiledVectorEnv(CartPole, 13, threads=5)
    seen, alike = one.reset(seed=3)[0], team.reset(seed=3)[0]
    rng = np.random.default_rng(0)
    for turn in range(300):
        time.sleep((0.0, 0.0, LOOK_S, 20 * LOOK_S)[turn % 4])
        actions = rng.integers(0, 2, 13)
        seen, alike = one.step(actions), team.step(actions)
        for part, other in zip(seen[:4], alike[:4], strict=True):
            assert np.array_equal(part, other)
    team.close()


def test_a_team_that_is_not_asked_sleeps():
    """Looking for the next step ends soon: half a second costs next to no CPU time."""
    team = CompiledVectorEnv(CartPole, 8, threads=4)
    team.reset(seed=0)
    team.step(np.zeros(8, np.int64))
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.1
    team.close()


def test_goes_on_after_a_member_raised():
    """Its exception reaches the caller when all have finished; the threads are still there for the next step."""
    team = CompiledVectorEnv(Fuse, 5, threads=3)
    team.reset(seed=0)
    threads = threading.active_count()
    for culprit in (4, 2, 0):  # in the last range, in the second, in the caller's own
        with pytest.raises(EnvRaised, match="blown") as caught:
            team.step((np.arange(5) == culprit).astype(np.int64))
        assert caught.value.env == culprit
        team.reset(seed=0)
        assert team.step(np.zeros(5, np.int64))[0].tolist() == [[1.0]] * 5
    assert threading.active_count() == threads
    team.close()
    assert threading.active_count() == threads - 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_is_told():
    """It has no threads: an error that says so, instead of waiting for ever."""
    team = CompiledVectorEnv(CartPole, 4, threads=2)
    team.reset(seed=0)
    team.step(np.zeros(4, np.int64))
    time.sleep(10 * LOOK_S)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that forking with threads is a poor idea is the point
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            team.step(np.zeros(4, np.int64))
        except RuntimeError as error:
            os._exit(0 if "after the fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    team.step(np.zeros(4, np.int64))  # the parent's are as they were
    team.close()


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
def test_pieces_taken_from_others_change_nothing(threads):
    """Ranges of many pieces, one of them slow, so that the others take over from it: each environment steps once."""
    one, team = CompiledVectorEnv(Uneven, 700), CompiledVectorEnv(Uneven, 700, threads=threads)
    assert np.array_equal(one.reset(seed=3)[0], team.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(12):
        actions = np.where(np.arange(700) < 200, 3000, rng.integers(0, 50, 700))
        seen, alike = one.step(actions), team.step(actions)
        for part, other in zip(seen[:4], alike[:4], strict=True):
            assert np.array_equal(part, other)
        assert np.array_equal(one.final_obs[seen[2]], team.final_obs[seen[2]])
    team.close()


def test_a_slow_range_is_shared():
    """All the work in one half: at times the thread of the other half takes some of it over."""
    team = CompiledVectorEnv(Uneven, 512, threads=2)
    team.reset(seed=0)
    stepped = []  # environments that the second thread stepped: with these actions every episode ends at once
    for late in (False, True) * 10:
        slow = np.arange(512) >= 256 if late else np.arange(512) < 256
        team.step(np.where(slow, 20_000, 7))  # 17 ms of work in one range, none to speak of in the other
        stepped.append(int(team._team._control[_LINE + _RESULT]))
    team.close()
    assert max(stepped) > 256 or min(stepped) < 256


def test_a_fault_in_the_last_piece_names_its_environment():
    """Whichever thread took it."""
    team = CompiledVectorEnv(Fuse, 300, threads=2)
    team.reset(seed=0)
    with pytest.raises(EnvRaised) as caught:
        team.step((np.arange(300) == 299).astype(np.int64))
    assert caught.value.env == 299
    team.close()


class Slow(CompiledEnv):
    """Raises what its action says: at once, or after some work."""

    state = np.dtype([("work", "f8")])
    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    @staticmethod
    def reset(state, rng):
        state.work = 0.3

    @staticmethod
    def step(state, rng, action):
        if action == 1:
            for _ in range(2_000_000):
                state.work = 3.9 * state.work * (1.0 - state.work)
            raise ValueError("slow")
        if action == 2:
            raise ValueError("quick")
        return 1.0, False

    @staticmethod
    def observe(state, out):
        out[0] = state.work


def test_of_several_exceptions_the_lowest_environment_s_is_told():
    """With its own message, whichever thread raised first."""
    team = CompiledVectorEnv(Slow, 256, threads=2)
    for _ in range(5):
        team.reset(seed=0)
        actions = np.zeros(256, np.int64)
        actions[[32, 70]] = 1, 2
        with pytest.raises(EnvRaised, match="slow") as caught:
            team.step(actions)
        assert caught.value.env == 32
    team.close()
