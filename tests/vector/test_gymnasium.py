"""What Gymnasium 1.4's own tests of vector environments ask for, on every backend; what is refused is in
docs/environments.md. And its vector wrappers."""

from __future__ import annotations

import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from drill import ACTIONS, OBSERVATIONS, Drill
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import vector as wrappers

from shoal.core.errors import EnvRaised
from shoal.environments.cartpole import CartPole
from shoal.testing.faults import FaultyEnv, TickEnv
from shoal.vector.make import make_vec

BACKENDS = {
    "serial": {"backend": "serial"},
    "process": {"backend": "process", "workers": 2},
    "split": {"backend": "split", "workers": 2},
}
OPTIONS = {**BACKENDS, "ray": {"backend": "ray", "workers": 2}}  # asked in tests/cluster/test_ray_gymnasium.py
MODES = ["same_step", "next_step"]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_mode = pytest.mark.parametrize("mode", MODES)


def make(env: Any, num_envs: int, backend: str, mode: str = "same_step", **options: Any) -> Any:
    """A batch on a backend."""
    return make_vec(env, num_envs, autoreset_mode=mode, **OPTIONS[backend], **options)


class Count(gym.Env[Any, Any]):
    """Counts to `max_count`; the reward is the action."""

    observation_space = gym.spaces.Discrete(9)
    action_space = gym.spaces.Discrete(5)
    max_count = 3
    with_infos = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin at 0."""
        super().reset(seed=seed)
        self.count = 0
        return 0, {"begun": True} if self.with_infos else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One more."""
        self.count += 1
        infos = {"count": self.count} if self.with_infos else {}
        return self.count, float(action), self.count == self.max_count, False, infos


# -- autoreset, as in tests/vector/test_autoreset_mode.py ---------------------------------------------


@each_backend
def test_next_step(backend: str) -> None:
    """By hand: the end comes with the final observation, the step after only resets."""
    with closing(make(Count, 3, backend, "next_step")) as envs:
        envs.set_attr("max_count", [2, 3, 3])
        obs, infos = envs.reset()
        assert (obs.tolist(), infos) == ([0, 0, 0], {})
        expected = [
            ([1, 1, 1], [1, 2, 3], [False, False, False]),
            ([2, 2, 2], [1, 2, 3], [True, False, False]),
            ([0, 3, 3], [0, 2, 3], [False, True, True]),
            ([1, 0, 0], [1, 0, 0], [False, False, False]),
        ]
        for step in expected:
            obs, rewards, terminated, truncated, infos = envs.step([1, 2, 3])
            assert (obs.tolist(), rewards.tolist(), terminated.tolist()) == step
            assert not truncated.any()
            assert infos == {}


@each_backend
def test_same_step(backend: str) -> None:
    """By hand: the end comes with the next episode's first observation, and both finals in the infos (E8a)."""
    with closing(make(Count, 3, backend)) as envs:
        envs.set_attr("max_count", [2, 3, 3])
        envs.reset()
        expected = [
            ([1, 1, 1], [False] * 3, None),
            ([0, 2, 2], [True, False, False], [2, None, None]),
            ([1, 0, 0], [False, True, True], [None, 3, 3]),
            ([0, 1, 1], [True, False, False], [2, None, None]),
        ]
        for seen, ended, final in expected:
            obs, rewards, terminated, truncated, infos = envs.step([1, 2, 3])
            assert (obs.tolist(), rewards.tolist(), terminated.tolist()) == (seen, [1, 2, 3], ended)
            assert not truncated.any()
            if final is None:
                assert infos == {}
            else:
                assert set(infos) == {"final_obs", "_final_obs", "final_info", "_final_info"}
                assert infos["final_obs"].tolist() == final
                assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == ended
                assert infos["final_info"] == {}


def test_final_info_of_a_compiled_environment_too() -> None:
    """Whatever the backend, an end is found by `"final_info" in infos` (E8a)."""
    with closing(make_vec(CartPole(), 3)) as envs:
        envs.reset(seed=0)
        ends = 0
        for _ in range(60):
            _, _, terminated, _, infos = envs.step(np.zeros(3, int))
            assert ("final_info" in infos) == terminated.any()
            ends += terminated.sum()
        assert ends > 3


