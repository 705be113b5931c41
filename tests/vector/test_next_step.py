"""NEXT_STEP on every backend: an episode that has ended begins anew in the step after."""

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

import shoal
from shoal.environments.cartpole import CartPole
from shoal.runs import checkpoint
from shoal.testing.contract import check_vector_env
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.make import make_vec

OPTIONS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "serial, halves": {"backend": "serial", "slices": "double"},
    "process": {"backend": "process", "workers": 2},
    "process, halves": {"backend": "process", "workers": 2, "slices": "double"},
    "process, by readiness": {"backend": "process", "workers": 2, "slices": "ready"},
    "split": {"backend": "split", "workers": 2},
}
LOCKSTEP = [name for name, options in OPTIONS.items() if "slices" not in options]


def make(backend: str, env: Any = Drill, num_envs: int = 4, **options: Any) -> Any:
    """A batch with NEXT_STEP."""
    if backend == "compiled":
        return make_vec(CartPole(), num_envs, autoreset_mode="next_step", **options)
    return make_vec(env, num_envs, autoreset_mode="next_step", **OPTIONS[backend], **options)


def play(env: Any, actions: Any) -> list[tuple[Any, ...]]:
    """Steps, and what came of each."""
    return [env.step(row)[:4] for row in actions]


def same(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> bool:
    """Equal to the bit."""
    return len(a) == len(b) and all(
        np.array_equal(x, y) for one, other in zip(a, b, strict=True) for x, y in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("backend", [*LOCKSTEP, "serial, halves"])
def test_contract(backend: str) -> None:
    """What every vector environment must keep, episode by episode against the single environment."""
    report = check_vector_env(lambda: make(backend), reference=Drill)
    assert report.seen == {"terminated", "truncated"}


def test_contract_compiled() -> None:
    """The same of a compiled environment."""
    report = check_vector_env(lambda: make("compiled"), steps=200)
    assert "terminated" in report.seen


@pytest.mark.parametrize("backend", ["serial", "process", "split"])
def test_by_hand(backend: str) -> None:
    """Episodes of 3 steps: the final observation comes with the end, then a step with reward 0 that only resets."""
    with closing(make(backend, lambda: TickEnv(length=3), 2)) as env:
        assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
        env.reset(seed=0)
        clocks, rewards, ended = [], [], []
        for _ in range(8):
            obs, reward, terminated, truncated, infos = env.step(np.ones(2, int))
            clocks.append(int(obs[0, 0]))
            rewards.append(float(reward[0]))
            ended.append(bool(terminated[0] or truncated[0]))
            assert env.over[0] == ended[-1]
            assert not {"final_obs", "final_info"} & set(infos)
        assert clocks == [1, 2, 3, 0, 1, 2, 3, 0]
        assert rewards == [1, 1, 1, 0, 1, 1, 1, 0]
        assert ended == [False, False, True, False, False, False, True, False]


def test_infos_equal_gymnasium() -> None:
    """An end's infos come under their own names, and the next step brings those of the reset."""
    theirs = SyncVectorEnv([Drill] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    with closing(make("serial", num_envs=3)) as ours, closing(theirs):
        seeds = [5, 6, 7]
        ours.reset(seed=seeds), theirs.reset(seed=seeds)
        first = np.ones(3, bool)
        for t in range(14):
            (*_, got), (_, _, terminated, truncated, expected) = (e.step(np.full(3, t % 4)) for e in (ours, theirs))
            for key in ("score", "count", "name"):
                mask = expected.get(f"_{key}", np.zeros(3, bool)) & first
                assert np.array_equal(got.get(f"_{key}", np.zeros(3, bool)) & first, mask)
                assert all(got[key][i] == expected[key][i] for i in np.flatnonzero(mask))
            first &= ~(terminated | truncated)  # Gymnasium seeds no episode but the first
        assert not first.any()


@pytest.mark.parametrize("backend", [name for name in OPTIONS if "readiness" not in name and name != "serial"])
def test_same_bits_on_every_backend(backend: str) -> None:
    """Whatever the backend and the slices, also after a masked reset of one that is over."""
    actions = np.random.default_rng(3).integers(0, 4, (40, 4))

    def run(name: str) -> list[tuple[Any, ...]]:
        with closing(make(name)) as env:
            env.reset(seed=11)
            kept = play(env, actions[:20])
            while not env.over.any():
                kept += play(env, actions[:1])
            mask = env.over.copy()
            kept.append((env.reset(options={"reset_mask": mask})[0],))
            assert not env.over.any()
            return kept + play(env, actions[20:])

    assert same(run(backend), run("serial"))


@pytest.mark.parametrize("backend", ["serial", "compiled"])
def test_episodes_are_those_of_same_step(backend: str) -> None:
    """Both modes play the same episodes: only the steps that reset come in between."""

    def episodes(mode: str) -> list[list[float]]:
        env_or_class: Any = CartPole() if backend == "compiled" else Drill
        with closing(make_vec(env_or_class, 1, autoreset_mode=mode, backend=backend)) as env:
            env.reset(seed=2)
            found: list[list[float]] = [[]]
            over = False
            for _ in range(400):
                age = len(found[-1])
                _, reward, terminated, truncated, _ = env.step(np.array([age % 2]))
                if mode == "same_step" or not over:
                    found[-1].append(float(reward[0]))
                over = bool(terminated[0] or truncated[0])
                if over:
                    found.append([])
            return found[:10]

    assert episodes("next_step") == episodes("same_step")


@pytest.mark.parametrize("backend", [*LOCKSTEP, "compiled"])
def test_state_comes_back_at_every_moment(backend: str) -> None:
    """A saved batch goes on to the same bits, also when some environments are over."""
    actions = np.random.default_rng(4).integers(0, 2, (90, 4))
    with closing(make(backend)) as env, closing(make(backend)) as other:
        env.reset(seed=5)
        seen_over = 0
        for t in range(60):
            env.step(actions[t])
            if not env.over.any() and t % 15:
                continue
            seen_over += int(env.over.sum())
            state = env.get_state()
            assert not other.set_state(state)
            assert np.array_equal(other.over, env.over)
            assert same(play(env, actions[t + 1 : t + 9]), play(other, actions[t + 1 : t + 9]))
            env.set_state(state)
        assert seen_over > 3


def test_a_state_of_the_other_mode_is_refused() -> None:
    """It would step an episode that is over, or forget that it is."""
    with closing(make("serial")) as there, closing(make_vec(Drill, 4, backend="serial")) as here:
        there.reset(seed=0), here.reset(seed=0)
        for a, b, text in ((there, here, "next_step, this one has same_step"), (here, there, "same_step, this one")):
            with pytest.raises(ValueError, match=text):
                b.set_state(a.get_state())


@pytest.mark.parametrize("backend", LOCKSTEP)
@pytest.mark.parametrize("kind", ["raise-step", "nan-obs", "raise-reset"])
def test_a_restart_ends_the_episode(backend: str, kind: str, tmp_path: Path) -> None:
    """A rebuilt environment is truncated and told as restarted; the step after begins an episode like any other."""
    at = 2 if kind == "raise-reset" else 3

    def factory() -> Any:
        return FaultyEnv(kind, TickEnv(length=4), at_step=at, once=tmp_path / "once")

    with closing(make(backend, factory, 1 if backend == "serial" else 2, on_fault="restart")) as env:
        env.reset(seed=0)
        broken = []
        for _ in range(12):
            over = env.over
            obs, reward, terminated, truncated, _ = env.step(np.ones(env.num_envs, int))
            assert np.isfinite(obs).all()
            assert not any(array[over].any() for array in (obs[:, 0], reward, terminated))
            assert np.array_equal(truncated | terminated, env.over)
            assert (obs[env.restarted, 0] == 0).all()
            broken.append(int(env.restarted.sum()))
        assert sum(broken) == 1
        assert len(env.faults) == 1


def test_a_dead_workers_environments_are_over(tmp_path: Path) -> None:
    """All episodes of a worker that was killed are broken, and the next step begins new ones."""
    factories = [lambda: FaultyEnv("kill", TickEnv(length=9), at_step=3, once=tmp_path / "once")] + [TickEnv] * 3
    env = make_vec(factories, 4, backend="process", workers=2, autoreset_mode="next_step", on_fault="restart")
    with closing(env):
        env.reset(seed=0)
        for t in range(1, 6):
            obs, *_ = env.step(np.ones(4, int))
            assert env.over.tolist() == [t == 3, t == 3, False, False]
            assert obs[:2, 0].tolist() == {1: [1, 1], 2: [2, 2], 3: [0, 0], 4: [0, 0], 5: [1, 1]}[t]
            assert obs[2:, 0].tolist() == [t, t]


# -- training ------------------------------------------------------------------------------------


SMALL: dict[str, Any] = {
    "rollout_steps": 16, "minibatch_size": 32, "hidden": (8,), "seed": 3, "torch_threads": 1, "target_return": None,
    "steps": None, "update_epochs": 2, "save_interval": 1, "lr_schedule": "constant",
}  # fmt: skip


def trained(folder: Path, env: Any, epochs: int, **options: Any) -> tuple[dict[str, np.ndarray], Any]:
    """What a little training on a batch of the caller's leaves on disk, and its result."""
    train: Any = shoal.train
    options = options if "resume" in options else {**SMALL, "name": folder.name, **options}
    result = train(env=env, epochs=epochs, runs_dir=str(folder.parent), stream=io.StringIO(), **options)
    return checkpoint.load_latest(folder / "checkpoints").tensors, result


def unequal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    """Names of what differs."""
    return [name for name in sorted(a.keys() | b.keys()) if name not in b or not np.array_equal(a[name], b.get(name))]


@pytest.mark.parametrize("backend", [*OPTIONS, "compiled"])
def test_training_goes_on_to_the_same_bits(backend: str, tmp_path: Path) -> None:
    """A run on a NEXT_STEP batch equals the one that was resumed at half, and (in lock-step) the one on `serial`."""
    env: Any = functools.partial(Drill, infos=False)
    whole, result = trained(tmp_path / "whole", make(backend, env, 5), 6)
    assert result.episodes > 10 or backend == "compiled"
    if "readiness" in backend:
        return  # batches form in the order in which workers finish
    trained(tmp_path / "parts", make(backend, env, 5), 3)
    parts, _ = trained(tmp_path / "parts", make(backend, env, 5), 6, resume=str(tmp_path / "parts"))
    assert not unequal(whole, parts)
    events = (tmp_path / "parts" / "events.jsonl").read_text()
    assert "inexact" not in events
    if backend in LOCKSTEP:
        serial, _ = trained(tmp_path / "serial", make("serial", env, 5), 6)
        assert not unequal(whole, serial)


def test_training_sees_the_same_episodes_as_in_same_step(tmp_path: Path) -> None:
    """With a policy that cannot choose, both modes report the same returns and lengths of the first 20 episodes."""

    def tracker(mode: str) -> tuple[Any, Any]:
        env = make_vec(One, 1, backend="serial", autoreset_mode=mode)
        tensors, _ = trained(tmp_path / mode, env, 20)
        return tensors["tracker.recent_returns"][:20].tolist(), tensors["tracker.recent_lengths"][:20].tolist()

    assert tracker("next_step") == tracker("same_step")


class One(Drill):
    """A drill with one action."""

    def __init__(self) -> None:
        super().__init__(infos=False)
        self.action_space = gym.spaces.Discrete(1)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["disabled", AutoresetMode.DISABLED, "Disabled", "sometimes"])
def test_other_modes_are_refused(mode: Any) -> None:
    """With what to do instead."""
    with pytest.raises(ValueError, match="expected autoreset_mode as same_step or next_step"):
        make_vec(Drill, 2, backend="serial", autoreset_mode=mode)


@pytest.mark.parametrize("mode", ["next_step", "NEXT_STEP", AutoresetMode.NEXT_STEP, AutoresetMode.NEXT_STEP.value])
def test_names_of_the_mode(mode: Any) -> None:
    """Gymnasium's names will do."""
    with closing(make_vec(Drill, 2, backend="serial", autoreset_mode=mode)) as env:
        assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP


def test_environments_that_count_every_step_are_refused() -> None:
    """rides and cage2 under an order have SAME_STEP only, and say so; cage2 without one has both."""
    with pytest.raises(ValueError, match="same_step only"):
        make_vec("shoal/Rides-v0", 2, autoreset_mode="next_step")
    order = {"order": "user,enterprise,op_server,op_host"}
    with pytest.raises(ValueError, match="same_step only"):
        make_vec("shoal/Cage2-v0", 2, autoreset_mode="next_step", env_kwargs=order)
    with closing(make_vec("shoal/Cage2-v0", 2, autoreset_mode="next_step")) as env:
        assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
