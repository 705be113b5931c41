"""The face of a batch: actions, slices, seeds, infos, masks, restarts within a window."""

from __future__ import annotations

import functools
import io
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from drill import Drill
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.core.errors import EnvRaised, TooManyRestarts
from shoal.core.seeds import episode_seed
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.adapt import Stepper
from shoal.vector.make import make_vec
from shoal.vector.parts import cut
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.process import ProcessVectorEnv


@settings(deadline=None)
@given(st.integers(1, 500), st.integers(1, 50))
def test_cut_covers_everything_evenly(num_envs: int, parts: int) -> None:
    """Slices are contiguous, cover all, and differ in size by at most one."""
    slices = cut(num_envs, parts)
    assert [i for rows in slices for i in range(rows.start, rows.stop)] == list(range(num_envs))
    sizes = [rows.stop - rows.start for rows in slices]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(2, int), r"shape \(3,\) for 3 environments"),
        (np.zeros((3, 1), int), "got shape"),
        (np.zeros(3), "dtype int64, got float64"),
        (["a", "b", "c"], "dtype int64"),
    ],
)
def test_wrong_actions_are_refused_before_anything_steps(slices: int, actions: Any, message: str) -> None:
    """A wrong batch of actions names what was expected, and the batch can go on as if nothing had happened."""
    env = SerialVectorEnv([TickEnv] * 3, slices=slices)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(actions)
    obs, *_ = env.step(np.zeros(3, int))
    assert obs[:, 0].tolist() == [1, 1, 1]


def test_missing_part_of_a_dict_action_is_named() -> None:
    """The error speaks of actions, not of observations."""
    env = SerialVectorEnv([lambda: Drill("box", "dict")] * 2)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="the action part go"):
        env.step({"force": np.zeros((2, 2), np.float32)})


def test_step_before_reset_and_after_close() -> None:
    """Both say what to do."""
    env = SerialVectorEnv([TickEnv] * 2)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros(2, int))
    with pytest.raises(gym.error.ResetNeeded):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.close()
    for use in (lambda: env.step(np.zeros(2, int)), lambda: env.reset(seed=0), lambda: env.call("length")):
        with pytest.raises(gym.error.ClosedEnvironmentError):
            use()


def test_reset_by_mask_by_hand() -> None:
    """Only the masked environment begins its next episode; the others keep observation, clock and history."""
    env = SerialVectorEnv([TickEnv] * 3)
    env.reset(seed=4)
    for _ in range(2):
        before, *_ = env.step(np.ones(3, int))
    obs, _ = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert obs[:, 0].tolist() == [2, 0, 2]
    assert np.array_equal(obs[[0, 2]], before[[0, 2]])
    assert env.block.episodes.tolist() == [0, 1, 0]
    assert env.block.seeds[1] == episode_seed(4, 1, 1)
    assert env.get_state()["action_counts"].tolist() == [2, 0, 2]


