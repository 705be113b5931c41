"""The process backend's own behaviour: start-up, memory, slices, infos, interrupts, ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from drill import Uneven

from clock import slowness, until, within
from shoal.core.errors import EnvRaised, EnvTimeout, WorkerDied
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers import supervisor
from shoal.vector.workers.launch import safe_start_method
from shoal.vector.workers.process import ProcessVectorEnv

METHODS = ("spawn", "fork", "forkserver")


def _script(tmp_path: Path, text: str, *arguments: str, timeout: float = 200) -> str:
    """Run a script of its own; returns what it printed."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, timeout=timeout, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- starting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_start_is_quick_and_small_and_free_of_torch(method: str, tmp_path: Path) -> None:
    """64 environments start in 3 s; a worker has less than 40 MB of its own and no torch, though `__main__` imported
    it, has no guard, and defines the environment itself."""
    printed = _script(
        tmp_path,
        """
        import gc, sys, time
        import torch
        import gymnasium as gym
        from shoal.vector.workers.process import ProcessVectorEnv

        gc.disable()  # a collection here writes to all pages shared with a fork, which then count as the fork's own

        class Mine(gym.Wrapper):
            def modules(self):
                return sorted(name for name in ("torch", "numba", "matplotlib") if name in sys.modules)

            def unique_mb(self):
                lines = open("/proc/self/smaps_rollup").read().splitlines()
                return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024

        start = time.perf_counter()
        envs = ProcessVectorEnv([lambda: Mine(gym.make("CartPole-v1"))] * 64, workers=2, start_method=sys.argv[1])
        envs.reset(seed=0)
        print(time.perf_counter() - start)
        print(max(envs.call("unique_mb")))
        print(*envs.call("modules")[0])
        envs.close()
        """,
        method,
    )
    seconds, megabytes, *modules = printed.splitlines()
    assert float(seconds) < 3.0 * slowness()
    assert float(megabytes) < 40.0
    if method != "fork":  # a fork has what its parent has
        assert modules in ([], [""])


def test_interpreter_exit_without_close(tmp_path: Path) -> None:
    """A script that forgets close, with an environment that ignores SIGTERM and hangs, ends and leaves no worker."""
    printed = _script(
        tmp_path,
        """
        import numpy as np
        from shoal.testing.faults import FaultyEnv, TickEnv
        from shoal.vector.workers.process import ProcessVectorEnv
        envs = ProcessVectorEnv([TickEnv, lambda: FaultyEnv("hang-ignoring-sigterm", at_step=1)], workers=2)
        envs.reset(seed=0)
        envs.send(0, np.zeros(2, int))
        print(*envs.pids)
        """,
        timeout=200,
    )
    assert not any(Path(f"/proc/{pid}").exists() for pid in printed.split())


def test_started_in_a_thread_it_outlives_the_thread() -> None:
    """Workers die with the process that owns them, not with the thread that happened to start them."""
    made: list[ProcessVectorEnv] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread = threading.Thread(
            target=lambda: made.extend(ProcessVectorEnv([TickEnv], start_method=m) for m in ("spawn", "fork"))
        )
        thread.start()
        thread.join()
    time.sleep(0.2)
    for env in made:
        env.reset(seed=0)
        assert env.step(np.zeros(1, int))[0][0, 0] == 1
        env.close()
    assert sys.modules["__main__"].__dict__  # the real one is back


