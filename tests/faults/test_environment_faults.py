"""Rows 1-11 of FAULTS.md: what an environment can do wrong, and what is said about it."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from benchmarks.faults.compiled import Breaking
from clock import lives, until, within
from shoal.compiled.vector import CompiledVectorEnv
from shoal.core import errors
from shoal.core.errors import EnvFault, EnvRaised, EnvTimeout, NotFinite, TooManyRestarts, WorkerDied
from shoal.core.seeds import episode_seed
from shoal.testing.faults import ERROR_TEXT, FaultyEnv, TickEnv
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.split import SplitVectorEnv

N, BAD, AT = 4, 1, 3  # environment BAD of N breaks in step AT
BACKENDS = ["serial", "process", "split, here", "split, there"]  # of split: where the bad environment is
TYPED = {
    "nan-obs": "NotFinite",
    "inf-obs": "NotFinite",
    "nan-reward": "NotFinite",
    "inf-reward": "NotFinite",
    "reward-overflow": "NotFinite",
    "obs-longer": "ShapeError",
    "obs-shorter": "ShapeError",
    "obs-scalar": "ShapeError",
    "obs-ragged": "ShapeError",
    "obs-none": "DtypeError",
    "obs-str": "DtypeError",
    "obs-strings": "DtypeError",
    "obs-overflow": "DtypeError",
    "reward-str": "DtypeError",
    "reward-vector": "ShapeError",
    "reward-none": "DtypeError",
    "done-str": "DtypeError",
    "done-vector": "DtypeError",
    "done-none": "DtypeError",
    "done-float": "DtypeError",
}
MESSAGES = {
    "obs-longer": "shape (4,), got shape (5,)",
    "obs-shorter": "shape (4,), got shape (3,)",
    "obs-scalar": "shape (4,), got shape ()",
    "obs-none": "got NoneType None",
    "obs-overflow": "overflows float32",
    "reward-vector": "as one number, got shape (3,)",
    "done-none": "terminated as True or False, got NoneType None",
}


def _factories(kind: str, **options: Any) -> list[Any]:
    factories: list[Any] = [TickEnv] * N
    factories[BAD] = lambda: FaultyEnv(kind, **{"at_step": AT, **options})
    return factories


def _make(backend: str, factories: list[Any], **options: Any) -> Any:
    if backend == "serial":
        options.pop("start_method", None)
        return SerialVectorEnv(factories, **options)
    if backend.startswith("split"):
        here = BAD + 1 if backend == "split, here" else BAD
        return SplitVectorEnv(factories, here=here, workers=1, **{"step_timeout_s": 10.0, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # fork after torch
        return ProcessVectorEnv(factories, workers=2, **{"step_timeout_s": 10.0, **options})


def _pids(backend: str, env: Any) -> list[int]:
    """Where the bad environment may be."""
    return [os.getpid()] if backend in ("serial", "split, here") else env.pids


def _run(env: Any, steps: int = 2 * AT) -> list[Any]:
    """Reset, step; everything that came out."""
    kept = [env.reset(seed=9)[0]]
    for _ in range(steps):
        kept.append((*env.step(np.ones(env.num_envs, int)), env.restarted))
    return kept


def _fails(env: Any, kind: type[EnvFault], within_s: float = 5.0) -> Any:
    """Run until the fault comes; then closing is quick too."""
    start = time.monotonic()
    with pytest.raises(kind) as caught:
        _run(env)
    assert within(within_s, start)
    start = time.monotonic()
    env.close()
    assert within(5.0, start)
    return caught.value


def _check_place(fault: EnvFault, pids: list[int], *, env: int = BAD, step: int | None = AT) -> None:
    """Environment, worker, seed and step are right, as attributes and in the text."""
    seed = episode_seed(9, env, 0)
    assert (fault.env, fault.seed, fault.step) == (env, seed, step)
    assert fault.pid in pids
    assert f"[environment {env}, worker pid {fault.pid}, seed {seed}, step {step}]" in str(fault)


# -- rows 1 and 2: dead workers ------------------------------------------------------------------


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_worker_killed_in_step(method: str) -> None:
    """Row 1: a worker killed inside a step is named within 2 s, with its signal, for every start method."""
    env = _make("process", _factories("kill"), start_method=method)
    pids = env.pids
    fault = _fails(env, WorkerDied, within_s=2.0)
    assert fault.signal == signal.SIGKILL
    assert "killed by SIGKILL" in str(fault)
    _check_place(fault, pids)


def test_worker_that_exits() -> None:
    """os._exit in an environment is told with its code."""
    env = _make("process", _factories("exit"))
    pids = env.pids
    fault = _fails(env, WorkerDied)
    assert fault.signal is None
    assert "exit code 7" in str(fault)
    _check_place(fault, pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_idle_worker_killed(how: int) -> None:
    """Row 2: a worker that dies between two steps is found at the next, by name of the signal."""
    env = _make("process", [TickEnv] * N)
    _run(env, 2)
    victim = env.pids[1]
    os.kill(victim, how)
    assert until(lambda: not lives(victim))
    with pytest.raises(WorkerDied) as caught:
        env.step(np.ones(N, int))
    assert (caught.value.pid, caught.value.signal, caught.value.env) == (victim, how, 2)
    assert "it was idle" in str(caught.value)
    with pytest.raises(WorkerDied, match="has stopped"):
        env.step(np.ones(N, int))
    env.close()


@pytest.mark.parametrize("when", ["reset", "call"])
def test_idle_worker_killed_before(when: str) -> None:
    """Row 2, elsewhere: the next reset or call finds it too."""
    env = _make("process", [TickEnv] * N)
    env.reset(seed=0)
    os.kill(env.pids[0], signal.SIGKILL)
    with pytest.raises(WorkerDied, match=when):
        env.reset() if when == "reset" else env.call("length")
    env.close()


# -- rows 3 and 4: exceptions --------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_raise_in_step(backend: str) -> None:
    """Row 3: the original type, its text unmangled, and the worker's traceback down to the line."""
    env = _make(backend, _factories("raise-step"))
    pids = _pids(backend, env)
    fault = _fails(env, EnvRaised)
    assert fault.kind == "ValueError"
    assert f"ValueError in step: {ERROR_TEXT} [" in str(fault)
    assert "raise ValueError(ERROR_TEXT)" in fault.worker_traceback
    assert "faults.py" in fault.worker_traceback
    _check_place(fault, pids)


