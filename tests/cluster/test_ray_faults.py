"""FAULTS.md on `--backend ray`: what breaks is named, replaced or ends the batch; nothing is left, nobody is let in."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from clock import lives, until, within
from shoal.core import errors
from shoal.core.errors import EnvFault, EnvRaised, EnvTimeout, NoPlace, TooManyRestarts, WorkerDied
from shoal.core.seeds import episode_seed
from shoal.testing.faults import ERROR_TEXT, FaultyEnv, TickEnv
from shoal.vector.workers import ray as ray_backend
from shoal.vector.workers import ray_instance
from shoal.vector.workers.ray import RayVectorEnv
from shoal.vector.workers.ray_instance import Instance
from shoal.vector.workers.ray_warden import processes_of

N, BAD, AT = 4, 1, 3


def make(kind: str, *, bad: int = BAD, **options: Any) -> RayVectorEnv:
    """Four environments in two actors, one of which breaks."""
    own = {name: options.pop(name) for name in ("at_step", "once") if name in options}
    factories: list[Any] = [TickEnv] * N
    factories[bad] = lambda: FaultyEnv(kind, **{"at_step": AT, **own})
    return RayVectorEnv(factories, workers=2, **options)


def run(envs: Any, steps: int = 2 * AT) -> list[Any]:
    """Reset, step; everything that came out."""
    kept = [envs.reset(seed=9)[0]]
    for _ in range(steps):
        kept.append((*envs.step(np.ones(envs.num_envs, int)), envs.restarted))
    return kept


def fails(envs: RayVectorEnv, kind: type[EnvFault], within_s: float = 5.0) -> Any:
    """Run until the fault comes; then closing is quick too, and no actor is left."""
    pids, start = envs.pids, time.monotonic()
    with pytest.raises(kind) as caught:
        run(envs)
    assert within(within_s, start)
    start = time.monotonic()
    envs.close()
    assert within(5.0, start)
    assert until(lambda: not any(map(lives, pids)), 20.0)
    return caught.value


pytestmark = pytest.mark.usefixtures("ray")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("kill", WorkerDied),
        ("exit", WorkerDied),
        ("raise-step", EnvRaised),
        ("nan-obs", errors.NotFinite),
    ],
)
def test_a_fault_in_step_is_named(kind: str, expected: type[EnvFault]) -> None:
    """Rows 1, 3 and 8: by its own error, with environment, worker, seed and step, within the same step."""
    envs = make(kind)
    pids = envs.pids
    fault = fails(envs, expected)
    assert (fault.env, fault.seed, fault.step) == (BAD, episode_seed(9, BAD, 0), AT)
    assert fault.pid in pids
    if kind == "raise-step":
        assert f"ValueError in step: {ERROR_TEXT} [" in str(fault)
        assert "raise ValueError(ERROR_TEXT)" in fault.worker_traceback


def test_every_ill_formed_result_has_its_error(tmp_path: Path) -> None:
    """Rows 3 and 8 to 11: each environment breaks in another way, the first in step 1, the next in step 2, and so on;
    each fault is named in its step, and nothing ill-formed comes out."""
    expected = {
        "sys-exit": EnvRaised,
        "nan-obs": errors.NotFinite,
        "nan-reward": errors.NotFinite,
        "obs-longer": errors.ShapeError,
        "obs-scalar": errors.ShapeError,
        "obs-none": errors.DtypeError,
        "obs-overflow": errors.DtypeError,
        "reward-str": errors.DtypeError,
        "done-vector": errors.DtypeError,
    }
    factories: list[Any] = [
        lambda kind=kind, step=step: FaultyEnv(kind, at_step=step, once=tmp_path / kind)
        for step, kind in enumerate(expected, start=1)
    ]
    envs = RayVectorEnv(factories, workers=2, on_fault="restart")
    pids, kept = envs.pids, run(envs, len(expected))
    assert envs.pids == pids, "no actor had to be replaced"
    for step, (observations, rewards, terminated, _, _, restarted) in enumerate(kept[1:], start=1):
        assert np.isfinite(observations).all()
        assert np.isfinite(rewards).all()
        assert not terminated.any()
        assert np.flatnonzero(restarted).tolist() == [step - 1]
    for env, (fault, kind) in enumerate(zip(envs.faults, expected, strict=True)):
        assert type(fault) is expected[kind], kind
        assert (fault.env, fault.seed, fault.step) == (env, episode_seed(9, env, 0), env + 1)
        assert fault.pid in pids
    envs.close()


@pytest.mark.parametrize("kind", ["hang", "hang-ignoring-sigterm", "hang-holding-gil"])
def test_hang_in_step(kind: str) -> None:
    """Rows 5 and 6: found after the timeout and killed, whatever it holds."""
    fault = fails(make(kind, step_timeout_s=1.0), EnvTimeout, within_s=3.0)
    assert (fault.env, fault.seed, fault.step) == (BAD, episode_seed(9, BAD, 0), AT)
    assert "no answer within 1 s in step" in str(fault)


def test_an_actor_killed_between_two_steps() -> None:
    """Row 2: found at the next step."""
    envs = make("raise-step", at_step=99)
    run(envs, 2)
    victim = envs.pids[1]
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: not lives(victim))
    with pytest.raises(WorkerDied, match="environments 2 to 3") as caught:
        envs.step(np.ones(N, int))
    assert caught.value.pid == victim
    with pytest.raises(WorkerDied, match="has stopped"):
        envs.step(np.ones(N, int))
    envs.close()


@pytest.mark.parametrize(
    ("kind", "expected", "text", "bad"),
    [
        ("raise-init", EnvRaised, ERROR_TEXT, 0),
        ("raise-init", EnvRaised, ERROR_TEXT, N - 1),
        ("kill-init", WorkerDied, "built", 0),
        ("hang-init", EnvTimeout, "no answer within", N - 1),
    ],
)
def test_failing_constructor(kind: str, expected: type[EnvFault], text: str, bad: int) -> None:
    """Row 4: named by its environment; the other actors leave too."""
    start = time.monotonic()
    with pytest.raises(expected) as caught:
        make(kind, bad=bad, start_timeout_s=1.0 if kind == "hang-init" else 20.0)
    assert caught.value.env in (bad, bad - 1)  # an actor on the way knows no better than its first environment
    assert text in str(caught.value)
    assert within(25.0, start)


@pytest.mark.parametrize("at_reset", [1, 2])
def test_raise_in_reset(at_reset: int) -> None:
    """Row 4: with the new seed and step 0."""
    factories: list[Any] = [TickEnv] * N
    factories[BAD] = lambda: FaultyEnv("raise-reset", TickEnv(2), at_step=at_reset)
    fault = fails(RayVectorEnv(factories, workers=2), EnvRaised)
    assert (fault.env, fault.seed, fault.step) == (BAD, episode_seed(9, BAD, at_reset - 1), 0)


def test_raise_in_close() -> None:
    """Row 4: told when all others are closed."""
    envs = make("raise-close")
    run(envs, 1)
    with pytest.raises(EnvRaised, match="ValueError in close") as caught:
        envs.close()
    assert caught.value.env == BAD
    envs.close()


@pytest.mark.parametrize("kind", ["kill", "nan-obs", "hang"])
def test_restart(kind: str, tmp_path: Path) -> None:
    """Rows 1, 5, 8 with --on-fault restart: the next episodes of what was lost, the others as if nothing had been."""
    envs = make(kind, once=tmp_path / "once", on_fault="restart", step_timeout_s=3.0 if kind == "hang" else 60.0)
    kept = run(envs)
    (fault,) = envs.faults
    assert fault.env == BAD
    lost = {0, 1} if kind != "nan-obs" else {1}
    for i in range(N):
        ages = [kept[0][i, 0], *(row[0][i, 0] for row in kept[1:])]
        assert ages == ([0, 1, 2, 0, 1, 2, 3] if i in lost else list(range(7)))
        assert [bool(row[3][i]) for row in kept[1:]] == [t == AT - 1 and i in lost for t in range(6)]
        assert [bool(row[-1][i]) for row in kept[1:]] == [t == AT - 1 and i in lost for t in range(6)]
        assert envs.block.seeds[i] == episode_seed(9, i, int(i in lost))
    assert f"seed {envs.block.seeds[min(lost)]}" in fault.aftermath
    envs.close()


def test_a_new_actor_writes_into_the_rollout_too(tmp_path: Path) -> None:
    """What is allocated once is known to whoever comes later."""
    once = tmp_path / "once"
    factories: list[Any] = [lambda: TickEnv()] * 10_000
    factories[BAD] = lambda: FaultyEnv("kill", at_step=2, once=once)
    envs = RayVectorEnv(factories, workers=2, on_fault="restart")
    (rows,) = envs.allocate(6) or pytest.fail("expected rows of a rollout")
    envs.reset(seed=9)
    for t in range(6):
        envs.step(np.ones(10_000, int), out=rows[t])
    assert rows[:, 0, 0].tolist() == [1, 0, 1, 2, 3, 4]
    assert rows[:, -1, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert (rows[:, :, 0].min(1) > 0).tolist() == [True, False, True, True, True, True]
    envs.close()


def test_restart_after_an_idle_death() -> None:
    """Found in a reset of others: the step after shows the new episodes, and is masked."""
    envs = make("raise-step", at_step=99, on_fault="restart")
    run(envs, 3)
    victim = envs.pids[0]
    os.kill(victim, signal.SIGKILL)
    assert until(lambda: not lives(victim))
    envs.reset(options={"reset_mask": np.array([False, False, False, True])})
    observations, *_ = envs.step(np.ones(N, int))
    assert observations[:, 0].tolist() == [0, 0, 4, 1]
    assert envs.restarted.tolist() == [True, True, False, False]
    assert envs.step(np.ones(N, int))[0][:, 0].tolist() == [1, 1, 5, 2]
    envs.close()


@pytest.mark.parametrize("kind", ["kill", "raise-step"])
def test_crash_loop_stops(kind: str) -> None:
    """Row 7: after so many restarts as are allowed."""
    envs = make(kind, at_step=1, on_fault="restart", max_restarts=2)
    envs.reset(seed=9)
    for _ in range(2):
        envs.step(np.ones(N, int))
    with pytest.raises(TooManyRestarts, match="3 restarts within 10000 steps, 2 are allowed"):
        envs.step(np.ones(N, int))
    envs.close()


def test_no_place_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """More actors than the cluster has cores: told, with what to do."""
    monkeypatch.setattr(ray_backend, "START_S", 3.0)
    with pytest.raises(NoPlace, match=r"no place within 3 s for an actor with environments .: .* fewer --workers"):
        RayVectorEnv([TickEnv] * 7, workers=7, start_timeout_s=3.0)


@pytest.fixture
def crowd(ray: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Somebody who waits for a core of the cluster, and takes the first that becomes free."""
    monkeypatch.setattr(ray_backend, "PLACE_S", 2.0)

    class Idler:
        def here(self) -> bool:
            return True

    idlers: list[Any] = []

    def come() -> None:
        for _ in range(4):  # three find a core
            idlers.append(ray.remote(Idler).options(num_cpus=1).remote())
        ray.wait([one.here.remote() for one in idlers], num_returns=3)  # any three of them
        time.sleep(0.3)

    yield come
    for one in idlers:
        ray.kill(one)


