"""Wrong environments as a user types them: one line, what to do, no traceback, and no run folder."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from shoal import cli
from shoal.testing.faults import TickEnv


class Needy(TickEnv):
    """An environment whose package is not installed."""

    def __init__(self, **kwargs: Any) -> None:
        raise gym.error.DependencyNotInstalled('Box2D is not installed, run `pip install "gymnasium[box2d]"`')


class NotANumber(TickEnv):
    """An environment whose fifth observation is NaN."""

    def step(self, action: Any) -> Any:
        observation, *rest = super().step(action)
        return observation * (math.nan if self.steps == 5 else 1), *rest


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Any:
    gym.register("Needy-v0", entry_point=Needy)
    gym.register("NotANumber-v0", entry_point=NotANumber)
    yield
    del gym.registry["Needy-v0"], gym.registry["NotANumber-v0"]


MISTAKES: list[tuple[list[str], str, str]] = [
    (["Taxi-v3"], "Please use `Taxi-v4` instead.\n", "Did you mean"),
    (["CartPole"], "Did you mean CartPole-v", "?."),
    (["Nowhere/Thing-v0"], "--import MODULE, or MODULE:ID", "?."),
    (["no_such_package:Thing-v0"], "no such module here: install its package", "Thing doesn't exist"),
    (["CartPole-v1", "--import", "no_such_package"], "cannot import no_such_package", "Traceback"),
    (["CartPole-v1", "--import", "../x"], "the name of a module", "Traceback"),
    (["CartPole-v1", "--wrapper", "gymnasium.wrappers"], "module:Class", "Traceback"),
    (["CartPole-v1", "--wrapper", "gymnasium.wrappers:NoSuch"], "gymnasium.wrappers has no NoSuch", "Traceback"),
    (
        ["CartPole-v1", "--wrapper", "gymnasium.wrappers:TimeLimit"],
        "argument: 'max_episode_steps': derive",
        "Traceback",
    ),
    (["shoal/CartPole-v1", "--wrapper", "gymnasium.wrappers:TimeAwareObservation"], "all its environments", "0x"),
    (["shoal/CartPole-v1", "--env-kwargs", '{"g": 9}'], "--env-kwargs: ", "Traceback"),
]
WHILE_BEING_BUILT: list[tuple[list[str], str, str]] = [
    (["CartPole-v1", "--env-kwargs", '{"g": 9}'], "unexpected keyword argument 'g'. CartPole-v1 takes", "[env"),
    (["Needy-v0"], 'Needy-v0 cannot be made: Box2D is not installed, run `pip install "gymnasium[box2d]"`', "[env"),
]


@pytest.mark.parametrize(
    ("args", "said", "unsaid", "backend"),
    [
        *((*mistake, "auto") for mistake in (*MISTAKES, *WHILE_BEING_BUILT)),
        *((*mistake, "process") for mistake in WHILE_BEING_BUILT),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_clear_line(
    args: list[str], said: str, unsaid: str, backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table of mistakes, with environments here and in workers."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", *args, "--backend", backend, "--steps", "64", "--runs-dir", str(tmp_path / "runs")])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert unsaid not in printed
    assert "Traceback" not in printed
    assert not (tmp_path / "runs").exists()


def test_an_epoch_longer_than_the_budget_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """256 environments x 32 steps for a budget of 512: 16 times what was asked."""
    flags = ["--num-envs", "256", "--rollout-steps", "32", "--steps", "512", "--runs-dir", str(tmp_path)]
    with pytest.raises(SystemExit):
        cli.main(["train", "shoal/CartPole-v1", *flags])
    printed = capsys.readouterr().err
    assert "that is 16 times what was asked" in printed
    assert "backend compiled: shoal/CartPole-v1 is a compiled environment" in printed


def test_num_envs_auto(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It picks a number, says why, and trains (M1)."""
    flags = ["--num-envs", "auto", "--steps", "64", "--rollout-steps", "4", "--runs-dir", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "CartPole-v1", *flags])
    assert ended.value.code in (0, None)
    assert "num-envs " in capsys.readouterr().err


def test_flags_of_python_only_are_not_offered(capsys: pytest.CaptureFixture[str]) -> None:
    """--help has the new flags; what env= was is no flag."""
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--build-timeout", "--import", "--wrapper"))
    assert "--given" not in printed


@pytest.mark.parametrize("backend", ["serial", "process"])
def test_nan_says_how_to_see_it_again(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The seed and the number of steps that lead there, which is right."""
    flags = ["--backend", backend, "--num-envs", "2", "--steps", "64", "--runs-dir", str(tmp_path / "runs")]
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", "NotANumber-v0", *flags])
    assert ended.value.code == 1
    printed = capsys.readouterr().err
    assert "the observation is not finite" in printed
    found = re.search(r"env.reset\(seed=(\d+)\) and (\d+) steps lead there", printed)
    assert found is not None, printed
    env = NotANumber()
    env.reset(seed=int(found[1]))
    seen = [env.step(env.action_space.sample())[0] for _ in range(int(found[2]))]
    assert [bool(np.isfinite(one).all()) for one in seen] == [*[True] * (len(seen) - 1), False]