@pytest.mark.parametrize("at_reset", [1, 2])
@pytest.mark.parametrize("backend", BACKENDS)
def test_raise_in_reset(backend: str, at_reset: int) -> None:
    """Row 4: the first reset, and the one after an episode's end, are told with the new seed and step 0."""
    factories = [TickEnv] * N
    factories[BAD] = lambda: FaultyEnv("raise-reset", TickEnv(2), at_step=at_reset)
    env = _make(backend, factories)
    fault = _fails(env, EnvRaised)
    assert f"ValueError in reset: {ERROR_TEXT}" in str(fault)
    assert (fault.env, fault.seed, fault.step) == (BAD, episode_seed(9, BAD, at_reset - 1), 0)


@pytest.mark.parametrize("bad", [0, BAD, N - 1])
@pytest.mark.parametrize(
    ("kind", "expected", "text"),
    [
        ("raise-init", EnvRaised, ERROR_TEXT),
        ("kill-init", WorkerDied, "killed by SIGKILL"),
        ("hang-init", EnvTimeout, "within 0.5 s"),
    ],
)
def test_failing_constructor(kind: str, expected: type[EnvFault], text: str, bad: int) -> None:
    """Row 4: a constructor that raises, kills or hangs is named by its environment and leaves no sibling worker."""
    factories = [TickEnv] * N
    factories[bad] = lambda: FaultyEnv(kind)
    start = time.monotonic()
    with pytest.raises(expected) as caught:
        _make("process", factories, start_timeout_s=0.5 if kind == "hang-init" else 20.0)
    assert caught.value.env == bad
    assert text in str(caught.value)
    assert within(4.0, start)


@pytest.mark.parametrize("backend", BACKENDS)
def test_raise_in_close(backend: str) -> None:
    """Row 4: close raises what the environment raised, when all others are closed."""
    env = _make(backend, _factories("raise-close"))
    _run(env, 1)
    with pytest.raises(EnvRaised, match="ValueError in close") as caught:
        env.close()
    assert caught.value.env == BAD
    env.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_sys_exit_is_a_fault(backend: str) -> None:
    """sys.exit in an environment neither ends the parent nor passes for an orderly end."""
    fault = _fails(_make(backend, _factories("sys-exit")), EnvRaised)
    assert (fault.kind, fault.env, fault.step) == ("SystemExit", BAD, AT)


