"""`allocate`: rows that the environments write into themselves hold what a copy would have held, whatever happens."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector import batch
from shoal.vector.memory import Block
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.split import SplitVectorEnv

N, STEPS = 5, 60
MAKERS: dict[str, Callable[..., Any]] = {
    "serial": SerialVectorEnv,
    "process": lambda envs, **more: ProcessVectorEnv(envs, workers=2, **more),
    "split": lambda envs, **more: SplitVectorEnv(envs, workers=2, **more),
}
ACTIONS = np.random.default_rng(0).integers(0, 2, (STEPS, N))


class Large(TickEnv):
    """A TickEnv whose observation is a dict of two arrays, 2 kB in all, every number of it telling the step."""

    def __init__(self, length: int = 7) -> None:
        super().__init__(length)
        box = gym.spaces.Box(-np.inf, np.inf, (20, 20), np.float32)
        self.observation_space = gym.spaces.Dict({"image": box, "tick": self.observation_space})

    def _observe(self, action: Any) -> Any:
        tick = super()._observe(action)
        return {"image": np.full((20, 20), tick.sum(), np.float32), "tick": tick}


@pytest.fixture(autouse=True)
def _always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "_WORTH_AIMING", 0)


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MAKERS[request.param]


def _row(rows: list[Any], t: int) -> dict[str, Any]:
    return {"image": rows[0][t], "tick": rows[1][t]}


def _same(one: Any, other: Any) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in ("image", "tick"))


def test_rows_hold_what_copies_hold(make: Callable[..., Any]) -> None:
    """60 steps with episodes that end: observations, final ones, rewards and flags are those of an ordinary batch, and
    a row keeps what it got while later ones are written."""
    env, other = make([Large] * N), SerialVectorEnv([Large] * N)
    rows = env.allocate(STEPS + 1)
    env.reset(seed=3)
    other.reset(seed=3)
    expected, ended = [], 0
    for t in range(STEPS):
        row = _row(rows, t + 1)
        mine, theirs = env.step(ACTIONS[t], out=row), other.step(ACTIONS[t])
        assert mine[0] is row
        assert env.block.aimed[0] == t + 2
        assert _same(row, theirs[0])
        for a, b in zip(mine[1:4], theirs[1:4], strict=True):
            assert np.array_equal(a, b)
        for index in np.flatnonzero(mine[2] | mine[3]):
            assert _same({name: leaf[index] for name, leaf in env.final_obs.items()}, theirs[4]["final_obs"][index])
            ended += 1
        expected.append(theirs[0])
    assert ended > 2 * N
    assert all(_same(_row(rows, t + 1), expected[t]) for t in range(STEPS))
    env.close()
    other.close()


def test_nothing_but_a_step_changes_a_row(make: Callable[..., Any]) -> None:
    """Steps into other arrays, resets of some and of all, a restored state, new rows: those written stay as they were,
    and each goes on from the present."""
    env, other = make([Large] * N), SerialVectorEnv([Large] * N)
    rows = env.allocate(4)
    env.reset(seed=3)
    other.reset(seed=3)

    def both(out: Any = None) -> None:
        assert _same(env.step(ACTIONS[0], out=out)[0], other.step(ACTIONS[0])[0])

    both(_row(rows, 1))
    assert np.shares_memory(env.block.observations[0], rows[0][1])
    first = {name: leaf.copy() for name, leaf in _row(rows, 1).items()}
    both()
    both(_row(rows, 2))
    second = {name: leaf.copy() for name, leaf in _row(rows, 2).items()}
    mask = np.arange(N) % 2 == 0
    assert _same(env.reset(options={"reset_mask": mask})[0], other.reset(options={"reset_mask": mask})[0])
    both(_row(rows, 3))
    state = env.get_state()
    assert all(np.array_equal(state[name], value) for name, value in other.get_state().items())
    both(_row(rows, 3))
    both({"image": np.zeros((N, 20, 20), np.float32), "tick": np.zeros((N, 4), np.float32)})
    assert env.set_state(state) == other.set_state(state) == []
    both(_row(rows, 3))
    env.send(0, ACTIONS[1])
    assert _same(env.recv(0)[0], other.step(ACTIONS[1])[0])
    both(_row(rows, 3))
    assert _same(env.reset(seed=9)[0], other.reset(seed=9)[0])
    again = env.allocate(4)
    both(_row(again, 3))
    both(_row(rows, 0))  # no longer where they write: a copy
    assert _same(_row(rows, 1), first)
    assert _same(_row(rows, 2), second)
    env.close()
    other.close()


@pytest.mark.parametrize("kind", ["kill", "raise-step", "nan-obs"])
@pytest.mark.parametrize("backend", ["process", "split"])
def test_restarted_environments_show_their_new_episodes(backend: str, kind: str, tmp_path: Path) -> None:
    """A fault in a step into a row: what the row shows is what a copy would have shown, then and later."""
    found = []
    for way in ("rows", "copies"):
        factories: list[Any] = [Large] * N
        factories[N - 1] = _Breaking(kind, str(tmp_path / way))
        env = MAKERS[backend](factories, on_fault="restart")
        rows = env.allocate(9) if way == "rows" else None
        env.reset(seed=3)
        seen = []
        for t in range(8):
            observations = env.step(ACTIONS[t], out=None if rows is None else _row(rows, t + 1))[0]
            seen.append({name: leaf.copy() for name, leaf in observations.items()})
        assert len(env.faults) == 1
        found.append(seen)
        env.close()
    assert all(_same(one, other) for one, other in zip(*found, strict=True))


class _Breaking:
    """Makes a Large that breaks once, in its fourth step."""

    def __init__(self, kind: str, once: str) -> None:
        self.kind, self.once = kind, once

    def __call__(self) -> Any:
        if self.kind == "nan-obs":
            return _Nan(self.once)
        return FaultyEnv(self.kind, Large(), at_step=4, once=self.once)


class _Nan(gym.Wrapper[Any, Any, Any, Any]):
    """A number that is none in one part of the observation."""

    def __init__(self, once: str) -> None:
        super().__init__(Large())
        self.once = Path(once)

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        if self.unwrapped.steps == 4 and not self.once.exists():  # type: ignore[attr-defined]
            self.once.touch()
            observation["image"][3, 3] = np.nan
        return (observation, *rest)


def _after_a_death() -> tuple[Any, Any, Any]:
    """Four environments after one step, rows, and actions; the second of two workers has just been killed."""
    env = ProcessVectorEnv([Large] * 4, workers=2, on_fault="restart")
    rows, actions = env.allocate(6), np.ones(4, np.int64)
    assert rows is not None
    env.reset(seed=3)
    env.step(actions, out=_row(rows, 1))
    env._workers[1].process.kill()
    env._workers[1].process.join()
    return env, rows, actions


def test_a_worker_lost_between_two_steps_is_shown_in_the_next_row() -> None:
    """Its environments are rebuilt instead of stepped; what they show goes where this step's observations go."""
    env, rows, actions = _after_a_death()
    env.step(actions, out=_row(rows, 2))
    assert env.restarted.tolist() == [False, False, True, True]
    assert rows[1][2, :, 0].tolist() == [2, 2, 0, 0]
    env.step(actions, out=_row(rows, 3))
    assert rows[1][3, :, 0].tolist() == [3, 3, 1, 1]
    env.close()


