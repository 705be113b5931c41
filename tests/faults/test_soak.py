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

from benchmarks.faults.compiled import Breaking
from shoal.compiled.vector import CompiledVectorEnv
from shoal.core.errors import EnvRaised, NotFinite
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


def _used(env: Any) -> dict[int, tuple[int, int]]:
    """Memory in KB and open descriptors of this process and of the workers that live, by process."""
    found = {}
    for pid in (os.getpid(), *getattr(env, "pids", ())):
        with contextlib.suppress(OSError):  # killed by its environment just now
            found[pid] = _memory_kb(pid), len(os.listdir(f"/proc/{pid}/fd"))
    return found


def _made(backend: str, slices: str, deadly: float, flaky: Any = _flaky) -> Any:
    factories = [flaky(i, deadly if backend != "serial" else 0.0) for i in range(16)]
    policy: dict[str, Any] = {"on_fault": "restart", "max_restarts": 10**9}
    if backend == "serial":
        return SerialVectorEnv(factories, **policy)
    policy["step_timeout_s"] = 30.0
    if backend == "split":  # deadly ones are in the worker alone
        tame = [flaky(i, 0.0) for i in range(8)]
        return SplitVectorEnv([*tame, *factories[8:]], here=8, workers=1, **policy)
    if backend == "ray":
        from shoal.vector.workers.ray import RayVectorEnv

        return RayVectorEnv(factories, workers=2, **policy)
    return ProcessVectorEnv(factories, workers=2, slices=slices, **policy)


def _soak(
    faults: int, deadly: float, slices: str, allowed_kb: int, backend: str = "process", flaky: Any = _flaky
) -> None:
    with contextlib.closing(_made(backend, slices, deadly, flaky)) as env:
        looked_at = _soaked(env, faults, allowed_kb)
        assert deadly or looked_at == 1 + len(getattr(env, "pids", ()))  # all of them live to the end


def _soak_compiled(faults: int, allowed_kb: int) -> None:
    """Nothing restarts one environment of a compiled batch: its fault stops the batch, and a reset begins anew."""
    kinds = {"obs": np.nan, "reward": np.inf, "raises": 1.0}
    batches = [CompiledVectorEnv(Breaking(**{**dict.fromkeys(kinds, 0.0), kind: kinds[kind]}), 16) for kind in kinds]
    dice, used = random.Random(os.urandom(8)), dict[int, tuple[int, int]]()
    for fault in range(faults):
        env = dice.choice(batches)
        env.reset(seed=fault)
        for _ in range(2):
            obs, rewards, *_ = env.step(np.ones(16, int))
            assert np.isfinite(obs).all()
            assert np.isfinite(rewards).all()
        with pytest.raises((NotFinite, EnvRaised)) as caught:
            env.step(np.ones(16, int))
        assert (caught.value.env, caught.value.step) == (0, 3)
        del caught
        if fault == faults // 4:
            used = _used(None)
    now, here = _used(None), os.getpid()
    assert now[here][0] - used[here][0] < allowed_kb
    assert now[here][1] <= used[here][1]
    for env in batches:
        env.close()


def _soaked(env: Any, faults: int, allowed_kb: int) -> int:
    """How many processes were looked at before and after."""
    env.reset(seed=0)
    warm, used, kept = faults // 4, dict[int, tuple[int, int]](), 0
    while len(env.faults) < faults:
        obs, rewards, terminated, truncated, _ = env.step(np.ones(16, int))
        assert np.isfinite(obs).all()
        assert np.isfinite(rewards).all()
        assert (obs[:, 0] <= 7).all()
        assert not (terminated & truncated).any()
        assert truncated[env.restarted].all()
        if len(env.faults) >= warm and not kept:
            kept, used = len(env.faults), _used(env)
    now = _used(env)
    for pid in used.keys() & now.keys():  # a worker that was replaced cannot be compared
        # The record of faults, text and all, is meant to grow here: 6 KB each at most.
        own, meant = ("here", 6 * (len(env.faults) - kept)) if pid == os.getpid() else ("in a worker", 0)
        grown = now[pid][0] - used[pid][0] - meant
        assert grown < allowed_kb, f"{grown} KB more {own} than after the first quarter"
        assert now[pid][1] <= used[pid][1], f"{now[pid][1] - used[pid][1]} descriptors more {own}"
    return len(used.keys() & now.keys())


@pytest.mark.parametrize("slices", ["lockstep", "double"])
def test_hundreds_of_faults(slices: str) -> None:
    """The short form: 300 faults, some of them dead workers."""
    _soak(300, 0.03, slices, allowed_kb=8_000)


@pytest.mark.parametrize("backend", ["process", "split"])
def test_workers_that_live_through_all_faults_do_not_grow(backend: str) -> None:
    """None of these kills its worker, so that the same ones can be looked at before and after."""
    _soak(400, 0.0, "lockstep", 4_000, backend)


def _hoarding(seed: int, deadly: float) -> Any:
    def make() -> Any:
        os.dup(2)
        return _flaky(seed, deadly)()

    return make


def test_a_leak_in_a_worker_is_seen() -> None:
    """Otherwise the tests above could not fail."""
    with pytest.raises(AssertionError, match="descriptors more in a worker"):
        _soak(60, 0.0, "lockstep", 4_000, flaky=_hoarding)


def test_hundreds_of_faults_of_compiled_environments() -> None:
    """Numbers that are not finite, and exceptions: what can go wrong in machine code."""
    _soak_compiled(600, 4_000)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_thousand_faults_of_compiled_environments() -> None:
    _soak_compiled(10_000, 8_000)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("backend", ["process", "split"])
def test_workers_that_live_through_ten_thousand_faults_do_not_grow(backend: str) -> None:
    _soak(10_000, 0.0, "lockstep", 8_000, backend)


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