def test_fewer_environments_where_they_may_be(crowd: Any) -> None:
    """An actor dies and its core is taken: the run goes on with the others, its rows are masked for good."""
    envs = RayVectorEnv([TickEnv] * 6, workers=3, on_fault="restart", min_envs=4)
    envs.start_timeout_s = 2.0
    envs.reset(seed=9)
    crowd()
    os.kill(envs.pids[0], signal.SIGKILL)
    for t in range(1, 5):
        observations, rewards, terminated, truncated, _ = envs.step(np.ones(6, int))
        assert observations[2:, 0].tolist() == [t] * 4
        assert envs.restarted.tolist() == [True, True, False, False, False, False]
        assert truncated.tolist() == [t == 1, t == 1, False, False, False, False]
        assert not rewards[:2].any()
        assert not terminated.any()
    assert envs.lost == 2
    assert "environments 0 to 1 are lost, the run goes on with 4 of 6" in str(envs.faults[0])
    assert envs.reset(seed=1)[0][2:, 0].tolist() == [0] * 4
    assert envs.call("length")[0] is None
    envs.close()


@pytest.mark.parametrize("least", [None, 5])
def test_no_fewer_environments_than_allowed(crowd: Any, least: int | None) -> None:
    """Else it stops, and says how many are left."""
    envs = RayVectorEnv([TickEnv] * 6, workers=3, on_fault="restart", min_envs=least)
    envs.start_timeout_s = 2.0
    envs.reset(seed=9)
    crowd()
    os.kill(envs.pids[0], signal.SIGKILL)
    with pytest.raises(
        NoPlace, match="no place within 2 s.*an actor died" if least is None else "4 environments are left"
    ):
        envs.step(np.ones(6, int))
    envs.close()


