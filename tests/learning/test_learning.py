"""The presets learn. Long forms are marked slow (`make test-slow`); CI runs a short form of each."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import shoal

BARS = {"Acrobot-v1": -100.0, "Pendulum-v1": -300.0, "MountainCarContinuous-v0": 90.0}
# What a short run must have reached on held-out episodes; an untrained policy scores about -500, -1,200 and -30.
SHORT = {"Acrobot-v1": (100_000, -150.0), "Pendulum-v1": (100_000, -700.0), "MountainCarContinuous-v0": (200_000, 50.0)}


def trained(task: str, root: Path, **options: object) -> shoal.training.Result:  # type: ignore[name-defined]
    return shoal.train(task, runs_dir=str(root), backend="serial", stream=io.StringIO(), **options)


def test_cartpole_is_solved(tmp_path: Path) -> None:
    """`shoal train CartPole-v1` reaches a mean return of 475 over 100 episodes within its budget."""
    result = trained("CartPole-v1", tmp_path, seed=0)
    assert "target" in result.reason
    assert result.mean_return >= 475


@pytest.mark.parametrize("task", SHORT)
def test_short_form_learns(task: str, tmp_path: Path) -> None:
    """A third of the budget already lifts the policy far above an untrained one."""
    steps, bar = SHORT[task]
    result = trained(task, tmp_path, seed=0, steps=steps)
    assert shoal.evaluate(result.run, episodes=20)["mean"] >= bar


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(5))
def test_cartpole_is_solved_on_every_seed(seed: int, tmp_path: Path) -> None:
    """Five of five seeds solve CartPole."""
    assert trained("CartPole-v1", tmp_path, seed=seed).mean_return >= 475


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("task", BARS)
def test_classic_control_reaches_its_bar(task: str, seed: int, tmp_path: Path) -> None:
    """Held-out return of the preset, three of three seeds."""
    result = trained(task, tmp_path, seed=seed)
    assert shoal.evaluate(result.run, episodes=100)["mean"] >= BARS[task]
