"""One who is tried: reads names of scenarios, plays each on its batch of environments, and says what came of it.

python -m benchmarks.faults.contestants NAME SCENARIO ... (a process of its own, since some of them never return)
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from shoal.testing.faults import ERROR_TEXT, FaultyEnv, TickEnv

N, BAD, AT, SEED = 4, 1, 3, 9  # environment BAD of N breaks in step AT
STEP_TIMEOUT_S, RAY_TIMEOUT_S = 2.0, 10.0  # of a step; Ray has a scheduler and servers of its own to wait for
RAY_PLACE_S = 200.0  # of an actor's start: how busy the machine is is no scenario
SHOAL = ("serial", "process", "split", "compiled", "ray")
PEERS = ("gymnasium_async", "sb3_subproc")

Made = Callable[..., Any]


def factories(kind: str | None, **options: Any) -> list[Any]:
    """N sound environments, or N - 1 and one that breaks."""
    whole = kind == "obs-floats"  # where whole numbers belong
    made: list[Any] = [functools.partial(TickEnv, whole=whole)] * N
    if kind is not None:
        at = 1 if kind.endswith("-reset") else AT
        made[BAD] = functools.partial(_breaking, kind, whole, **{"at_step": at, **options})
    return made


def _breaking(kind: str, whole: bool, **options: Any) -> FaultyEnv:
    return FaultyEnv(kind, TickEnv(whole=whole), **options)


def make(name: str, envs: list[Any], **options: Any) -> Any:
    """A batch of one contestant's."""
    if name == "gymnasium_async":
        from gymnasium.vector import AsyncVectorEnv

        return AsyncVectorEnv(envs, shared_memory=True)
    if name == "sb3_subproc":
        from stable_baselines3.common.vec_env import SubprocVecEnv

        return SubprocVecEnv(envs, start_method="fork")  # its default imports torch in each process first
    if name == "serial":
        from shoal.vector.serial import SerialVectorEnv

        return SerialVectorEnv(envs, **options)
    limits = {"step_timeout_s": STEP_TIMEOUT_S, **options}
    if name == "process":
        from shoal.vector.workers.process import ProcessVectorEnv

        return ProcessVectorEnv(envs, workers=2, **limits)
    if name == "split":
        from shoal.vector.workers.split import SplitVectorEnv

        return SplitVectorEnv(envs, here=1, workers=1, **limits)  # the one that breaks is in the worker
    from shoal.vector.workers.ray import RayVectorEnv

    return RayVectorEnv(envs, workers=2, **{**limits, "step_timeout_s": RAY_TIMEOUT_S})


def reset(name: str, envs: Any) -> Any:
    if name == "sb3_subproc":
        envs.seed(SEED)
        return envs.reset()
    return envs.reset(seed=SEED)[0]


def step(name: str, envs: Any) -> tuple[Any, Any]:
    """Observations and rewards of one step."""
    found = envs.step(np.ones(N, np.int64))
    return found[0], found[1]