# -- rows 5 and 6: hanging -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hang", "hang-ignoring-sigterm", "hang-holding-gil"])
def test_hang_in_step(kind: str) -> None:
    """Row 5: an environment that never returns is found after the timeout and killed, whatever it holds."""
    env = _make("process", _factories(kind), step_timeout_s=0.5)
    pids = env.pids
    fault = _fails(env, EnvTimeout, within_s=2.0)
    _check_place(fault, pids)
    assert "no answer within 0.5 s in step" in str(fault)


def test_hang_in_reset() -> None:
    """Row 5: so is one that hangs in reset."""
    env = _make("process", _factories("hang-reset", at_step=1), step_timeout_s=0.5)
    fault = _fails(env, EnvTimeout, within_s=2.0)
    assert (fault.env, fault.step) == (BAD, 0)


def test_two_hanging_workers_cost_one_timeout() -> None:
    """With restart, workers that hang together are found together."""
    env = ProcessVectorEnv(
        [lambda: FaultyEnv("hang", at_step=1)] * 3, workers=3, step_timeout_s=1.0, on_fault="restart", max_restarts=3
    )
    env.reset(seed=0)
    start = time.monotonic()
    env.step(np.zeros(3, int))
    assert len(env.faults) == 3
    assert within(2.5, start)
    env.close()


@pytest.mark.parametrize("kind", ["hang", "hang-ignoring-sigterm", "hang-holding-gil"])
def test_close_of_a_hanging_environment(kind: str) -> None:
    """Row 6: close asks, terminates and kills within 5 s, even while a step hangs and ignores SIGTERM."""
    env = _make("process", _factories(kind, at_step=1))
    env.reset(seed=0)
    env.send(0, np.zeros(N, int))
    time.sleep(0.1)
    start = time.monotonic()
    env.close()
    assert within(5.0, start)


def test_terminated_environment_unwinds(tmp_path: Path) -> None:
    """Row 6: SIGTERM lets a hanging environment's `finally` run before SIGKILL would."""
    begun, marker = tmp_path / "begun", tmp_path / "unwound"

    class Careful(TickEnv):
        def step(self, action: Any) -> Any:
            try:
                begun.touch()
                time.sleep(1e6)
            finally:
                marker.write_text("done")

    env = _make("process", [Careful])
    env.reset(seed=0)
    env.send(0, np.zeros(1, int))
    assert until(begun.exists)
    env.close()
    assert marker.exists()


def test_close_that_hangs_is_told() -> None:
    """Row 6: an environment whose close hangs is killed, with a warning that names it."""
    env = _make("process", _factories("hang-close"))
    start = time.monotonic()
    with pytest.warns(RuntimeWarning, match=f"environment {BAD} .* did not close"):
        env.close()
    assert within(5.0, start)


def test_sigterm_to_the_group_is_the_parents_to_answer() -> None:
    """A worker does not die of a SIGINT or SIGTERM that was sent to everybody: the parent ends it in its own time."""
    env = _make("process", [TickEnv] * N)
    _run(env, 1)
    for pid in env.pids:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    assert env.step(np.ones(N, int))[0][:, 0].tolist() == [2] * N
    env.close()


def test_programs_of_an_environment_can_be_terminated() -> None:
    """What an environment starts does not inherit deafness to SIGTERM."""

    class Starting(TickEnv):
        def ignored(self) -> int:
            import subprocess

            out = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True).stdout
            return int(out.split()[1], 16)

    env = _make("process", [Starting])
    (ignored,) = env.call("ignored")
    assert not ignored & (1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1))
    env.close()


# -- row 7: crash loops --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("serial", "raise-step"),
        ("serial", "nan-obs"),
        ("process", "raise-step"),
        ("process", "kill"),
        ("process", "nan-obs"),
        ("split, here", "raise-step"),
        ("split, there", "kill"),
    ],
)
def test_crash_loop_stops(backend: str, kind: str) -> None:
    """Row 7: an environment that fails at every step stops the batch after 3 restarts, with the count."""
    env = _make(backend, _factories(kind, at_step=1), on_fault="restart", max_restarts=3)
    env.reset(seed=9)
    for _ in range(3):
        env.step(np.ones(N, int))
    with pytest.raises(TooManyRestarts, match="4 restarts within 10000 steps, 3 are allowed") as caught:
        env.step(np.ones(N, int))
    assert caught.value.env == BAD
    assert len(env.faults) == 4
    env.close()