def test_a_worker_lost_in_a_reset_is_shown_in_the_next_row() -> None:
    """All its environments begin anew, also those that were not to be reset; all are shown once before they step."""
    env, rows, actions = _after_a_death()
    shown, _ = env.reset(options={"reset_mask": np.array([False, False, True, False])})
    assert env._workers[1].lost
    env.step(actions, out=_row(rows, 2))
    assert rows[1][2, :, 0].tolist() == [2, 2, 0, 0]
    assert shown["tick"][2:].any(axis=1).all()
    assert np.array_equal(rows[1][2, 2:], shown["tick"][2:])
    env.step(actions, out=_row(rows, 3))
    assert rows[1][3, :, 0].tolist() == [3, 3, 1, 1]
    env.close()


class Interrupted(Large):
    """Ctrl-C in the third step."""

    def step(self, action: Any) -> Any:
        if self.steps == 2:
            raise KeyboardInterrupt
        return super().step(action)


@pytest.mark.parametrize("backend", ["serial", "split"])
def test_an_interrupted_step_asks_for_a_reset_of_all(backend: str) -> None:
    """Some have written into the row and some have not: their present observations are in no one place."""
    env = MAKERS[backend]([Interrupted, *[Large] * (N - 1)])
    rows = env.allocate(4)
    env.reset(seed=3)
    for t in range(2):
        env.step(ACTIONS[t], out=_row(rows, t))
    with pytest.raises(KeyboardInterrupt):
        env.step(ACTIONS[2], out=_row(rows, 2))
    with pytest.raises(gym.error.ResetNeeded, match="Reset all environments"):
        env.reset(options={"reset_mask": np.arange(N) == 1})
    assert (env.reset(seed=3)[0]["tick"][:, 0] == 0).all()
    env.step(ACTIONS[0], out=_row(rows, 3))
    assert (rows[1][3, :, 0] == 1).all()
    env.close()