def test_fork_after_torch_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """fork is allowed, but says why it is not wise once torch has threads."""
    monkeypatch.setitem(sys.modules, "torch", sys)
    with pytest.warns(RuntimeWarning, match="forkserver"):
        assert safe_start_method("fork") == "fork"
    assert safe_start_method(None) in ("forkserver", "spawn")
    with pytest.raises(ValueError, match="spawn, fork, forkserver"):
        safe_start_method("clone")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "at least one worker"),
        ({"slices": "triple"}, "lockstep, double, ready"),
        ({"step_timeout_s": 0}, "above 0"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    """Options that make no sense are refused before anything is started."""
    with pytest.raises(ValueError, match=message):
        ProcessVectorEnv([TickEnv], **options)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("num_envs", [1, 2, 3])
@pytest.mark.parametrize("slices", ["lockstep", "double", "ready"])
def test_few_environments(num_envs: int, slices: str) -> None:
    """Fewer environments than workers or slices are no special case."""
    env = ProcessVectorEnv([TickEnv] * num_envs, workers=4, slices=slices)
    env.reset(seed=0)
    assert env.step(np.zeros(num_envs, int))[0][:, 0].tolist() == [1] * num_envs
    assert len(env.pids) <= num_envs
    env.close()


def test_the_parent_builds_no_environment() -> None:
    """Spaces, metadata and spec come from a worker, so that a constructor cannot harm the parent."""
    parent = os.getpid()

    def make() -> gym.Env[Any, Any]:
        assert os.getpid() != parent
        return gym.make("CartPole-v1")

    env = ProcessVectorEnv([make] * 2, workers=2)
    assert env.spec.id == "CartPole-v1"
    assert env.metadata["render_fps"] == 50
    assert env.single_observation_space == gym.make("CartPole-v1").observation_space
    env.close()


# -- slices and calls ----------------------------------------------------------------------------


def test_answers_may_be_fetched_in_any_order() -> None:
    """With two slices on one worker, receiving the second before the first gives each its own step."""
    env, same = ProcessVectorEnv([Uneven] * 4, workers=1, slices="double"), SerialVectorEnv([Uneven] * 4, slices=2)
    env.reset(seed=0), same.reset(seed=0)
    for t in range(20):
        for batch in (env, same):
            batch.send(0, np.full(2, t % 4)), batch.send(1, np.full(2, (t + 1) % 4))
        second, first = env.recv(1), env.recv(0)
        for got, part in ((first, 0), (second, 1)):
            expected = same.recv(part)
            assert all(np.array_equal(a, b) for a, b in zip(got[:4], expected[:4], strict=True))
            assert got[4].keys() == expected[4].keys()
    env.close()


def test_ready_gives_the_fastest_first(tmp_path: Path) -> None:
    """`ready` names the worker that is done, while the other is still at it."""
    known = tmp_path / "known"

    class Slow(TickEnv):
        def step(self, action: Any) -> Any:
            assert not action or until(known.exists)
            return super().step(action)

    env = ProcessVectorEnv([Slow] * 2, workers=2, slices="ready")
    env.reset(seed=0)
    env.send(0, np.ones(1, int)), env.send(1, np.zeros(1, int))
    assert env.ready([0, 1]) == [1]
    env.recv(1)
    known.touch()
    assert env.ready([0]) == [0]
    env.recv(0)
    assert env.ready([]) == []
    env.close()


@pytest.mark.parametrize("slices", ["lockstep", "double"])
def test_call_answers_in_the_order_of_the_environments(slices: str) -> None:
    """`call` maps every value to its environment, however slices and workers cut the batch."""

    def make(length: int) -> Any:
        return lambda: TickEnv(length)

    env = ProcessVectorEnv([make(10 + i) for i in range(7)], workers=3, slices=slices)
    assert env.call("length") == tuple(range(10, 17))
    env.close()


def test_a_mistake_in_a_call_breaks_nothing() -> None:
    """A missing attribute, a raising method and a value that cannot be pickled are told; the workers go on."""

    class Odd(TickEnv):
        def explode(self) -> None:
            raise KeyError("x")

        def lock(self) -> Any:
            return threading.Lock()

    env = ProcessVectorEnv([Odd] * 3, workers=2)
    env.reset(seed=0)
    for name, kind in (("nonsense", "AttributeError"), ("explode", "KeyError"), ("lock", "TypeError")):
        with pytest.raises(EnvRaised, match=kind):
            env.call(name)
    assert env.step(np.zeros(3, int))[0][:, 0].tolist() == [1, 1, 1]
    env.close()


# -- infos ---------------------------------------------------------------------------------------


def test_infos_cross_or_are_named() -> None:
    """Numbers, text, arrays and containers arrive as they are; objects are left out, with a warning by name."""

    class Informing(TickEnv):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, _ = super().step(action)
            info = {
                "big": 2**100,
                "text": "é\udc80",
                "array": np.arange(3, dtype=np.int16),
                "strings": np.array(["a", "bc"]),
                "when": np.datetime64("2020-01-01"),
                "pair": (1, [2.5, None]),
                "deep": {"__array__": 1, "x": {"y": True}},
                "object": object(),
                "list": [1, object()],
            }
            return obs, reward, terminated, truncated, info

    ours, theirs = ProcessVectorEnv([Informing] * 2, workers=2), SerialVectorEnv([Informing] * 2)
    ours.reset(seed=0), theirs.reset(seed=0)
    with pytest.warns(RuntimeWarning, match=r"left out: list \(object\), object \(object\)"):
        got = ours.step(np.zeros(2, int))[4]
    expected = theirs.step(np.zeros(2, int))[4]
    assert set(expected) - set(got) == {"object", "_object", "list", "_list"}
    for key, value in got.items():
        if key != "deep":
            assert np.array_equal(value, expected[key])
            assert np.asarray(value).dtype == np.asarray(expected[key]).dtype
    assert got["deep"]["__array__"].tolist() == [1, 1]
    assert got["deep"]["x"]["y"].tolist() == [True, True]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.step(np.zeros(2, int))  # said once
    ours.close()


def test_large_infos_do_not_block() -> None:
    """Infos larger than a socket's buffer, from two slices at once, arrive whole."""

    class Large(TickEnv):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"blob": np.full(300_000, self.steps)}

    env = ProcessVectorEnv([Large] * 4, workers=2, slices="double")
    env.reset(seed=0)
    env.send(0, np.zeros(2, int)), env.send(1, np.zeros(2, int))
    assert env.recv(1)[4]["blob"][3, -1] == 1
    assert env.recv(0)[4]["blob"][0, -1] == 1
    env.close()