@pytest.mark.parametrize("kind", ["kill-init", "raise-init", "kill-reset"])
def test_crash_loop_while_rebuilding_stops(kind: str, tmp_path: Path) -> None:
    """Row 7: a worker that cannot be rebuilt is tried as often as restarts are allowed, no more."""
    marker = tmp_path / "first"

    def make() -> gym.Env[Any, Any]:
        if not marker.exists():
            return FaultyEnv("kill", at_step=1, once=marker)
        return FaultyEnv(kind, at_step=1)

    env = _make("process", [TickEnv, make], on_fault="restart", max_restarts=2)
    env.reset(seed=9)
    with pytest.raises(TooManyRestarts, match="3 restarts"):
        env.step(np.ones(2, int))
    env.close()


# -- rows 8 to 11: ill-formed numbers ------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("backend", BACKENDS)
def test_ill_formed_results_are_typed_errors(backend: str, kind: str) -> None:
    """Rows 8-11: NaN, wrong shapes, wrong types: found in the same step, by their own error, nothing broadcast."""
    env = _make(backend, _factories(kind))
    pids = _pids(backend, env)
    fault = _fails(env, getattr(errors, TYPED[kind]))
    _check_place(fault, pids)
    assert MESSAGES.get(kind, "") in str(fault)


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_float_where_an_integer_belongs(backend: str) -> None:
    """Row 10: a fraction is not cut down to an integer."""
    factories = [lambda: FaultyEnv("obs-floats", TickEnv(whole=True), at_step=AT)]
    fault = _fails(_make(backend, factories), errors.DtypeError)
    assert "float64 -> int64" in str(fault)


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("backend", BACKENDS)
def test_quarantine_keeps_the_numbers_clean(backend: str, kind: str, tmp_path: Path) -> None:
    """Rows 8-11 with restart: nothing ill-formed comes out, the environment goes on with its next episode, once."""
    env = _make(backend, _factories(kind, once=tmp_path / "once"), on_fault="restart")
    first, *steps = _run(env, 8)
    assert np.isfinite(first).all()
    for t, (obs, rewards, terminated, truncated, _, restarted) in enumerate(steps, start=1):
        assert np.isfinite(obs).all()
        assert np.isfinite(rewards).all()
        broken = t == AT
        assert restarted.any() == broken
        assert truncated.tolist() == [broken and i == BAD for i in range(N)]
        assert not terminated.any()
        clock = [float(t)] * N
        clock[BAD] = float(t) if t < AT else float(t - AT)
        assert obs[:, 0].tolist() == clock
    (fault,) = env.faults
    assert type(fault).__name__ == TYPED[kind]
    assert f"goes on with episode 1, seed {episode_seed(9, BAD, 1)}" in str(fault)
    env.close()


@pytest.mark.parametrize(
    ("obs", "reward"), [(np.nan, 0.0), (np.inf, 0.0), (0.0, np.nan)], ids=["nan-obs", "inf-obs", "nan-reward"]
)
def test_compiled_numbers_are_checked(obs: float, reward: float) -> None:
    """Row 8, compiled: NaN and infinity are found in the same step, with environment and step."""
    env = CompiledVectorEnv(Breaking(obs=obs, reward=reward, raises=0.0), 3)
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(3, int))
    with pytest.raises(NotFinite) as caught:
        env.step(np.zeros(3, int))
    assert (caught.value.env, caught.value.step) == (0, 3)
    env.close()


def test_a_compiled_environment_that_raises_names_its_step() -> None:
    """Row 3, compiled: the step that raised, counted as in every other fault."""
    env = CompiledVectorEnv(Breaking(obs=0.0, reward=0.0, raises=1.0), 3)
    env.reset(seed=0)
    for _ in range(2):
        env.step(np.zeros(3, int))
    with pytest.raises(EnvRaised, match="broken on purpose") as caught:
        env.step(np.zeros(3, int))
    assert (caught.value.env, caught.value.step) == (0, 3)
    env.close()
