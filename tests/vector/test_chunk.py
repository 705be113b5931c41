"""A run of environments: episodes, ends, faults and restarts, worked by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from shoal.core.errors import DtypeError, EnvRaised, NotFinite, ShapeError, TooManyRestarts
from shoal.core.seeds import episode_seed
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.chunk import Chunk, close_all
from shoal.vector.environments import strip
from shoal.vector.memory import Block, SharedMemory


def _chunk(*factories: Any, seeds: list[int] | None = None, **options: Any) -> Chunk:
    probe = TickEnv()
    block = Block(len(factories), probe.observation_space, probe.action_space)
    block.clear()
    block.indices[:] = range(len(factories))
    block.first_seeds[:] = seeds if seeds is not None else [-1] * len(factories)
    block.reset_mask[:] = True
    return Chunk(list(factories), 0, block, **options)


def _steps(chunk: Chunk, count: int) -> None:
    for _ in range(count):
        chunk.step()


def test_an_episode_by_hand() -> None:
    """Odd seeds terminate, even ones truncate; the final observation is true, the row shows the next episode."""
    chunk = _chunk(lambda: TickEnv(2), lambda: TickEnv(2), seeds=[1, 2])
    block = chunk.block
    chunk.reset()
    assert block.observations[0][:, 0].tolist() == [0, 0]
    block.actions[0][:] = [1, 0]
    chunk.step()
    assert block.observations[0][:, :2].tolist() == [[1, 1], [1, 0]]
    assert block.rewards.tolist() == [1, 0]
    assert not block.terminated.any()
    assert not block.truncated.any()
    chunk.step()
    assert block.terminated.tolist() == [True, False]
    assert block.truncated.tolist() == [False, True]
    assert block.final_observations[0][:, :2].tolist() == [[2, 1], [2, 0]]
    assert block.observations[0][:, 0].tolist() == [0, 0]
    assert block.episodes.tolist() == [1, 1]
    assert block.elapsed.tolist() == [0, 0]
    assert block.seeds.tolist() == [episode_seed(0, 0, 1), episode_seed(0, 1, 1)]


def test_time_limit_is_kept_when_its_wrapper_is_taken_off() -> None:
    """TimeLimit's truncation comes at its step, and terminated at the same step stays terminated too."""
    chunk = _chunk(lambda: TimeLimit(OrderEnforcing(TickEnv(50)), 3), lambda: TimeLimit(TickEnv(3), 3), seeds=[1, 1])
    chunk.reset()
    for _ in range(3):
        assert not chunk.block.truncated.any()
        chunk.step()
    assert chunk.block.truncated.tolist() == [True, True]
    assert chunk.block.terminated.tolist() == [False, True]


def test_strip_takes_only_the_outermost_known_wrappers() -> None:
    """Wrappers that a chunk stands in for come off; the smaller of two limits holds; any other wrapper stays."""
    inner = TickEnv()
    env, limit = strip(TimeLimit(OrderEnforcing(TimeLimit(PassiveEnvChecker(inner), 7)), 9))
    assert env is inner
    assert limit == 7
    kept = gym.wrappers.ClipReward(TimeLimit(inner, 5), 0, 1)
    assert strip(kept) == (kept, 2**62)


@pytest.mark.parametrize(
    ("kind", "error", "step"),
    [
        ("raise-step", EnvRaised, 3),
        ("nan-obs", NotFinite, 3),
        ("obs-scalar", ShapeError, 3),
        ("reward-str", DtypeError, 3),
    ],
)
def test_a_fault_names_environment_seed_and_step(kind: str, error: type[Any], step: int) -> None:
    """Steps are counted from 1 in the episode, whatever the fault."""
    chunk = _chunk(TickEnv, lambda: FaultyEnv(kind), seeds=[5, 6])
    chunk.reset()
    chunk.step(), chunk.step()
    with pytest.raises(error) as caught:
        chunk.step()
    assert (caught.value.env, caught.value.seed, caught.value.step) == (1, 6, step)


def test_a_reward_too_large_for_float32_is_not_finite() -> None:
    """1e300 would be infinite in the learner's buffer; 1e38 is not."""
    chunk = _chunk(lambda: FaultyEnv("reward-overflow", at_step=1))
    chunk.reset()
    with pytest.raises(NotFinite, match=r"reward .* 1e\+300"):
        chunk.step()
    big = _chunk(lambda: gym.wrappers.TransformReward(TickEnv(), lambda r: 3e38))
    big.reset()
    big.step()
    assert big.block.rewards[0] == 3e38