# -- interrupts and ends -------------------------------------------------------------------------


class Sleepy(TickEnv):
    """Steps of 0.3 s."""

    def step(self, action: Any) -> Any:
        """Sleep, then step."""
        time.sleep(0.3)
        return super().step(action)


def test_interrupt_between_send_and_recv(tmp_path: Path) -> None:
    """Ctrl-C while waiting for a step leaves no stale answer: a step is refused, a reset clears."""
    begun, over = tmp_path / "begun", tmp_path / "over"

    class Held(TickEnv):
        def step(self, action: Any) -> Any:
            begun.touch()
            assert until(over.exists)
            return super().step(action)

    def interrupt() -> None:
        assert until(begun.exists)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    env = ProcessVectorEnv([Held] * 2, workers=2)
    env.reset(seed=0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores SIGINT
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            env.step(np.zeros(2, int))
    finally:
        signal.signal(signal.SIGINT, before)
    over.touch()
    with pytest.raises(RuntimeError, match="reset"):
        env.step(np.ones(2, int))
    obs, _ = env.reset(seed=0)
    assert obs[:, 0].tolist() == [0, 0]
    obs, rewards, *_ = env.step(np.ones(2, int))
    assert obs[:, 0].tolist() == [1, 1]
    assert rewards.tolist() == [1, 1]
    env.close()


def test_interrupt_half_way_through_an_answer_is_told() -> None:
    """An answer cut in two by Ctrl-C makes the worker unusable, and the next use says so instead of reading rubbish."""
    env = ProcessVectorEnv([TickEnv], workers=1)
    env.reset(seed=0)
    env.send(0, np.zeros(1, int))
    env._workers[0]._reading = True  # as an exception between the two halves would leave it
    with pytest.raises(WorkerDied, match="interrupted half-way"):
        env.recv(0)
    start = time.monotonic()
    env.close()
    assert within(5.0, start)


def test_close_while_a_step_is_in_flight() -> None:
    """Closing waits for a short step, takes both answers for what they are, and leaves nobody."""
    env = ProcessVectorEnv([Sleepy] * 2, workers=2, slices="double")
    env.reset(seed=0)
    env.send(0, np.zeros(1, int)), env.send(1, np.zeros(1, int))
    pids = env.pids
    env.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert env.pids == []
    assert env.block.memory is not None
    assert env.block.memory.fd == -1


def test_worker_output_and_exit_hooks_survive_close(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed worker leaves in order: what its environment prints last is not lost."""
    for name in ("CLOSE_S", "LEAVE_S"):  # a busy machine takes its time
        monkeypatch.setattr(supervisor, name, 60.0)

    class Talking(TickEnv):
        def close(self) -> None:
            print("last words")

    env = ProcessVectorEnv([Talking], workers=1, start_method="spawn")
    env.close()
    assert "last words" in capfd.readouterr().out


def test_strange_byte_on_the_channel() -> None:
    """An environment that writes into descriptors it does not own is found out, not misread."""

    class Scribbling(TickEnv):
        def step(self, action: Any) -> Any:
            for fd in range(3, 30):
                try:
                    os.write(fd, b"!")
                except OSError:
                    continue
            return super().step(action)

    env = ProcessVectorEnv([Scribbling], workers=1)
    env.reset(seed=0)
    with pytest.raises(WorkerDied, match="no answer"):
        env.step(np.zeros(1, int))
    env.close()


def test_late_ready_names_the_hanging_worker() -> None:
    """With first-ready slices a hanging environment is still found within one timeout."""
    env = ProcessVectorEnv(
        [TickEnv, lambda: FaultyEnv("hang", at_step=1)], workers=2, slices="ready", step_timeout_s=0.5
    )
    env.reset(seed=0)
    env.send(0, np.zeros(1, int)), env.send(1, np.zeros(1, int))
    start = time.monotonic()
    assert env.ready([0, 1]) == [0]
    env.recv(0)
    with pytest.raises(EnvTimeout) as caught:
        env.recv(env.ready([1])[0])
    assert caught.value.env == 1
    assert within(1.5, start)
    env.close()


def test_a_scheduler_that_may_not_be_asked_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a filter of system calls (systemd, snaps) workers step as they are scheduled (M10)."""
    if not hasattr(os, "sched_setscheduler"):
        pytest.skip("no scheduler to ask")

    def refuse(*arguments: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)  # a forked worker inherits it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        env = ProcessVectorEnv([TickEnv] * 2, workers=1, start_method="fork")
    env.reset(seed=0)
    assert env.step(np.ones(2, int))[0][:, 0].tolist() == [1, 1]
    env.close()
