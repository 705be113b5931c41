"""What is said at the end of a run that got nowhere, and of whom nothing is said."""

from __future__ import annotations

from io import StringIO

import gymnasium as gym
import numpy as np
import pytest

import shoal
from shoal.runs.folder import Run
from shoal.runs.progress import remark


def rows_of(means, *, noise: float = 0.0, seed: int = 0, episodes: int = 60) -> list[dict]:
    """One row an epoch of 1,000 steps and 60 episodes, with these means of the last 100."""
    rng = np.random.default_rng(seed)
    return [
        {"steps": 1000 * n, "episodes": episodes * n, "return/mean_100": float(mean + rng.normal(0, noise))}
        for n, mean in enumerate(means, 1)
    ]


def test_a_rise_is_left_alone() -> None:
    """A straight line up, with and without noise; also one that rises only in the end."""
    assert remark(rows_of(np.linspace(0, 100, 200))) is None
    assert all(remark(rows_of(np.linspace(0, 100, 200), noise=10, seed=seed)) is None for seed in range(20))
    assert remark(rows_of([0.0] * 150 + list(np.linspace(0, 100, 50)))) is None


def test_a_flat_half_is_told() -> None:
    """Whatever happened in the first; noise alone is taken for a rise in few of many runs."""
    rise_and_rest = list(np.linspace(0, 100, 100)) + [100.0] * 100
    assert "has not risen over the last half of the run: 100 in its third quarter, 100" in remark(
        rows_of(rise_and_rest)
    )
    told = [remark(rows_of([50.0] * 200, noise=5, seed=seed)) is not None for seed in range(100)]
    assert sum(told) > 90


def test_a_fall_names_the_best() -> None:
    """With the step at which it was."""
    text = remark(rows_of(list(np.linspace(0, 100, 100)) + [20.0] * 100, noise=0.5))
    assert "it was 9" in text or "it was 10" in text
    assert "at step 10" in text or "at step 9" in text


def test_a_run_at_its_target_is_left_alone() -> None:
    """There is nothing to rise to."""
    rows = rows_of([475.0] * 200)
    assert remark(rows) is not None
    assert remark(rows, target_return=475) is None
    assert remark(rows, target_return=480) is not None


@pytest.mark.parametrize("rows", [[], rows_of([5.0] * 10), rows_of([5.0] * 100, episodes=5)])
def test_too_little_to_tell(rows) -> None:
    """Few epochs, or few episodes however many the epochs."""
    assert remark(rows) is None


def test_no_episode_is_told() -> None:
    """Rather than a mean of None."""
    rows = [{"steps": 64 * n, "episodes": 0, "return/mean_100": None} for n in range(1, 9)]
    assert remark(rows, target_return=10).startswith("no episode ended in 512 steps")


class Endless(gym.Env):
    """One number, never ends."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Discrete(2)
    length = 10**9

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.clock += 1
        return np.zeros(1, np.float32), float(self.np_random.normal()), self.clock >= self.length, False, {}


class Hopeless(Endless):
    """Pure noise in episodes of 4 steps: nothing to learn."""

    length = 4


@pytest.mark.parametrize(
    ("env", "steps", "said"), [(Endless, 256, "no episode ended"), (Hopeless, 16_000, "not risen")]
)
def test_the_run_says_so_at_its_end(tmp_path, env, steps, said) -> None:
    """On the console, in the result and among the events."""
    stream = StringIO()
    small = {"num_envs": 8, "rollout_steps": 16, "minibatch_size": 128, "update_epochs": 1, "backend": "serial"}
    result = shoal.train("own", env=env, steps=steps, runs_dir=str(tmp_path), stream=stream, **small)
    assert said in result.advice
    assert said in stream.getvalue()
    (event,) = [event for event in Run.open(result.run, tmp_path).events() if event["event"] == "no progress"]
    assert event["text"] == result.advice
