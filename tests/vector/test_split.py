"""`split`: who steps what, what is refused, and looking that gives up where it does not pay."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from clock import slowness
from shoal.core.errors import EnvRaised
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers import spin as lookout
from shoal.vector.workers.spin import Lookout
from shoal.vector.workers.split import SplitVectorEnv


class Where(TickEnv):
    """Knows its process."""

    def pid(self) -> int:
        """Of whoever steps it."""
        return os.getpid()


def test_the_first_environments_are_here() -> None:
    """`here` environments in this process, the others in the workers, in order."""
    env = SplitVectorEnv([Where] * 7, workers=2, here=3)
    pids = env.call("pid")
    assert pids == (os.getpid(),) * 3 + (env.pids[0],) * 2 + (env.pids[1],) * 2
    env.close()


@pytest.mark.parametrize(("num_envs", "workers"), [(2, 1), (5, 2), (9, 3)])
def test_equals_serial(num_envs: int, workers: int) -> None:
    """Observations, rewards, ends and final observations of 60 steps of CartPole are those of `serial`."""
    factories = [lambda: gym.make("CartPole-v1")] * num_envs
    split: Any = SplitVectorEnv(factories, workers=workers)
    serial: Any = SerialVectorEnv(factories)
    actions = np.random.default_rng(0).integers(0, 2, (60, num_envs))
    assert np.array_equal(split.reset(seed=4)[0], serial.reset(seed=4)[0])
    ended = 0
    for action in actions:
        one, other = split.step(action), serial.step(action)
        for a, b in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(a, b)
        ended += int((one[2] | one[3]).sum())
        for index in np.flatnonzero(one[2] | one[3]):
            assert np.array_equal(one[4]["final_obs"][index], other[4]["final_obs"][index])
    assert ended > num_envs
    split.close()
    serial.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_envs": 1}, "at least 2 environments to split, got 1; use --backend serial"),
        ({"num_envs": 4, "slices": "double"}, "expected --slices lockstep, got double"),
    ],
)
def test_refused(options: dict[str, Any], message: str) -> None:
    """What cannot be split says what to do."""
    with pytest.raises(ValueError, match=message):
        make_vec("CartPole-v1", backend="split", **options)


@pytest.mark.parametrize("here", [0, 3, -1])
def test_both_sides_need_an_environment(here: int) -> None:
    """All or none here is not split."""
    with pytest.raises(ValueError, match=f"expected here from 1 to 2 of 3 environments, got {here}"):
        SplitVectorEnv([TickEnv] * 3, here=here)


@pytest.mark.parametrize("bad", [0, 1, 2, 3])
def test_a_constructor_that_fails_leaves_no_worker(bad: int) -> None:
    """Here or there: named, and nothing left behind."""
    factories: list[Any] = [TickEnv] * 4
    factories[bad] = lambda: FaultyEnv("raise-init")
    with pytest.raises(EnvRaised) as caught:
        SplitVectorEnv(factories, here=2, workers=1)
    assert caught.value.env == bad
    assert _no_worker_left()


def test_a_look_ends_with_a_message_or_in_time() -> None:
    """It returns at once when something can be read, and after its time when nothing can."""
    one, other = socket.socketpair()
    began = time.perf_counter()
    Lookout(one.fileno(), 0.05).look()
    assert 0.05 <= time.perf_counter() - began < 0.5 * slowness()
    other.send(b"x")
    began = time.perf_counter()
    Lookout(one.fileno(), 1000.0).look()
    assert time.perf_counter() - began < 100.0
    one.close()
    other.close()


def test_looking_in_vain_is_given_up_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks in vain: the next ones cost nothing; then one more is tried."""
    looks: list[bool] = []
    monkeypatch.setattr(lookout, "_REST", 5)
    monkeypatch.setattr(os, "sched_yield", lambda: looks.append(True))
    one, other = socket.socketpair()
    looker = Lookout(one.fileno(), 1e-3)
    looked = []
    for _ in range(10):
        looks.clear()
        looker.look()
        looked.append(bool(looks))
    assert looked == [True] * 3 + [False] * 5 + [True, False]
    one.close()
    other.close()


def _no_worker_left() -> bool:
    return not [child for child in multiprocessing.active_children() if child.name.startswith("shoal-worker")]


def test_an_interrupted_step_is_not_received_as_whole() -> None:
    """Ctrl-C in the caller's share leaves some stepped and some not: recv says so, reset begins anew."""

    class Interrupted(TickEnv):
        def step(self, action: Any) -> Any:
            if self.steps == 2:
                raise KeyboardInterrupt
            return super().step(action)

    for make in (lambda envs: SplitVectorEnv(envs, here=2, workers=1), SerialVectorEnv):
        env: Any = make([TickEnv, Interrupted, TickEnv, TickEnv])
        env.reset(seed=0)
        for _ in range(2):
            env.step(np.ones(4, int))
        with pytest.raises(KeyboardInterrupt):
            env.step(np.ones(4, int))
        with pytest.raises(RuntimeError, match="interrupted half-way"):
            env.recv(0)
        assert (env.reset(seed=0)[0][:, 0] == 0).all()
        env.step(np.ones(4, int))
        env.close()


def test_a_killed_worker_is_replaced_and_the_callers_share_goes_on(tmp_path: Path) -> None:
    """With restart, only the worker's environments begin their next episodes."""
    factories: list[Any] = [TickEnv] * 4
    factories[3] = lambda: FaultyEnv("kill", at_step=2, once=tmp_path / "once")
    env: Any = SplitVectorEnv(factories, here=2, workers=1, on_fault="restart")
    env.reset(seed=0)
    env.step(np.ones(4, int))
    observations, _, _, truncated, _ = env.step(np.ones(4, int))
    assert env.restarted.tolist() == truncated.tolist() == [False, False, True, True]
    assert observations[:, 0].tolist() == [2, 2, 0, 0]
    assert len(env.faults) == 1
    env.close()


class Telling(TickEnv):
    """Infos that cross a process, and one that does not."""

    def step(self, action: Any) -> Any:
        """Tell."""
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"clock": self.steps, "handle": object()}


def test_infos_are_alike_here_and_there() -> None:
    """Which environments step here is chance: all infos go through the same sieve."""
    env: Any = SplitVectorEnv([Telling] * 4, here=2, workers=1)
    env.reset(seed=0)
    with pytest.warns(RuntimeWarning, match="left out: handle"):
        infos = env.step(np.ones(4, int))[4]
    assert infos["clock"].tolist() == [1, 1, 1, 1]
    assert "handle" not in infos
    env.close()


@pytest.mark.parametrize("workers", [0, -1])
def test_it_takes_a_worker(workers: int) -> None:
    """None beside the caller is serial."""
    with pytest.raises(ValueError, match=f"at least one worker beside this process, got {workers}"):
        SplitVectorEnv([TickEnv] * 3, workers=workers)
    with pytest.raises(ValueError, match="--workers of at least 2"):
        make_vec(TickEnv, 3, backend="split", workers=1)
