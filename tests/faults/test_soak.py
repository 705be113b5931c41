"""Thousands of random faults: memory and descriptors stay flat, and every step that comes out is sound."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.split import SplitVectorEnv

KINDS = ("raise-step", "nan-obs", "nan-reward", "obs-longer", "reward-str", "done-none", "sys-exit")


def _flaky(seed: int, deadly: float) -> Any:
    """A factory of environments that break after a random number of steps, now and then with their worker."""

    def make() -> Any:
        dice = random.Random(os.urandom(8) + bytes([seed]))
        kind = "kill" if dice.random() < deadly else dice.choice(KINDS)
        return FaultyEnv(kind, TickEnv(7), at_step=dice.randint(1, 30))

    return make


def _memory_kb(pid: int) -> int:
    """Its own: a share of what several processes have in common (Pss) grows when one of them ends."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    raise AssertionError("no Private_Dirty")


def _made(backend: str, slices: str, deadly: float) -> Any:
    factories = [_flaky(i, deadly if backend != "serial" else 0.0) for i in range(16)]
    policy: dict[str, Any] = {"on_fault": "restart", "max_restarts": 10**9}
    if backend == "serial":
        return SerialVectorEnv(factories, **policy)
    policy["step_timeout_s"] = 30.0
    if backend == "split":  # deadly ones are in the worker alone
        sound = [_flaky(i, 0.0) for i in range(8)]
        return SplitVectorEnv([*sound, *factories[8:]], here=8, workers=1, **policy)
    if backend == "ray":
        from shoal.vector.workers.ray import RayVectorEnv

        return RayVectorEnv(factories, workers=2, **policy)
    return ProcessVectorEnv(factories, workers=2, slices=slices, **policy)


def _soak(faults: int, deadly: float, slices: str, allowed_kb: int, backend: str = "process") -> None:
    with contextlib.closing(_made(backend, slices, deadly)) as env:
        _soaked(env, faults, allowed_kb)


def _soaked(env: Any, faults: int, allowed_kb: int) -> None:
    env.reset(seed=0)
    warm, used, kept = faults // 4, (0, 0), 0
    while len(env.faults) < faults:
        obs, rewards, terminated, truncated, _ = env.step(np.ones(16, int))
        assert np.isfinite(obs).all()
        assert np.isfinite(rewards).all()
        assert (obs[:, 0] <= 7).all()
        assert not (terminated & truncated).any()
        assert truncated[env.restarted].all()
        if len(env.faults) >= warm and not kept:
            kept, used = len(env.faults), (_memory_kb(os.getpid()), len(os.listdir("/proc/self/fd")))
    # The record of faults, text and all, is meant to grow: 6 KB each at most.
    grown = _memory_kb(os.getpid()) - used[0] - 6 * (len(env.faults) - kept)
    assert grown < allowed_kb, f"{grown} KB more than after the first quarter"
    assert len(os.listdir("/proc/self/fd")) <= used[1]


@pytest.mark.parametrize("slices", ["lockstep", "double"])
def test_hundreds_of_faults(slices: str) -> None:
    """The short form: 300 faults, some of them dead workers."""
    _soak(300, 0.03, slices, allowed_kb=8_000)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("slices", ["lockstep", "double"])
def test_ten_thousand_faults(slices: str) -> None:
    """The long form: 10,000 faults, hundreds of dead workers."""
    _soak(10_000, 0.03, slices, allowed_kb=20_000)


@pytest.mark.parametrize("backend", ["serial", "split", "ray"])
def test_hundreds_of_faults_on_other_backends(backend: str) -> None:
    """On Ray fewer, of which one or two actors die: a new one takes seconds."""
    if backend == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    _soak(*((100, 0.015) if backend == "ray" else (200, 0.03)), "lockstep", 8_000, backend)


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("backend", ["serial", "split", "ray"])
def test_ten_thousand_faults_on_other_backends(backend: str) -> None:
    """On Ray a tenth of them: a new actor takes seconds."""
    if backend == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    _soak(1_000 if backend == "ray" else 10_000, 0.03, "lockstep", 30_000, backend)
