"""Evaluation and deployment."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import shoal
from shoal.evaluate import interval, play
from shoal.vector.make import make_vec
from shoal.vector.seeding import Stream, episode_seed
from shoal.vector.stepping import Stepper

OPTIONS = {"num_envs": 2, "rollout_steps": 16, "minibatch_size": 32, "backend": "serial"}


class Seeded(gym.Env):
    """Returns its reset seed as its return, over an episode whose length depends on the seed."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seed, self.left = seed, 1 + seed % 7
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(1, np.float32), float(self.seed) if self.left == 0 else 0.0, self.left == 0, False, {}


class Endless(gym.Env):
    """Never ends by itself; a reward of 1 a step."""

    observation_space, action_space = Seeded.observation_space, Seeded.action_space

    def reset(self, *, seed=None, options=None):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("runs"))
    return shoal.train("seeded", env=Seeded, steps=64, runs_dir=root, **OPTIONS).run


def test_episodes_are_held_out(run: str) -> None:
    """The seeds evaluated are those of the evaluation stream, in order, and none is a training seed."""
    result = shoal.evaluate(run, env=Seeded, episodes=6)
    expected = [float(episode_seed(0, 0, k, Stream.EVALUATE)) for k in range(6)]
    assert result["deterministic"]["returns"] == expected
    training = {episode_seed(0, env, k) for env in range(64) for k in range(200)}
    assert not training & {int(value) for value in expected}


def test_every_environment_plays_its_share(run: str) -> None:
    """With several environments short episodes are not preferred: each plays the same number."""
    result = shoal.evaluate(run, env=Seeded, episodes=6, num_envs=3)
    expected = [float(episode_seed(0, env, k, Stream.EVALUATE)) for k in range(2) for env in range(3)]
    assert result["deterministic"]["returns"] == expected


def test_a_run_of_an_own_environment_says_that_it_is_needed(run: str) -> None:
    """Evaluating without the environment that the run was trained on names the argument to give."""
    with pytest.raises(ValueError, match="env="):
        shoal.evaluate(run)


def test_next_step_resets_are_not_steps(run: str) -> None:
    """In NEXT_STEP mode the step that only resets adds neither reward nor length."""
    policy = shoal.load_policy(run)
    envs = gym.vector.SyncVectorEnv([lambda: gym.wrappers.TimeLimit(Endless(), 3)] * 2)  # NEXT_STEP is its default
    returns, lengths = play(policy, Stepper(envs), 4, 5, True)
    assert lengths == [3, 3, 3, 3]
    assert returns == [3.0, 3.0, 3.0, 3.0]


def test_policy_maps_one_observation_to_one_action(run: str) -> None:
    """`load_policy` gives a plain int for Discrete, an array for a batch, and refuses a wrong shape."""
    policy = shoal.load_policy(run)
    assert type(policy(np.zeros(1, np.float32))) is int
    assert policy(np.zeros((5, 1), np.float32), batched=True).shape == (5,)
    with pytest.raises(Exception, match="expected the observation of shape"):
        policy(np.zeros(3, np.float32))


def test_continuous_policy_stays_within_bounds(tmp_path: Path) -> None:
    """Actions for Pendulum lie within its torque limits and have its dtype."""
    result = shoal.train("Pendulum-v1", steps=64, runs_dir=str(tmp_path), **OPTIONS)
    policy = shoal.load_policy(result.run)
    action = policy(np.array([1.0, 0.0, 8.0], np.float32), deterministic=False)
    assert action.shape == (1,)
    assert action.dtype == np.float32
    assert -2 <= action[0] <= 2


def test_interval_covers_the_mean_of_a_known_distribution() -> None:
    """Over 400 samples of 30 exponential draws the 95 % interval covers the true mean at least 88 % of the time."""
    rng = np.random.default_rng(0)
    covered = 0
    for k in range(400):
        low, high = interval(rng.exponential(1.0, 30), seed=k)
        covered += low <= 1.0 <= high
    assert covered / 400 >= 0.88


def test_held_out_environments_use_the_evaluation_stream() -> None:
    """make_vec with the evaluation stream starts episodes whose seeds have the top bit set."""
    envs = make_vec("CartPole-v1", 2, backend="serial", stream=Stream.EVALUATE)
    envs.reset(seed=3)
    assert (envs.block.seeds >> 31 == 1).all()
    envs.close()


def test_a_vector_env_is_refused(run: str) -> None:
    """Its seeds are its own, so nothing could be said to be held out."""
    with pytest.raises(ValueError, match="makes one environment"):
        shoal.evaluate(run, env=gym.vector.SyncVectorEnv([Seeded]))


def test_a_config_and_options_together_are_refused() -> None:
    """Neither is dropped silently."""
    from shoal.tasks.presets import config_for

    with pytest.raises(ValueError, match="got both"):
        shoal.train(config=config_for("CartPole-v1"), seed=7)
