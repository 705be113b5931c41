"""CartPole, compiled, against Gymnasium's CartPole-v1."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.compiled.vector import CompiledVectorEnv
from shoal.environments.cartpole import MAX_ANGLE, CartPole
from shoal.tasks.registration import register

FIELDS = ("x", "x_dot", "angle", "angle_dot")
STATES = st.tuples(st.floats(-2.4, 2.4), st.floats(-5.0, 5.0), st.floats(-MAX_ANGLE, MAX_ANGLE), st.floats(-5.0, 5.0))


@pytest.fixture(scope="module")
def envs():
    """One compiled CartPole."""
    envs = CompiledVectorEnv(CartPole, num_envs=1)
    envs.reset(seed=0)
    return envs


@pytest.fixture(scope="module")
def original():
    """Gymnasium's, without wrappers."""
    env = gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    return env


def place(envs: CompiledVectorEnv, original: gym.Env, state: tuple[float, ...]) -> None:
    """Put both into the same state."""
    envs.state[0] = state
    original.state, original.steps_beyond_terminated = np.array(state), None


@given(state=STATES, action=st.integers(0, 1))
@settings(deadline=None)
def test_one_step_is_gymnasiums(envs, original, state, action):
    """From any state: the next state to 1e-12, the same end, the same reward."""
    envs.reset(seed=0)
    place(envs, original, state)
    _, reward, terminated, truncated, _ = original.step(action)
    obs, rewards, ours_terminated, ours_truncated, _ = envs.step(np.array([action]))
    seen = envs.final_obs if ours_terminated[0] else obs
    np.testing.assert_allclose(seen[0], np.array(original.state, np.float32), rtol=1e-6, atol=1e-12)
    if not terminated:
        np.testing.assert_allclose(envs.state[0].tolist(), original.state, rtol=0, atol=1e-12)
    assert (rewards[0], ours_terminated[0], ours_truncated[0]) == (reward, terminated, truncated)


def test_whole_episodes_are_gymnasiums(envs, original):
    """Twenty random episodes stay within 1e-12 to their end, which comes in the same step."""
    random = np.random.default_rng(0)
    for _ in range(20):
        envs.reset()
        place(envs, original, envs.state[0].tolist())
        terminated = False
        while not terminated:
            action = random.integers(0, 2)
            _, _, terminated, _, _ = original.step(action)
            _, _, ours, _, _ = envs.step(np.array([action]))
            assert ours[0] == terminated
            if not terminated:
                np.testing.assert_allclose(envs.state[0].tolist(), original.state, rtol=0, atol=1e-12)


def test_a_step_by_hand(envs):
    """From rest, pushed right: 10 N on 1.1 kg, the pole falling the other way."""
    envs.reset(seed=0)
    envs.state[0] = (0.0, 0.0, 0.0, 0.0)
    envs.step(np.array([1]))
    push = 10 / 1.1
    angle_acceleration = -push / (0.5 * (4 / 3 - 0.1 / 1.1))
    x, x_dot, angle, angle_dot = envs.state[0].tolist()
    assert (x, angle) == (0.0, 0.0)
    assert x_dot == pytest.approx(0.02 * (push - 0.05 * angle_acceleration / 1.1), abs=1e-15)
    assert angle_dot == pytest.approx(0.02 * angle_acceleration, abs=1e-15)


def test_episodes_begin_near_rest():
    """Every number of a first observation lies in [-0.05, 0.05), and they differ."""
    obs, _ = CompiledVectorEnv(CartPole, num_envs=500).reset(seed=1)
    assert np.abs(obs).max() <= 0.05
    assert np.unique(obs).size == obs.size
    assert np.abs(obs.mean(0)).max() < 0.006


def test_500_steps_truncate(envs):
    """A pole held up is truncated, not terminated, in step 500."""
    envs.reset(seed=0)
    for t in range(1, 501):
        envs.state[0] = (0.0, 0.0, 0.0, 0.0)
        _, _, terminated, truncated, infos = envs.step(np.array([t % 2]))
        assert not terminated[0]
        assert truncated[0] == (t == 500)
    assert infos["_final_obs"].tolist() == [True]


def test_ids_and_spaces():
    """gym.make, gym.make_vec, and Gymnasium's own spaces and checker."""
    register()
    register()  # twice is once
    env, twin = gym.make("shoal/CartPole-v1"), gym.make("CartPole-v1")
    assert env.observation_space == twin.observation_space
    assert env.action_space == twin.action_space
    check_env(env.unwrapped, skip_render_check=True)
    envs = gym.make_vec("shoal/CartPole-v1", num_envs=8)
    assert envs.reset(seed=0)[0].shape == (8, 4)
    assert envs.metadata["autoreset_mode"] == gym.vector.AutoresetMode.SAME_STEP
    short = gym.make_vec("shoal/CartPole-v1", num_envs=2, max_episode_steps=3)
    short.reset(seed=0)
    assert [short.step(np.array([0, 1]))[3].all() for _ in range(3)] == [False, False, True]


def test_a_single_environment_is_row_zero():
    """Same seed, same actions: the episodes of gym.make are those of row 0, through their ends."""
    register()
    env, envs = gym.make("shoal/CartPole-v1"), CompiledVectorEnv(CartPole, num_envs=3)
    obs, _ = env.reset(seed=5)
    rows, _ = envs.reset(seed=5)
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(200):
        np.testing.assert_array_equal(obs, rows[0])
        actions = random.integers(0, 2, 3)
        obs, reward, terminated, truncated, _ = env.step(actions[0])
        rows, rewards, *flags, _ = envs.step(actions)
        assert (reward, terminated, truncated) == (rewards[0], flags[0][0], flags[1][0])
        if terminated:
            np.testing.assert_array_equal(obs, envs.final_obs[0])
            with pytest.raises(gym.error.ResetNeeded):
                env.step(0)
            obs, _ = env.reset()
            ended += 1
    assert ended > 3