def play(name: str, scenario: str) -> dict[str, Any]:
    """What came of it: `said` (the error, or what was handed on in silence), and how long everything took."""
    kind, _, policy = scenario.partition("+")
    start = time.monotonic()
    found: dict[str, Any] = {"said": "", "type": ""}
    options: dict[str, Any] = {}
    if policy:
        options = {"on_fault": "restart", "max_restarts": 3 if policy == "loop" else 10}
    once = None if policy != "restart" else f"/tmp/shoal-faults-{os.getpid()}-{time.monotonic_ns()}"
    before, shared = children(), shared_memory()
    envs: Any = None
    try:
        if name == "compiled":
            return _compiled(kind)
        envs = make(name, factories(None if kind == "idle-kill" else kind, once=once), **options)
        start = time.monotonic()  # building takes as long as it takes
        reset(name, envs)
        for turn in range(2 * AT if policy != "loop" else 40 * AT):
            if kind == "idle-kill" and turn == AT:
                os.kill(_pid(name, envs), signal.SIGKILL)
                time.sleep(0.2)
            observations, rewards = step(name, envs)
            kinds = {np.asarray(part).dtype.kind for part in (observations, rewards)}
            if not kinds <= set("biuf"):
                found["said"] = "handed on: what is no numbers"
                break
            if not (np.isfinite(observations).all() and np.isfinite(rewards).all()):
                found["said"] = "handed on: numbers that are not finite"
                break
        else:
            faults = getattr(envs, "faults", ())
            found["said"] = f"went on; {len(faults)} restarts noted" if faults else "went on: nothing was noticed"
    except BaseException as error:
        found |= {"said": str(error), "type": type(error).__name__}
    found["seconds"] = round(time.monotonic() - start, 2)
    found["close_s"], closing = _close(envs)
    if closing is not None and kind == "raise-close":
        found |= {"said": str(closing), "type": type(closing).__name__}
    if once is not None:
        with contextlib.suppress(OSError):
            os.unlink(once)
    deadline = time.monotonic() + 2.0
    while (left := len(children() - before)) + len(lost := _unowned(shared_memory() - shared)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    found["left"], found["shared"] = left, sorted(lost)
    found["text_whole"] = ERROR_TEXT in found["said"]
    found["said"] = found["said"].split("\n--- traceback")[0][:4000]
    return found


def _close(envs: Any) -> tuple[float, BaseException | None]:
    start = time.monotonic()
    try:
        if envs is not None:
            envs.close()
    except BaseException as error:
        return round(time.monotonic() - start, 2), error
    return round(time.monotonic() - start, 2), None


def _pid(name: str, envs: Any) -> int:
    if name in PEERS:
        return int(envs.processes[BAD].pid)
    pids: list[int] = envs.pids
    return pids[0]


def _compiled(kind: str) -> dict[str, Any]:
    """A compiled environment that gives what is not finite, or raises."""
    from benchmarks.faults.compiled import Breaking
    from shoal.compiled.vector import CompiledVectorEnv

    none = {"obs": 0.0, "reward": 0.0, "raises": 0.0}
    values = {"nan-obs": {"obs": np.nan}, "inf-obs": {"obs": np.inf}, "nan-reward": {"reward": np.nan}}
    shared = shared_memory()
    envs = CompiledVectorEnv(Breaking(**{**none, **values.get(kind, {"raises": 1.0})}), N)
    found: dict[str, Any] = {
        "said": "went on: nothing was noticed",
        "type": "",
        "close_s": 0.0,
        "left": 0,
        "shared": [],
    }
    envs.reset(seed=SEED)
    start = time.monotonic()  # compiling takes as long as it takes
    try:
        for _ in range(2 * AT):
            envs.step(np.ones(N, np.int64))
    except Exception as error:
        found |= {"said": str(error).split("\n---")[0][:300], "type": type(error).__name__}
    envs.close()
    found["seconds"], found["shared"] = round(time.monotonic() - start, 2), sorted(_unowned(shared_memory() - shared))
    return {**found, "text_whole": "broken on purpose" in found["said"]}


def shared_memory() -> set[str]:
    """Names in /dev/shm, less the folders of tests that run beside this."""
    return {entry.name for entry in os.scandir("/dev/shm") if not entry.is_dir(follow_symlinks=False)}


def _unowned(names: set[str]) -> set[str]:
    """Those that no living process but our own has mapped: other programs come and go meanwhile."""
    if not names:
        return set()
    own = {os.getpid(), *children()}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in own:
            with contextlib.suppress(OSError):
                maps = (entry / "maps").read_text()
                names = {name for name in names if f"/dev/shm/{name}" not in maps}
    return {name for name in names if os.path.exists(f"/dev/shm/{name}")}


def children() -> set[int]:
    """Living processes below this one, less multiprocessing's and Ray's own servants."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                if stat[0] != "Z":
                    parents[int(entry.name)] = int(stat[1]), command
    below, found = {os.getpid()}, set[int]()
    while below:
        below = {child for child, (parent, _) in parents.items() if parent in below}
        found |= below
    servants = ("multiprocessing.forkserver", "multiprocessing.resource_tracker", "ray/", "ray::IDLE", "ray_warden")
    return {child for child in found if not any(one in parents[child][1] for one in servants)}


if __name__ == "__main__":
    kept = None
    if sys.argv[1] == "ray":  # one instance for all scenarios: starting it takes seconds
        from shoal.vector.workers import ray as backend
        from shoal.vector.workers.ray_instance import INSTANCE

        backend.START_S = backend.PLACE_S = RAY_PLACE_S
        kept = INSTANCE.join(None, 4)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for one in sys.argv[2:]:
        print(json.dumps({"scenario": one, **play(sys.argv[1], one)}), file=out, flush=True)
    if kept is not None:
        INSTANCE.leave()
    os._exit(0)