@each_backend
def test_infos_of_an_end_and_of_a_reset(backend: str) -> None:
    """In the form of Gymnasium, in both modes."""
    for mode in MODES:
        with closing(make(Count, 2, backend, mode)) as envs:
            envs.set_attr("with_infos", True)
            envs.set_attr("max_count", [1, 9])
            _, infos = envs.reset()
            assert infos["begun"].tolist() == infos["_begun"].tolist() == [True, True]
            infos = envs.step([0, 0])[4]
            if mode == "same_step":
                assert infos["final_info"]["count"].tolist() == [1, 0]
                assert infos["_begun"].tolist() == [True, False]
                assert infos["_count"].tolist() == [False, True]
            else:
                assert infos["count"].tolist() == [1, 1]
                infos = envs.step([0, 0])[4]
                assert infos["_begun"].tolist() == [True, False]
                assert infos["_count"].tolist() == [False, True]


# -- one face, as in test_vector_env.py and test_sync_vector_env.py ------------------------------------


@each_mode
@pytest.mark.parametrize("backend", ["process", "split"])
def test_backends_are_equal(backend: str, mode: str) -> None:
    """Spaces, observations, rewards, flags and infos."""
    with closing(make(Drill, 4, "serial", mode)) as ours, closing(make(Drill, 4, backend, mode)) as other:
        for name in ("num_envs", "observation_space", "single_observation_space", "action_space", "metadata"):
            assert getattr(ours, name) == getattr(other, name)
        pairs = [(ours.reset(seed=0), other.reset(seed=0))]
        ours.action_space.seed(1)
        for _ in range(40):
            actions = ours.action_space.sample()
            pairs.append((ours.step(actions), other.step(actions)))
        assert all(data_equivalence(a, b) for a, b in pairs)


@each_mode
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_spaces(observation: str, action: str, mode: str) -> None:
    """Every kind of space that can be laid out: what comes is in the batched space, finals in the single one."""
    with closing(make(lambda: Drill(observation, action), 3, "serial", mode)) as envs:
        obs, _ = envs.reset(seed=0)
        for _ in range(15):
            assert obs in envs.observation_space
            obs, _, terminated, truncated, infos = envs.step(envs.action_space.sample())
            if mode == "same_step":
                for i in np.flatnonzero(terminated | truncated):
                    assert infos["final_obs"][i] in envs.single_observation_space


@each_backend
def test_actions_as_a_list_or_of_the_single_space(backend: str) -> None:
    """What iterates as actions is taken."""
    with closing(make("FrozenLake-v1", 4, backend)) as envs:
        envs.reset(seed=0)
        obs, rewards, terminated, truncated, _ = envs.step([envs.single_action_space.sample() for _ in range(4)])
        assert (obs.shape, obs.dtype) == ((4,), envs.observation_space.dtype)
        assert rewards.dtype == np.float64
        assert terminated.dtype == truncated.dtype == np.bool_


@each_backend
def test_different_spaces_are_refused(backend: str) -> None:
    """All environments of a batch have the same spaces."""
    makers = [lambda: gym.make("CartPole-v1"), lambda: gym.make("FrozenLake-v1")]
    with pytest.raises(EnvRaised, match="needs the same spaces"):
        make(makers, 2, backend)


@each_backend
def test_the_environments_own_metadata_is_left_alone(backend: str) -> None:
    """The mode is written into a copy."""
    with closing(make(Drill, 2, backend, "next_step")) as envs:
        assert envs.metadata["made_by"] == "drill"
    assert "autoreset_mode" not in Drill.metadata


# -- seeds, as in test_random_seeding_basics ---------------------------------------------------------------