def test_restart_goes_on_with_the_next_seed() -> None:
    """A restarted environment is truncated and marked, and begins its next episode; its neighbour steps on."""
    chunk = _chunk(TickEnv, lambda: FaultyEnv("raise-step", at_step=2), restart=True)
    block = chunk.block
    chunk.reset()
    block.actions[0][:] = 1
    chunk.step()
    assert not block.restarted.any()
    chunk.step()
    assert block.restarted.tolist() == [False, True]
    assert block.truncated.tolist() == [False, True]
    assert block.rewards.tolist() == [1, 0]
    assert block.observations[0][:, 0].tolist() == [2, 0]
    assert block.episodes.tolist() == [0, 1]
    assert block.seeds[1] == episode_seed(0, 1, 1)
    (fault,) = chunk.faults
    assert fault.aftermath == f"rebuilt, goes on with episode 1, seed {block.seeds[1]}"
    chunk.step()
    assert block.restarted.tolist() == [False, False]


@pytest.mark.parametrize("kind", ["raise-step", "nan-obs", "raise-init", "raise-reset", "nan-reset"])
def test_a_crash_loop_ends(kind: str) -> None:
    """An environment that fails again as soon as it is rebuilt stops with the count, in bounded time."""

    class NanAtReset(TickEnv):
        def reset(self, **kwargs: Any) -> Any:
            obs, info = super().reset(**kwargs)
            return obs * np.nan, info

    built: list[int] = []

    def make() -> gym.Env[Any, Any]:
        built.append(1)
        if len(built) == 1:
            return FaultyEnv("raise-step", at_step=1)
        return NanAtReset() if kind == "nan-reset" else FaultyEnv(kind, at_step=1)

    chunk = _chunk(make, restart=True, max_restarts=3)
    chunk.reset()
    with pytest.raises(TooManyRestarts, match="4 restarts in one step, 3 are allowed"):
        _steps(chunk, 10)
    assert len(built) <= 5


def test_a_fault_in_the_last_step_is_a_restart_and_no_end() -> None:
    """An episode that ends in the very step that breaks is broken, and the next one begins once, not twice."""

    class BadInfo(TickEnv):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, truncated, _ = super().step(action)
            return obs, reward, terminated, truncated, [1] if terminated else {}

    chunk = _chunk(lambda: BadInfo(1), seeds=[1], restart=True)
    chunk.reset()
    chunk.step()
    assert chunk.block.restarted.tolist() == [True]
    assert chunk.block.terminated.tolist() == [False]
    assert chunk.block.episodes.tolist() == [1]


def test_environments_of_different_spaces_are_refused() -> None:
    """The second environment must have the spaces of the first; those built before are closed."""
    closed: list[int] = []

    class Closing(TickEnv):
        def close(self) -> None:
            closed.append(1)

    with pytest.raises(EnvRaised, match="needs the same spaces") as caught:
        _chunk(Closing, lambda: TickEnv(whole=True))
    assert caught.value.env == 1
    assert closed == [1]


def test_every_environment_is_closed_even_if_one_fails_to() -> None:
    """The first failure is reported when all have been closed."""
    closed: list[int] = []

    class Closing(TickEnv):
        def close(self) -> None:
            closed.append(1)

    chunk = _chunk(lambda: FaultyEnv("raise-close"), Closing)
    fault = close_all([chunk])
    assert fault is not None
    assert (fault.env, fault.kind) == (0, "ValueError")
    assert closed == [1]


def test_sys_exit_and_unprintable_errors_are_faults() -> None:
    """An environment that calls sys.exit, or raises what cannot be printed, breaks only itself."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    class Odd(TickEnv):
        def step(self, action: Any) -> Any:
            raise Unprintable

    for factory, kind in ((lambda: FaultyEnv("sys-exit", at_step=1), "SystemExit"), (Odd, "Unprintable")):
        chunk = _chunk(factory)
        chunk.reset()
        with pytest.raises(EnvRaised) as caught:
            chunk.step()
        assert caught.value.kind == kind


def test_replay_follows_a_deterministic_environment() -> None:
    """Seed and actions lead back to the same observation; an episode that ends too early is reported."""
    chunk = _chunk(lambda: TickEnv(5))
    chunk.reset()
    chunk.block.actions[0][:] = 1
    chunk.step(), chunk.step()
    reached = chunk.block.observations[0].copy()
    again = _chunk(lambda: TickEnv(5))
    assert again.replay(0, 0, [np.int64(1), np.int64(1)])
    assert np.array_equal(again.block.observations[0], reached)
    assert again.block.elapsed[0] == 2
    shorter = _chunk(lambda: TickEnv(2))
    assert not shorter.replay(0, 0, [np.int64(1)] * 3)
    assert shorter.block.episodes[0] == 1


def test_shared_memory_leaves_no_descriptor() -> None:
    """The block's memory has room for all its arrays, and its descriptors go with it."""
    import os

    before = len(os.listdir("/proc/self/fd"))
    probe = TickEnv()
    memory = SharedMemory(Block.size(3, probe.observation_space, probe.action_space, 2))
    block = Block(3, probe.observation_space, probe.action_space, 2, memory)
    block.closing[0] = True  # the last array: it lies within the mapping
    assert not block.restarted.any()
    memory.close()
    memory.close()
    del block, memory
    assert len(os.listdir("/proc/self/fd")) == before
