"""shoal under Stable-Baselines3: batches as its VecEnv, masks for MaskablePPO, make_vec as Gymnasium's own."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

import shoal
from shoal.vector.sb3 import SB3VecEnv


class Counting(gym.Env):
    """Ends after 3 steps, truncated where its seed is odd; tells its age on the side."""

    observation_space, action_space = gym.spaces.Box(-9, 9, (1,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.odd, self.at = bool(seed % 2), 0
        return np.float32([0]), {"born": seed}

    def step(self, action):
        self.at += 1
        over = self.at == 3
        return np.float32([self.at]), 1.0, over and not self.odd, over and self.odd, {"age": self.at}

    def double(self, number):
        return 2 * number


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_what_a_step_says_is_what_sb3_reads(backend: str) -> None:
    """The true last observation, whether it was cut, infos of the episode that ended; first observations come next."""
    inner = shoal.make_vec(Counting, 6, backend=backend, **({"workers": 2} if backend == "process" else {}))
    envs = SB3VecEnv(inner)
    assert envs.seed(3) == [3] * 6
    first = envs.reset()
    born = [info["born"] for info in envs.reset_infos]
    assert len(set(born)) == 6  # streams of their own
    assert first.tolist() == [[0]] * 6
    for at in (1, 2):
        observations, rewards, dones, infos = envs.step(np.zeros(6, np.int64))
        assert observations.tolist() == [[at]] * 6
        assert rewards.dtype == np.float32
        assert not dones.any()
        assert infos == [{"age": at}] * 6
    observations, _, dones, infos = envs.step(np.zeros(6, np.int64))
    assert dones.all()
    assert observations.tolist() == [[0]] * 6
    for seed, info in zip(born, infos, strict=True):
        assert info["terminal_observation"].tolist() == [3]
        assert info["TimeLimit.truncated"] is bool(seed % 2)
        assert info["age"] == 3
    assert [info["born"] for info in envs.reset_infos] != born
    assert envs.env_method("double", 4, indices=[0, 2]) == [8, 8]
    assert envs.get_attr("at", indices=1) == [0]
    assert not envs.has_attr("nothing_of_this_name")
    envs.set_attr("at", 1)
    assert envs.get_attr("at") == [1] * 6
    assert envs.env_is_wrapped(gym.Wrapper) == [False] * 6
    envs.close()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_ppo_learns_the_same_on_every_backend(env: str) -> None:
    """SB3's own weights are equal to the bit: what a batch gives does not depend on where it steps."""
    weights = []
    for backend in ("serial", "process"):
        envs = VecMonitor(SB3VecEnv(shoal.make_vec(env, 4, backend=backend)))
        model = PPO("MlpPolicy", envs, n_steps=64, batch_size=64, n_epochs=2, seed=1, device="cpu").learn(512)
        weights.append(np.concatenate([part.detach().numpy().ravel() for part in model.policy.parameters()]))
        envs.close()
    np.testing.assert_array_equal(*weights)


def test_an_observation_is_not_overwritten_by_the_next_step() -> None:
    """SB3 keeps the last observation until after the step."""
    envs = SB3VecEnv(shoal.make_vec("shoal/CartPole-v1", 3))
    envs.seed(0)
    first = envs.reset()
    before = first.copy()
    envs.step(np.zeros(3, np.int64))
    np.testing.assert_array_equal(first, before)


@pytest.mark.parametrize("env", ["shoal/GridWorld-v0", "shoal/Cage2-v0", "shoal/Rides-v0"])
def test_maskable_ppo_works_on_single_environments_as_it_is(env: str) -> None:
    """Made by Gymnasium, without a wrapper: the mask is that of the present observation."""
    import shoal.tasks  # noqa: F401  (ids of entry points are registered)

    one = gym.make(env)
    assert is_masking_supported(one)
    observation, _ = one.reset(seed=1)
    for _ in range(10):
        masks = get_action_masks(one)
        assert masks.dtype == np.bool_
        if "action_mask" in observation:
            np.testing.assert_array_equal(masks, observation["action_mask"].astype(bool).ravel())
        observation, *_ = one.step(int(np.flatnonzero(masks)[0]))
    MaskablePPO("MultiInputPolicy", one, n_steps=32, batch_size=32, n_epochs=1, seed=1, device="cpu").learn(64)
    one.close()