@each_backend
def test_np_random_seed(backend: str) -> None:
    """Of each environment: a list is taken as it is, an integer begins a stream for each (E8b)."""
    with closing(make(Count, 3, backend)) as envs:
        envs.reset(seed=[4, 5, 6])
        assert envs.np_random_seed == (4, 5, 6)
        envs.reset(seed=42)
        first = envs.np_random_seed
        assert len(set(first)) == 3
        envs.reset(seed=7)
        envs.reset(seed=42)
        assert envs.np_random_seed == first
        drawn = [rng.random() for rng in envs.np_random]
        assert drawn == [np.random.default_rng(seed).random() for seed in first]


def test_np_random_seed_of_a_compiled_batch() -> None:
    """The seeds that it was given; None before that."""
    with closing(make_vec(CartPole(), 2)) as envs:
        assert envs.np_random_seed == (None, None)
        envs.reset(seed=[4, 5])
        assert envs.np_random_seed == (4, 5)


# -- resets by mask, as in test_partial_reset ----------------------------------------------------------------


def masked(name: str, mode: str) -> Any:
    """A batch of three, compiled ones too."""
    return make_vec(CartPole(), 3, autoreset_mode=mode) if name == "compiled" else make("CartPole-v1", 3, name, mode)


@each_mode
@pytest.mark.parametrize("backend", [*BACKENDS, "compiled"])
def test_partial_reset(backend: str, mode: str) -> None:
    """Those in the mask begin anew, by their seed if they are given one; the others stay."""
    with closing(masked(backend, mode)) as envs:
        initial, _ = envs.reset(seed=[0, 1, 2])
        envs.action_space.seed(123)
        for _ in range(3):
            stepped, *_ = envs.step(envs.action_space.sample())
        mask = np.array([True, True, False])
        obs, _ = envs.reset(seed=[0, 1, 0], options={"reset_mask": mask})
        assert np.array_equal(obs[:2], initial[:2])
        assert np.array_equal(obs[2], stepped[2])
        again, _ = envs.reset(seed=[None, 1, None], options={"reset_mask": mask})
        assert not np.array_equal(again[0], initial[0])  # its next episode
        assert np.array_equal(again[1], initial[1])


@pytest.mark.parametrize("backend", [*BACKENDS, "compiled"])
def test_partial_reset_failures(backend: str) -> None:
    """One meaning of a mask everywhere: bool[N] with a True, after everything was reset once (B10)."""
    with closing(masked(backend, "same_step")) as envs:
        with pytest.raises(gym.error.ResetNeeded):
            envs.reset(options={"reset_mask": np.array([True, True, False])})
        before, _ = envs.reset(options={"reset_mask": np.array([True, True, True])})
        for wrong in ([True], [True, True, False, False], [[True] * 3], [1, 1, 0], [1.0, 1.0, 0.0], [False] * 3):
            with pytest.raises(ValueError, match=r'expected options\["reset_mask"\]'):
                envs.reset(options={"reset_mask": np.array(wrong)})
        with pytest.raises(ValueError, match=r'expected options\["reset_mask"\]'):
            envs.reset(options={"reset_mask": [True, False, True]})
        after, *_ = envs.step(np.zeros(3, int))
        assert not np.array_equal(after, before)


# -- attributes and pictures, as in test_call, test_set_attr, test_render -------------------------------------


@each_backend
def test_call_and_attributes(backend: str) -> None:
    """One value each, in the order of the environments."""
    with closing(make("CartPole-v1", 4, backend)) as envs:
        envs.reset(seed=0)
        assert envs.call("gravity") == envs.get_attr("gravity") == (9.8,) * 4
        envs.set_attr("gravity", [9.81, 3.72, 8.87, 1.62])
        assert envs.get_attr("gravity") == (9.81, 3.72, 8.87, 1.62)
        envs.set_attr("gravity", 5.0)
        assert envs.get_attr("gravity") == (5.0,) * 4
        with pytest.raises(ValueError, match="one value for each of 4 environments, got 2"):
            envs.set_attr("gravity", [1.0, 2.0])
        with pytest.raises(EnvRaised, match=r"AttributeError in call\('nothing_of_that_name'\)"):
            envs.get_attr("nothing_of_that_name")
        envs.step(np.zeros(4, int))  # a mistake of the caller's ends nothing