@pytest.mark.parametrize("mask", [[True, False], np.array([1, 0]), np.array([True]), np.zeros(2, bool)])
def test_bad_reset_mask(mask: Any) -> None:
    """A mask of the wrong type, shape or content is refused."""
    env = SerialVectorEnv([TickEnv] * 2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": mask})


def test_seeds_by_list_are_used_as_they_are() -> None:
    """A list seeds first episodes directly; None gives an environment a stream of its own, or its next episode."""
    env = SerialVectorEnv([TickEnv] * 3)
    env.reset(seed=[11, None, None])
    first = env.block.seeds.tolist()
    assert first[0] == 11
    assert len(set(first)) == 3
    env.reset(seed=[11, None, None])
    assert env.block.seeds[0] == 11
    assert env.block.episodes.tolist() == [0, 1, 1]
    env.reset()
    assert env.block.seeds[0] == episode_seed(11, 0, 1)


@pytest.mark.parametrize("seed", [-1, 2**63, [1, 2, 3], [-1, 0]])
def test_bad_seeds(seed: Any) -> None:
    """Seeds out of range or of the wrong number are refused, and nothing has changed."""
    env = SerialVectorEnv([TickEnv] * 2)
    env.reset(seed=0)
    before = env.block.bases.copy()
    with pytest.raises(ValueError, match="seed"):
        env.reset(seed=seed)
    assert np.array_equal(env.block.bases, before)


def test_without_seed_batches_differ() -> None:
    """Unseeded batches draw from the operating system."""
    bases = set()
    for _ in range(3):
        env = SerialVectorEnv([TickEnv])
        env.reset()
        bases.add(int(env.block.bases[0]))
    assert len(bases) == 3


def test_infos_equal_gymnasium() -> None:
    """Infos, masks and final infos have the form and the values of Gymnasium's SAME_STEP, key by key."""
    ours, theirs = SerialVectorEnv([Drill] * 4), SyncVectorEnv([Drill] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    seeds = [7, 8, 9, 10]
    ours.reset(seed=seeds), theirs.reset(seed=seeds)
    alive = np.ones(4, bool)  # Gymnasium seeds no episode but the first, so later ones differ
    finals = 0
    for t in range(12):
        got, expected = ours.step(np.full(4, t % 4))[4], theirs.step(np.full(4, t % 4))
        ended = (expected[2] | expected[3]) & alive
        for key in ("score", "count", "name", "vector"):
            mask = expected[4].get(f"_{key}", np.zeros(4, bool)) & alive & ~ended
            assert np.array_equal(got.get(f"_{key}", np.zeros(4, bool))[alive & ~ended], mask[alive & ~ended])
            for i in np.flatnonzero(mask):
                assert np.array_equal(got[key][i], expected[4][key][i])
                assert got[key].dtype == expected[4][key].dtype
        for i in np.flatnonzero(ended):
            assert got["_final_obs"][i]
            assert np.array_equal(got["final_obs"][i], expected[4]["final_obs"][i])
            if "count" in expected[4]["final_info"]:
                assert got["final_info"]["count"][i] == expected[4]["final_info"]["count"][i]
                finals += 1
        alive &= ~ended
    assert finals > 0


def test_a_step_in_flight_is_protected() -> None:
    """A slice cannot be sent to twice nor received from without being sent to, and no state is taken in between."""
    env = SerialVectorEnv([TickEnv] * 4, slices=2)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="expected send"):
        env.recv(0)
    env.send(0, np.zeros(2, int))
    for use in (lambda: env.send(0, np.zeros(2, int)), lambda: env.step(np.zeros(4, int)), env.mark, env.get_state):
        with pytest.raises(RuntimeError, match=r"slice|received"):
            use()
    env.recv(0)
    obs, *_ = env.step(np.zeros(4, int))
    assert obs[:, 0].tolist() == [2, 2, 1, 1]


def test_slices_equal_the_whole() -> None:
    """Sending and receiving halves gives the numbers of whole steps."""
    whole, halves = SerialVectorEnv([Drill] * 5), SerialVectorEnv([Drill] * 5, slices=2)
    whole.reset(seed=1), halves.reset(seed=1)
    for t in range(30):
        actions = np.arange(5) * t % 4
        expected = whole.step(actions)
        for part, rows in enumerate(halves.slices):
            halves.send(part, actions[rows])
            got = halves.recv(part)
            for a, b in zip(got[:4], expected[:4], strict=True):
                assert np.array_equal(a, b[rows])


def test_out_is_written_in_place_and_checked() -> None:
    """With `out` the observations land there; an array of another shape or type is refused."""
    env = SerialVectorEnv([TickEnv] * 2)
    env.reset(seed=0)
    out = np.zeros((2, 4), np.float32)
    obs, *_ = env.step(np.zeros(2, int), out=out)
    assert obs is out
    assert out[:, 0].tolist() == [1, 1]
    with pytest.raises(ValueError, match="out as float32"):
        env.step(np.zeros(2, int), out=np.zeros((3, 2, 4), np.float32))


def test_after_a_fault_the_batch_says_what_stopped_it() -> None:
    """A step or reset after a fault repeats the fault instead of going on with torn environments."""
    env = SerialVectorEnv([TickEnv, lambda: FaultyEnv("raise-step", at_step=1)])
    env.reset(seed=0)
    with pytest.raises(EnvRaised):
        env.step(np.zeros(2, int))
    for use in (lambda: env.step(np.zeros(2, int)), lambda: env.reset(seed=0)):
        with pytest.raises(EnvRaised, match="has stopped, close it and make a new one") as caught:
            use()
        assert caught.value.env == 1
    env.close()


@pytest.mark.parametrize("slices", [1, 2])
def test_restarts_are_counted_within_a_window(slices: int) -> None:
    """One restart every 5 steps is fine with 2 allowed in 9 steps, and too much with 2 in 11, whatever the slices."""

    def run(window: int) -> int:
        env = SerialVectorEnv(
            [lambda: FaultyEnv("raise-step", at_step=5)] + [TickEnv] * 3,
            slices=slices, on_fault="restart", max_restarts=2, restart_window=window,
        )  # fmt: skip
        env.reset(seed=0)
        for _ in range(40):
            env.step(np.zeros(4, int))
        return len(env.faults)

    assert run(9) == 8
    with pytest.raises(TooManyRestarts, match="3 restarts within 11 steps, 2 are allowed"):
        run(11)


def test_restarted_is_told() -> None:
    """The step that restarted an environment says so, marks it truncated, and counts the fault."""
    env = SerialVectorEnv([TickEnv, lambda: FaultyEnv("nan-obs", at_step=2)], on_fault="restart")
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    assert env.restarted.tolist() == [False, False]
    obs, rewards, terminated, truncated, infos = env.step(np.ones(2, int))
    assert env.restarted.tolist() == [False, True]
    assert "restarted" not in infos
    assert truncated.tolist() == [False, True]
    assert not terminated.any()
    assert rewards.tolist() == [1, 0]
    assert np.isfinite(obs).all()
    assert [fault.env for fault in env.faults] == [1]


def test_unknown_policy_is_refused() -> None:
    """`on_fault` has two values."""
    with pytest.raises(ValueError, match="fail, restart"):
        SerialVectorEnv([TickEnv], on_fault="ignore")
    with pytest.raises(ValueError, match="fail, restart"):
        ProcessVectorEnv([TickEnv], on_fault="ignore")


class Unsigned(Drill):
    """A drill that asserts that its action is one of its space, type and all."""

    def __init__(self, space: gym.spaces.Space[Any]) -> None:
        super().__init__(infos=False)
        self.action_space = space

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return super().step(action)


UNSIGNED = [gym.spaces.Discrete(3, dtype=np.uint8), gym.spaces.MultiDiscrete([2, 3], dtype=np.uint8)]


@pytest.mark.parametrize("space", UNSIGNED, ids=str)
@pytest.mark.parametrize("passed_through", [False, True])
def test_unsigned_actions_are_trained(space: Any, passed_through: bool, tmp_path: Path) -> None:
    """PPO's actions come in the type of the action space, on our backends and on others' (M15)."""
    env: Any = functools.partial(Unsigned, space)
    train: Any = shoal.train
    made = SyncVectorEnv([env] * 2) if passed_through else env
    options = {} if passed_through else {"backend": "serial", "num_envs": 2}
    result = train(
        env=made, steps=64, rollout_steps=16, name="u", runs_dir=str(tmp_path), stream=io.StringIO(), **options
    )
    assert result.status == "finished"


def test_integers_that_fit_are_actions() -> None:
    """Of any width; one that does not fit is refused instead of wrapping around (M15)."""
    space = gym.spaces.Discrete(3, dtype=np.uint8)
    env = SerialVectorEnv([lambda: Unsigned(space)] * 2)
    env.reset(seed=0)
    for dtype in (np.uint8, np.int8, np.int64, np.uint64, np.int32):
        env.step(np.array([2, 0], dtype))
    for wrong in ([256, 0], [-1, 0]):
        with pytest.raises(ValueError, match="expected actions that fit uint8"):
            env.step(np.array(wrong))
    tick = SerialVectorEnv([TickEnv])
    tick.reset(seed=0)
    with pytest.raises(ValueError, match="expected actions that fit int64"):
        tick.step(np.array([2**63], np.uint64))


@pytest.mark.parametrize("key", ["restarted", "_restarted", "lap"])
@pytest.mark.parametrize("backend", ["serial", "process", "gymnasium"])
def test_an_info_of_any_name_costs_no_data(backend: str, key: str) -> None:
    """What an environment calls its infos says nothing about lost episodes (M8)."""

    class Telling(TickEnv):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, _ = super().step(action)
            return observation, reward, terminated, truncated, {key: True}

    factories = [functools.partial(Telling, length) for length in (5, 6, 9, 14)]
    if backend == "gymnasium":
        envs: Any = SyncVectorEnv(factories, autoreset_mode=AutoresetMode.SAME_STEP)
    else:
        envs = make_vec(factories, 4, backend=backend)
    with closing(envs):
        stepper = Stepper(envs)
        rows = stepper.allocate(2)
        stepper.reset(0, [leaf[0] for leaf in rows])
        for _ in range(40):
            outcome = stepper.step(np.ones(4, int), [leaf[1] for leaf in rows])
            assert outcome.broken is None
            assert outcome.valid is None


def test_a_restart_is_told_through_a_wrapper() -> None:
    """A wrapper around a batch of ours does not hide that an episode was lost."""
    inner = SerialVectorEnv([TickEnv, lambda: FaultyEnv("raise-step", at_step=2)], on_fault="restart")
    stepper = Stepper(RecordEpisodeStatistics(inner))
    rows = stepper.allocate(2)
    stepper.reset(0, [leaf[0] for leaf in rows])
    broken = [stepper.step(np.ones(2, int), [leaf[1] for leaf in rows]).broken for _ in range(3)]
    assert broken[0] is None
    assert broken[1] is not None
    assert broken[1].tolist() == [False, True]
    assert broken[2] is None
