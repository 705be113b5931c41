"""Environments of one's own from Python, through `shoal.train`, `evaluate`, `load_policy` and resume."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import shoal

QUIET: dict[str, Any] = {
    "num_envs": 8, "rollout_steps": 64, "backend": "serial", "steps": 15_000, "learning_rate": 3e-3, "hidden": (16,),
}  # fmt: skip
GOAL, VELOCITY = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))


class Choice(gym.Env[Any, Any]):
    """20 steps; 1 for the action that says whether the goal is above 0. The velocity says nothing."""

    def __init__(self, space: spaces.Dict) -> None:
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        reward = float((self.goal > 0) == bool(action))
        self.clock += 1
        return self._see(), reward, False, self.clock == 20, {}

    def _see(self) -> dict[Any, Any]:
        velocity, self.goal = (float(value) for value in self.np_random.uniform(-1, 1, 2))
        both = np.float32([self.goal, velocity])
        values = {
            "goal": both[:1], 1: both[:1], "velocity": both[1:], 0: both[1:], "obs": both,
            "action_mask": np.ones(2, np.int8),
        }  # fmt: skip
        return {key: values[key] for key in self.observation_space.spaces}  # type: ignore[attr-defined]


def trained(tmp_path: Path, env: Any, **options: Any) -> str:
    return shoal.train("own", env=env, runs_dir=str(tmp_path), stream=io.StringIO(), **{**QUIET, **options}).run


ORDERS = {
    "keywords": spaces.Dict(velocity=VELOCITY, goal=GOAL),
    "mask last": spaces.Dict(obs=spaces.Box(-1, 1, (2,)), action_mask=spaces.MultiBinary(2)),
    "numbers": spaces.Dict([(1, GOAL), (0, VELOCITY)]),  # type: ignore[list-item]
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_keys_of_a_dict_keep_their_order(tmp_path: Path, order: str) -> None:
    """A saved policy sees the columns it was trained on, by position (evaluate) and by name (load_policy) (C1)."""

    def env() -> Choice:
        return Choice(ORDERS[order])

    run = trained(tmp_path, env)
    assert shoal.evaluate(run, env=env, episodes=20)["mean"] > 17
    policy, played, scores = shoal.load_policy(run), env(), []
    for seed in range(20):
        (seen, _), total, over = played.reset(seed=seed), 0.0, False
        while not over:
            seen, reward, _, over, _ = played.step(policy(seen))
            total += reward
        scores.append(total)
    assert np.mean(scores) > 17


def test_the_order_of_keys_is_part_of_the_environment(tmp_path: Path) -> None:
    """With the keys the other way round the numbers mean something else: neither resumed nor evaluated (C1)."""
    run = trained(tmp_path, lambda: Choice(ORDERS["keywords"]), steps=512)

    def turned() -> Choice:
        return Choice(spaces.Dict(goal=GOAL, velocity=VELOCITY))

    with pytest.raises(ValueError, match="Resume with the environment of the run"):
        shoal.train(resume=run, env=turned, steps=1024, stream=io.StringIO())
    with pytest.raises(ValueError, match="expected the observations that the run was trained on"):
        shoal.evaluate(run, env=turned, episodes=2)