def test_training_goes_on_after_a_dead_actor(tmp_path: Path) -> None:
    """End to end: the broken episode is masked and counted, the run is labelled inexact; it goes on without Ray."""
    once = tmp_path / "once"

    def env() -> FaultyEnv:
        return FaultyEnv("kill", TickEnv(7), at_step=40, once=once)

    result = shoal.train(
        env=env, num_envs=4, workers=2, backend="ray", on_fault="restart", rollout_steps=32, epochs=3,
        runs_dir=str(tmp_path),
    )  # fmt: skip
    assert result.status == "finished"
    assert result.restarts == 1
    events = Path(result.run) / "events.jsonl"
    assert "actor was replaced" in events.read_text()
    on = shoal.train(resume=result.run, env=env, backend="serial", epochs=4)
    assert on.status == "finished"
    assert "labelled inexact" in events.read_text()
    assert "changed backend: ray -> serial" in events.read_text()
    assert shoal.load_policy(on.run)(np.zeros(4, np.float32)) in (0, 1)


def listening() -> set[tuple[str, int]]:
    """(address as the kernel writes it, inode) of every socket of this machine that waits for callers."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                found.add((fields[1].rpartition(":")[0], int(fields[9])))
    return found


def inodes_of(pid: int) -> set[int]:
    """The sockets that a process has open."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(int(target[8:-1]))
    return found