@each_backend
def test_what_is_set_reaches_the_steps(backend: str) -> None:
    """Also what a chunk does itself: the time limit. And an environment that cannot take it says so."""

    class Stiff(TickEnv):
        @property
        def stiff(self) -> int:
            return 1

    with closing(make("CartPole-v1", 3, backend)) as envs:
        envs.reset(seed=0)
        envs.set_attr("_max_episode_steps", [2, 3, 500])
        ends = [envs.step(np.array([t % 2] * 3))[3].tolist() for t in range(3)]
        assert ends == [[False] * 3, [True, False, False], [False, True, False]]
    with closing(make(Stiff, 2, backend)) as envs:
        envs.reset(seed=0)
        with pytest.raises(EnvRaised, match=r"AttributeError in set_attr\('stiff'\)"):
            envs.set_attr("stiff", 2)
        envs.step(np.zeros(2, int))


@pytest.mark.parametrize("kind", ["raise-step", "kill"])
@each_backend
def test_a_rebuilt_environment_gets_what_was_set(backend: str, kind: str, tmp_path: Path) -> None:
    """Else a curriculum would fall back, silently, for the one that broke."""
    if kind == "kill" and backend == "serial":
        pytest.skip("an environment that kills its process takes the caller with it")

    def broken() -> Any:
        return FaultyEnv(kind, TickEnv(), at_step=2, once=tmp_path / "once")

    with closing(make([TickEnv, TickEnv, TickEnv, broken], 4, backend, on_fault="restart")) as envs:
        envs.reset(seed=0)
        envs.set_attr("level", [1, 2, 3, 4])
        for _ in range(3):
            envs.step(np.zeros(4, int))
        assert len(envs.faults) == 1
        assert envs.get_attr("level") == (1, 2, 3, 4)


def test_attributes_of_a_compiled_batch() -> None:
    """Params and the time limit can be set, for all alike; the rest is machine code and says so."""
    with closing(make_vec("shoal/GridWorld-v0", 3)) as envs:
        envs.reset(seed=0)
        envs.set_attr("slip", 0.75)
        assert envs.get_attr("slip") == (0.75,) * 3
        envs.set_attr("max_episode_steps", 2)
        envs.step(np.zeros(3, int))
        assert envs.step(np.zeros(3, int))[3].all()
        with pytest.raises(ValueError, match="shared by all environments"):
            envs.set_attr("slip", [0.1, 0.2, 0.3])
        with pytest.raises(ValueError, match="only max_episode_steps, slip can be set"):
            envs.set_attr("colour", 1)
        assert envs.call("name") == ("GridWorld",) * 3


def test_a_param_that_is_set_is_what_steps() -> None:
    """From the next step on, as if the batch had been made with it."""
    runs = []
    for made, told in ((0.9, None), (0.0, 0.9)):
        with closing(make_vec("shoal/GridWorld-v0", 64, env_kwargs={"slip": made})) as envs:
            envs.reset(seed=3)
            if told is not None:
                envs.set_attr("slip", told)
            runs.append([envs.step(np.ones(64, int))[1] for _ in range(30)])
    assert np.array_equal(runs[0], runs[1])


@each_backend
def test_render(backend: str) -> None:
    """`render_mode` by env_kwargs; one picture each, from wherever the environment lives."""
    pytest.importorskip("pygame")
    with closing(make("CartPole-v1", 3, backend, env_kwargs={"render_mode": "rgb_array"})) as envs:
        assert envs.render_mode == "rgb_array"
        envs.reset(seed=0)
        frames = envs.render()
        assert isinstance(frames, tuple)
        assert [frame.shape for frame in frames] == [frames[0].shape] * 3
        assert frames[0].dtype == np.uint8
        assert not np.array_equal(frames[0], frames[1])
    with closing(make("CartPole-v1", 2, backend)) as envs:
        assert envs.render_mode is None


# -- Gymnasium's vector wrappers ---------------------------------------------------------------------------------

