"""Environments of one's own from Python, through `shoal.train`, `evaluate`, `load_policy` and resume."""

from __future__ import annotations

import functools
import io
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from shoal.core.errors import EnvTimeout

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
        both = np.array([self.goal, velocity], np.float32)
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


# -- env= without a task -------------------------------------------------------------------------


def refuses_a_parent(pid: int) -> Choice:
    """Makes an environment anywhere but in the process of that id."""
    if os.getpid() == pid:
        raise RuntimeError("built in the trainer")
    return Choice(ORDERS["keywords"])


def test_an_environment_that_is_given_is_never_cartpole(tmp_path: Path) -> None:
    """The run is called after the factory, takes no preset, and says so; without env= nothing else is played (M4)."""

    def winding_road() -> Choice:
        return Choice(ORDERS["keywords"])

    options: dict[str, Any] = {**QUIET, "steps": 1024, "runs_dir": str(tmp_path), "stream": io.StringIO()}
    run = shoal.train(env=winding_road, **options).run
    config = json.loads((Path(run) / "config.json").read_text())
    assert Path(run).name.startswith("winding_road-")
    assert (config["task"], config["given"]) == ("winding_road", "winding_road")
    assert config["run"]["target_return"] is None
    assert config["ppo"]["gamma"] == 0.99
    with pytest.raises(ValueError, match=r"given from Python, winding_road.*evaluate it from Python with env="):
        shoal.evaluate(run)
    with pytest.raises(ValueError, match=r"given from Python, winding_road.*go on with it from Python with env="):
        shoal.train(resume=run, steps=2048)
    assert shoal.train(resume=run, env=winding_road, steps=2048, stream=io.StringIO()).steps == 2048
    assert shoal.evaluate(run, env=winding_road, episodes=2)["task"] == "winding_road"
    assert shoal.load_policy(run).config.given == "winding_road"


def test_a_wrapped_environment_of_a_known_name_is_not_played_bare(tmp_path: Path) -> None:
    """With the name of a task beside env= its preset is taken, and evaluation still wants env= (M4)."""

    def wrapped() -> Any:
        return gym.wrappers.TransformReward(gym.make("CartPole-v1"), lambda reward: 2.0 * float(reward))

    small: dict[str, Any] = {"steps": 64, "num_envs": 2, "runs_dir": str(tmp_path), "stream": io.StringIO()}
    run = shoal.train("CartPole-v1", env=wrapped, **small).run
    assert json.loads((Path(run) / "config.json").read_text())["ppo"]["gamma"] == 0.98
    with pytest.raises(ValueError, match="given from Python, wrapped"):
        shoal.evaluate(run)


def test_an_id_may_be_given_as_env(tmp_path: Path) -> None:
    """It is the task then."""
    small: dict[str, Any] = {"num_envs": 2, "rollout_steps": 8, "steps": 16, "stream": io.StringIO()}
    run = shoal.train(env="Acrobot-v1", runs_dir=str(tmp_path), **small).run
    config = json.loads((Path(run) / "config.json").read_text())
    assert (config["task"], config["given"]) == ("Acrobot-v1", "")
    with pytest.raises(ValueError, match="expected one environment by its id"):
        shoal.train("CartPole-v1", env="Acrobot-v1", **small)


# -- where environments are built, and how long they may take ------------------------------------


@pytest.mark.parametrize("num_envs", [3, "auto"])
def test_process_builds_no_environment_in_the_trainer(tmp_path: Path, num_envs: Any) -> None:
    """Not even to learn its spaces, or what a step costs (B3)."""
    env = functools.partial(refuses_a_parent, os.getpid())
    small: dict[str, Any] = {"backend": "process", "workers": 2, "steps": 64, "rollout_steps": 8, "num_envs": num_envs}
    assert shoal.train(env=env, runs_dir=str(tmp_path), stream=io.StringIO(), **small).status == "finished"


def test_the_time_to_build_is_that_of_one_environment(tmp_path: Path) -> None:
    """Sixteen environments of 0.2 s each in one worker that has 3 s for one (M11)."""

    def slow() -> Choice:
        time.sleep(0.2)
        return Choice(ORDERS["keywords"])

    small: dict[str, Any] = {"backend": "process", "workers": 1, "steps": 128, "rollout_steps": 8, "num_envs": 16}
    options: dict[str, Any] = {**small, "runs_dir": str(tmp_path), "stream": io.StringIO()}
    assert shoal.train(env=slow, build_timeout=3.0, **options).status == "finished"
    with pytest.raises(EnvTimeout, match=r"no answer within 0\.05 s while being built.*Raise --build-timeout"):
        shoal.train(env=slow, build_timeout=0.05, **options)


# -- options as Python writes them ---------------------------------------------------------------


def test_options_speak_python(tmp_path: Path) -> None:
    """NumPy's numbers and the shell's aliases are taken; messages name arguments, not flags (m23)."""
    options: dict[str, Any] = {
        "rollout_steps": np.int64(8),
        "backend": "serial",
        "lr": np.float32(0.01),
        "steps": 3.2e1,
    }
    run = shoal.train("CartPole-v1", n_envs=np.int32(2), runs_dir=str(tmp_path), stream=io.StringIO(), **options).run
    config = json.loads((Path(run) / "config.json").read_text())
    assert (config["vector"]["num_envs"], config["run"]["steps"]) == (2, 32)
    assert config["ppo"]["learning_rate"] == pytest.approx(0.01)
    for wrong, said in (
        ({"num_envs": 0}, "expected num_envs= as a whole number of at least 1"),
        ({"total_timesteps": 5}, "unknown option 'total_timesteps'; did you mean 'steps'?"),
        ({"lr": 0.1, "learning_rate": 0.1}, "expected one value of learning_rate, got lr and learning_rate"),
        ({"steps": 5, "epochs": 5}, "got steps= and epochs="),
    ):
        with pytest.raises(ValueError, match=re.escape(said)):
            shoal.train("CartPole-v1", runs_dir=str(tmp_path), **wrong)