def test_maskable_ppo_takes_legal_actions_of_a_batch() -> None:
    """The batch says which actions are legal; the others are never taken."""
    inner = shoal.make_vec("shoal/GridWorld-v0", 8)
    taken = []
    step = inner.step

    def watched(actions, **more):
        taken.append(np.array([masks[action] for masks, action in zip(envs.env_method("action_masks"), actions)]))  # noqa: B905
        return step(actions, **more)

    inner.step = watched
    envs = SB3VecEnv(inner)
    assert is_masking_supported(envs)
    model = MaskablePPO("MultiInputPolicy", envs, n_steps=32, batch_size=64, n_epochs=1, seed=1, device="cpu")
    model.learn(512)
    assert len(taken) == 64
    assert np.concatenate(taken).all()
    assert not is_masking_supported(SB3VecEnv(shoal.make_vec("CartPole-v1", 2, backend="serial")))


def test_what_sb3_cannot_take_is_refused() -> None:
    """Another autoreset mode; an attribute of some environments."""
    with pytest.raises(ValueError, match="expected an environment with autoreset_mode same_step"):
        SB3VecEnv(shoal.make_vec("CartPole-v1", 2, backend="serial", autoreset_mode="next_step"))
    envs = SB3VecEnv(shoal.make_vec(Counting, 2, backend="serial"))
    with pytest.raises(ValueError, match="expected no indices"):
        envs.set_attr("at", 1, indices=[0])


# -- make_vec as Gymnasium's own ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_arguments_and_wrappers_are_given_as_to_gymnasium(backend: str) -> None:
    """Plain keywords are the environment's; wrappers are functions, also without a name."""
    wrappers = [
        lambda env: gym.wrappers.TransformReward(env, lambda reward: 3 * reward),
        gym.wrappers.FlattenObservation,
    ]
    envs = shoal.make_vec("CartPole-v1", 2, backend=backend, render_mode="rgb_array", wrappers=wrappers)
    envs.reset(seed=0)
    assert envs.step(np.zeros(2, np.int64))[1].tolist() == [3.0, 3.0]
    assert [frame.shape for frame in envs.render()] == [(400, 600, 3)] * 2
    envs.close()


def test_wrappers_go_around_what_a_function_makes() -> None:
    """As around an id; not around a batch."""
    wrap = [lambda env: gym.wrappers.TransformReward(env, lambda reward: 5 * reward)]
    envs = shoal.make_vec(Counting, 2, backend="serial", wrappers=wrap)
    envs.reset(seed=0)
    assert envs.step(np.zeros(2, np.int64))[1].tolist() == [5.0, 5.0]
    with pytest.raises(ValueError, match="steps all its environments at once"):
        shoal.make_vec("shoal/CartPole-v1", 2, wrappers=wrap)
    with pytest.raises(TypeError, match="expected wrappers as functions of an environment or module:Class, got 5"):
        shoal.make_vec("CartPole-v1", 2, wrappers=[5])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backnd": "serial"}, "make_vec has no option backnd: did you mean backend"),
        ({"vectorization_mode": "sync"}, "make_vec has no option vectorization_mode: did you mean backend"),
    ],
)
def test_a_misspelt_option_is_no_argument_of_the_environment(given: dict, said: str) -> None:
    """Plain keywords must not swallow it."""
    with pytest.raises(TypeError, match=said):
        shoal.make_vec("CartPole-v1", 2, **given)


def test_an_argument_that_the_environment_does_not_know_is_named() -> None:
    """With those that it takes."""
    with pytest.raises(ValueError, match=r"unexpected keyword argument 'gravitation'.*takes .*sutton_barto_reward"):
        shoal.make_vec("CartPole-v1", 2, backend="serial", gravitation=9.8)
    with pytest.raises(ValueError, match="expected no arguments of the environment beside"):
        shoal.make_vec([Counting, Counting], backend="serial", gravitation=9.8)