LOOPBACKS = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_nobody_listens_outside_loopback() -> None:
    """While environments step: of all sockets of the instance, this process and the actors, by the kernel's table."""
    envs = make("raise-step", at_step=99)
    run(envs, 2)
    folder = ray_backend.INSTANCE.folder
    assert folder is not None
    pids = {*processes_of(folder), *envs.pids, os.getpid()}
    own = set().union(*map(inodes_of, pids))
    ours = {(address, inode) for address, inode in listening() if inode in own}
    assert len(pids) > 5
    assert len(ours) >= 5  # raylet, GCS, actors, this process
    assert {address for address, _ in ours} <= LOOPBACKS
    envs.close()


@pytest.mark.slow
def test_a_stranger_without_the_token_is_refused(ray: Any, tmp_path: Path) -> None:
    """Another user of this machine reaches the port, and gets no further."""
    address = ray.get_runtime_context().gcs_address
    script = f"""
    import os
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    import ray
    try:
        ray.init({address!r}, log_to_driver=False)
    except BaseException as error:
        print("refused", type(error).__name__)
    else:
        print("let in")
    """
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.startswith("refused"), done.stdout + done.stderr


DRIVER = """
import sys
import numpy as np
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.workers.ray import INSTANCE, RayVectorEnv

envs = RayVectorEnv([TickEnv, lambda: FaultyEnv("hang-holding-gil", at_step=2)], workers=2)
envs.reset(seed=0)
envs.step(np.zeros(2, int))
envs.send(0, np.zeros(2, int))
print(INSTANCE.folder, *envs.pids, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_after_the_driver_is_killed() -> None:
    """Row 12: kill -9 while an environment hangs and holds the GIL: no process, no folder, no shared memory."""
    shm = set(os.listdir("/dev/shm"))
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdin is not None
    assert driver.stdout is not None
    with driver.stdin, driver.stdout:
        folder, *words = driver.stdout.readline().split()
        pids = {*map(int, words), *processes_of(folder)} - {driver.pid}
        assert len(pids) > 4
        driver.kill()
        driver.wait()
        until(lambda: not any(map(lives, pids)) and not Path(folder).exists(), 60.0)
    left = [pid for pid in pids if lives(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    assert not Path(folder).exists()
    assert set(os.listdir("/dev/shm")) <= shm
    assert not Path.home().joinpath(".ray").exists() or "auth_token" not in os.listdir(Path.home() / ".ray")


def test_an_instance_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Ray's own reason and what to do; its folder and warden are gone."""
    ray = pytest.importorskip("ray")

    def refuse(**options: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", refuse)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    # The instance of the other tests goes on, with its own token.
    monkeypatch.setattr(ray_instance, "_on_loopback", lambda token: contextlib.nullcontext())
    monkeypatch.setattr(ray_instance, "_read_again", lambda: None)
    instance = Instance()
    with pytest.raises(
        RuntimeError, match=r"did not start here: The current node timed out during startup\. Is the machine"
    ):
        instance.join(None, 1)
    assert instance.folder is None