def _mappings() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:shoal")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_memory_comes_and_goes_with_its_rows() -> None:
    """Each allocate takes the place of the one before; after close and without the rows nothing is left."""
    gc.collect()  # of the tests before
    before = _mappings(), len(list(Path("/proc/self/fd").iterdir()))
    env = ProcessVectorEnv([Large] * 4, workers=2)
    env.reset(seed=3)
    for _ in range(4):
        rows = env.allocate(8)
        env.step(np.ones(4, np.int64), out=_row(rows, 3))
        assert _mappings() == before[0] + 2
    env.close()
    assert env.block.memory.fd == env._rows._memory.fd == -1
    del env, rows
    gc.collect()
    assert (_mappings(), len(list(Path("/proc/self/fd").iterdir()))) == before


def test_no_memory_leaves_things_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """An allocate that fails takes nothing away: the rows before are still written into, a lost worker is replaced."""
    env = ProcessVectorEnv([Large] * 4, workers=2, on_fault="restart")
    rows = env.allocate(4)
    env.reset(seed=3)
    monkeypatch.setattr(os, "memfd_create", _no_descriptors)
    with pytest.raises(OSError, match="Too many open files"):
        env.allocate(4)
    monkeypatch.undo()
    env._workers[0].process.kill()
    env._workers[0].process.join()
    env.step(np.ones(4, np.int64), out=_row(rows, 1))
    assert env.block.aimed[0] == 2
    assert rows[1][1, :, 0].tolist() == [0, 0, 1, 1]
    env.close()


def _no_descriptors(*_: Any) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Hollow(Large):
    """One part of the observation has no numbers in it."""

    def __init__(self) -> None:
        super().__init__()
        nothing = gym.spaces.Box(-1, 1, (0,), np.float32)
        self.observation_space = gym.spaces.Dict({**self.observation_space.spaces, "void": nothing})

    def _observe(self, action: Any) -> Any:
        return {**super()._observe(action), "void": np.zeros(0, np.float32)}


def test_where_it_would_not_pay_there_are_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small observations, slices that are at different steps, parts without an address."""
    small, sliced = SerialVectorEnv([TickEnv] * 2), SerialVectorEnv([Large] * 2, slices=2)
    hollow = SerialVectorEnv([Hollow] * 2)
    with pytest.raises(ValueError, match="at least 1 row, got 0"):
        small.allocate(0)
    assert sliced.allocate(3) is None
    assert hollow.allocate(3) is None
    monkeypatch.setattr(batch, "_WORTH_AIMING", 2 * 16)
    rows = small.allocate(3)
    assert rows is not None
    assert [row.shape for row in rows] == [(3, 2, 4)]
    monkeypatch.setattr(batch, "_WORTH_AIMING", 2 * 16 + 1)
    assert small.allocate(3) is None
    for env in (small, sliced, hollow):
        env.close()


def test_which_row_an_array_is() -> None:
    """A row is known by where it lies; parts of rows, other shapes and other arrays are none."""
    space = gym.spaces.Box(-1, 1, (4, 4), np.float32)
    block = Block(3, space, gym.spaces.Discrete(2))
    assert block.row_of([np.zeros((3, 4, 4), np.float32)]) == -1
    block.set_rollout(5)
    (rows,) = block.rollout
    assert [block.row_of([rows[t]]) for t in range(5)] == [0, 1, 2, 3, 4]
    flat = rows.reshape(-1)
    for other in (
        rows[1][:2],
        rows[:, 0],
        rows[1].transpose(0, 2, 1),
        rows[1].view(np.int32),
        flat[16:64].reshape(3, 4, 4),
        np.zeros((3, 4, 4), np.float32),
    ):
        assert block.row_of([other]) == -1