OF_FLOATS = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "TransformObservation": lambda env: wrappers.TransformObservation(env, lambda obs: obs * 2),
    "VectorizeTransformObservation": lambda env: wrappers.VectorizeTransformObservation(
        env, gym.wrappers.ReshapeObservation, shape=(2, 2)
    ),
    "RescaleObservation": lambda env: wrappers.RescaleObservation(env, np.float32(0), np.float32(1)),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float64),
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (1, 4)),
    "FlattenObservation": wrappers.FlattenObservation,
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: reward * 2),
    "ClipReward": lambda env: wrappers.ClipReward(env, 0.0, 0.5),
    "TransformAction": lambda env: wrappers.TransformAction(env, lambda action: action),
    "DictInfoToList": wrappers.DictInfoToList,
}


class Bounded(TickEnv):
    """A TickEnv whose Box has bounds."""

    def __init__(self) -> None:
        super().__init__(length=5)
        self.observation_space = gym.spaces.Box(-1000.0, 1000.0, (4,), np.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OF_FLOATS)
def test_wrappers_give_what_they_give_around_gymnasium(name: str, backend: str) -> None:
    """Wrapped, a NEXT_STEP batch of ours goes through the first episode like Gymnasium's own."""
    theirs = SyncVectorEnv([Bounded] * 3, autoreset_mode=AutoresetMode.NEXT_STEP)
    with (
        closing(OF_FLOATS[name](theirs)) as expected,
        closing(OF_FLOATS[name](make(Bounded, 3, backend, "next_step"))) as got,
    ):
        assert got.observation_space == expected.observation_space
        assert data_equivalence(got.reset(seed=[1, 2, 3])[0], expected.reset(seed=[1, 2, 3])[0])
        for _ in range(5):
            ours, wanted = got.step(np.ones(3, int)), expected.step(np.ones(3, int))
            assert all(np.array_equal(a, b) for a, b in zip(ours[:4], wanted[:4], strict=True))
            if isinstance(wanted[4], dict):
                assert set(ours[4]) == set(wanted[4])
        assert (ours[2] | ours[3]).all()
        assert not got.step(np.ones(3, int))[1].any() or name == "NormalizeReward"


# CartPole's bounds are not finite: there is nothing to rescale by.
AROUND_COMPILED = [name for name in OF_FLOATS if name != "RescaleObservation"]


def as_wrapped(name: str, got: tuple[Any, Any, Any], bare: Any) -> bool:
    """Whether (observations, rewards, infos) are what a wrapper makes of a step, where that is a line to say."""
    obs, rewards, infos = got
    expected = {
        "TransformObservation": lambda: np.array_equal(obs, bare[0] * 2),
        "ReshapeObservation": lambda: np.array_equal(obs[:, 0], bare[0]),
        "DtypeObservation": lambda: obs.dtype == np.float64 and np.array_equal(obs, bare[0]),
        "TransformReward": lambda: np.array_equal(rewards, bare[1] * 2),
        "ClipReward": lambda: rewards.max() <= 0.5,
        "DictInfoToList": lambda: isinstance(infos, list) and len(infos) == 3,
    }
    return bool(expected.get(name, lambda: True)())


@pytest.mark.parametrize("name", AROUND_COMPILED)
def test_wrappers_around_a_compiled_batch(name: str) -> None:
    """Wrapped, a compiled batch goes the way that the same batch goes without, as the wrapper has it."""
    wrap = OF_FLOATS[name]
    with (
        closing(wrap(make_vec(CartPole(), 3, autoreset_mode="next_step"))) as envs,
        closing(make_vec(CartPole(), 3, autoreset_mode="next_step")) as plain,
    ):
        first, _ = envs.reset(seed=0)
        plain.reset(seed=0)
        assert first in envs.observation_space
        ends = 0
        for _ in range(30):
            obs, rewards, terminated, truncated, infos = envs.step(np.zeros(3, int))
            bare = plain.step(np.zeros(3, int))
            assert np.isfinite(obs).all()
            assert obs.shape == envs.observation_space.shape
            assert np.array_equal(terminated, bare[2])
            assert np.array_equal(truncated, bare[3])
            ends += int(terminated.sum())
            assert as_wrapped(name, (obs, rewards, infos), bare)
        assert ends > 3


@pytest.mark.parametrize("name", ["FilterObservation", "FlattenObservation"])
def test_wrappers_of_dicts_around_a_compiled_batch(name: str) -> None:
    """GridWorld has a mask beside its observation."""
    batch = make_vec("shoal/GridWorld-v0", 3, autoreset_mode="next_step")
    parts = dict(batch.single_observation_space.spaces)
    kept = next(part for part in parts if part != "action_mask")
    filtered = name == "FilterObservation"
    wrapped = wrappers.FilterObservation(batch, [kept]) if filtered else wrappers.FlattenObservation(batch)
    with closing(wrapped) as envs:
        obs, _ = envs.reset(seed=0)
        assert list(obs) == [kept] if filtered else obs.shape == (3, sum(map(gym.spaces.flatdim, parts.values())))
        obs, *_ = envs.step(np.ones(3, int))
        assert obs in envs.observation_space


@each_backend
@pytest.mark.parametrize("name", ["FilterObservation", "FlattenObservation"])
def test_wrappers_of_dicts(name: str, backend: str) -> None:
    """Parts of a Dict observation."""
    batch = make(lambda: Drill("masked"), 2, backend, "next_step")
    filtered = name == "FilterObservation"
    wrapped = wrappers.FilterObservation(batch, ["obs"]) if filtered else wrappers.FlattenObservation(batch)
    with closing(wrapped) as envs:
        obs, _ = envs.reset(seed=0)
        assert list(obs) == ["obs"] if filtered else obs.shape == (2, 7)
        obs, *_ = envs.step(np.ones(2, int))
        assert obs in envs.observation_space


@each_backend
@pytest.mark.parametrize("name", ["ResizeObservation", "GrayscaleObservation"])
def test_wrappers_of_images(name: str, backend: str) -> None:
    """Pictures, smaller and without colours."""
    if name == "ResizeObservation":
        pytest.importorskip("cv2")
    batch = make(lambda: Drill("image"), 2, backend, "next_step")
    resized = name == "ResizeObservation"
    wrapped = wrappers.ResizeObservation(batch, (2, 2)) if resized else wrappers.GrayscaleObservation(batch)
    with closing(wrapped) as envs:
        obs, _ = envs.reset(seed=0)
        assert obs.shape == ((2, 2, 2, 3) if resized else (2, 4, 4))
        assert envs.step(np.ones(2, int))[0] in envs.observation_space


@each_backend
@pytest.mark.parametrize("name", ["ClipAction", "RescaleAction"])
def test_wrappers_of_actions(name: str, backend: str) -> None:
    """Boxes of actions."""
    batch = make(lambda: Drill("box", "box"), 2, backend, "next_step")
    wrapped = wrappers.ClipAction(batch) if name == "ClipAction" else wrappers.RescaleAction(batch, 0.0, 2.0)
    with closing(wrapped) as envs:
        envs.reset(seed=0)
        assert np.isfinite(envs.step(np.full((2, 2), 2.0, np.float32))[0]).all()


@each_backend
def test_a_video_can_be_recorded(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RecordVideo asks for render, render_mode and frames a second (E7). Only the writing of the file is left out."""
    pytest.importorskip("pygame")
    monkeypatch.setitem(sys.modules, "moviepy", types.ModuleType("moviepy"))
    lengths: list[int] = []
    monkeypatch.setattr(wrappers.RecordVideo, "stop_recording", lambda self: lengths.append(len(self.recorded_frames)))
    batch = make("CartPole-v1", 2, backend, "next_step", env_kwargs={"render_mode": "rgb_array"})
    with closing(wrappers.RecordVideo(batch, str(tmp_path / "v"), episode_trigger=lambda episode: True)) as envs:
        assert envs.frames_per_sec == 50
        envs.reset(seed=0)
        for _ in range(4):
            envs.step(np.zeros(2, int))
        assert len(envs.recorded_frames) == 5
        assert envs.recorded_frames[0].ndim == 3
