"""`--evaluate-every`: the curve, the best checkpoint and an early end, at no cost to the training's randomness."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import shoal
from shoal.cli import main
from shoal.held_out import held_out_seeds, play
from shoal.runs import best, checkpoint
from shoal.runs.folder import Run
from shoal.vector.adapt import Stepper

SMALL: dict[str, Any] = {
    "num_envs": 4, "rollout_steps": 16, "minibatch_size": 32, "update_epochs": 2, "hidden": (16,), "epochs": 6,
    "seed": 3, "target_return": None, "learning_rate": 1e-2,
}  # fmt: skip
CURVE: dict[str, Any] = {"evaluate_every": 2, "evaluate_episodes": 5}


class Masked(gym.Env[Any, Any]):
    """8 steps; the action that the goal names pays 1. Of three actions one is illegal. Draws from NumPy's own
    generator, as many environments do, so that another one in the same process could disturb it."""

    def __init__(self, goal_seen: bool = True) -> None:
        self.observation_space = spaces.Dict(
            goal=spaces.Discrete(2), noise=spaces.Box(-9, 9, (2,)), action_mask=spaces.MultiBinary(3)
        )
        self.action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        assert action != 2
        reward = float(action == self.goal) + 1e-3 * float(np.random.random())  # noqa: NPY002
        self.clock += 1
        return self._see(), reward, False, self.clock == 8, {}

    def _see(self) -> dict[str, Any]:
        self.goal = int(self.np_random.integers(2))
        noise = self.np_random.normal(size=2).clip(-9, 9).astype(np.float32)
        return {"goal": self.goal, "noise": noise, "action_mask": np.array([1, 1, 0], np.int8)}


class Fair(Masked):
    """The same without what only one process can repeat."""

    def step(self, action: Any) -> Any:
        reward = float(action == self.goal)
        self.clock += 1
        return self._see(), reward, False, self.clock == 8, {}


def trained(folder: Path, name: str, task: str | None = None, **options: Any) -> Any:
    where = {} if "resume" in options else {"runs_dir": str(folder), "name": name, **SMALL}
    return shoal.train(task, stream=io.StringIO(), **{**where, **options})


@pytest.fixture(autouse=True)
def unreported(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pages are written where they are looked at."""
    if "kept" not in request.node.name:
        monkeypatch.setattr("shoal.training.write_report", lambda run: None)


def shoal_(words: list[str]) -> Any:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def state(run: str, epoch: int | None = None) -> dict[str, Any]:
    folder = Path(run) / "checkpoints"
    return (checkpoint.load_latest(folder) if epoch is None else checkpoint.load(folder, epoch)).tensors


def same(one: str, other: str) -> None:
    first, second = state(one), state(other)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


def rows(run: str) -> list[dict[str, Any]]:
    found = Run.open(run, Path()).metrics()
    return [{name: value for name, value in row.items() if not name.startswith("time/")} for row in found]


@pytest.mark.parametrize(
    "given",
    [
        {"env": Masked, "backend": "serial", "normalise_observations": True, "normalise_rewards": True},
        {"env": Fair, "backend": "process", "workers": 2, "normalise_observations": True},
        {"task": "shoal/GridWorld-v0"},
        {"task": "shoal/CartPole-v1", "update_interval": 2, "normalise_observations": True},
    ],
    ids=["serial", "process", "compiled with masks", "compiled"],
)
def test_the_weights_are_the_same_with_and_without(tmp_path: Path, given: dict[str, Any]) -> None:
    """Everything that a checkpoint holds, to the bit, and every row but for what the evaluations add."""
    np.random.seed(1)  # noqa: NPY002
    without = trained(tmp_path, "without", **given).run
    np.random.seed(1)  # noqa: NPY002
    with_it = trained(tmp_path, "with", **given, **CURVE).run
    same(without, with_it)
    own = [{name: value for name, value in row.items() if not name.startswith("held_out/")} for row in rows(with_it)]
    assert own == rows(without)
    assert [row["epoch"] for row in rows(with_it) if "held_out/return" in row] == [2, 4, 6]


def test_a_figure_is_that_of_its_checkpoint_on_episodes_of_its_own(tmp_path: Path) -> None:
    """The saved policy repeats the curve on the same seeds, none of which `shoal evaluate` or the training plays."""
    run = trained(tmp_path, "a", env=Fair, save_interval=1, keep=99, backend="serial", **CURVE).run
    seeds = held_out_seeds(3, 5, 2, block=1)
    assert not {*seeds} & {*held_out_seeds(3, 100, 2)}
    assert all(seed >> 30 == 1 for seed in seeds)  # no training has that bit
    envs = shoal.make_vec(Fair, 3)
    for row in rows(run):
        if "held_out/return" in row:
            policy = shoal.load_policy(run, checkpoint=row["epoch"])
            assert play(policy, Stepper(envs), seeds, 3).returns.mean() == row["held_out/return"]
            sampled = play(policy, Stepper(envs), seeds, 3, deterministic=False).returns.mean()
            assert sampled == row["held_out/sampled_return"]
    envs.close()


def test_the_best_is_kept_and_taken(tmp_path: Path) -> None:
    """However few are kept: by `load_policy`, `evaluate` and `play`, said so; `--checkpoint` takes another."""
    result = trained(tmp_path, "a", env=Fair, epochs=30, save_interval=1, keep=1, backend="serial", **CURVE)
    found = best.read(Run(Path(result.run)))
    assert found is not None
    assert result.best == {
        "epoch": found.epoch,
        "metric": "held_out/return",
        "score": found.score,
    }
    evaluated = {row["epoch"]: row["held_out/return"] for row in rows(result.run) if "held_out/return" in row}
    assert found.score == max(evaluated.values())
    assert found.epoch == min(epoch for epoch, score in evaluated.items() if score == found.score) < 29
    assert checkpoint.epochs(Path(result.run) / "checkpoints") == [found.epoch, 30]
    policy = shoal.load_policy(result.run)
    assert policy.epoch == found.epoch
    assert f"epoch {found.epoch} is taken, the best" in policy.chosen
    assert shoal.load_policy(result.run, checkpoint="last").epoch == 30
    assert shoal.load_policy(result.run, checkpoint="best").epoch == found.epoch
    assert shoal.evaluate(result.run, env=Fair, episodes=3)["epoch"] == found.epoch
    assert shoal.evaluate(result.run, env=Fair, episodes=3, checkpoint="last")["epoch"] == 30
    assert shoal.play(result.run, env=Fair, episodes=1)["epoch"] == found.epoch
    page = (Path(result.run) / "report.html").read_text()
    assert f"best checkpoint: epoch {found.epoch}" in page
    assert "held-out return while it trained" in page


def test_the_command_line_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Header, curve, best and where it is taken."""
    flags = [
        "--num-envs",
        "4",
        "--rollout-steps",
        "16",
        "--minibatch-size",
        "32",
        "--hidden",
        "8",
        "--epochs",
        "4",
        "--evaluate-every",
        "1",
    ]
    where = ["--runs-dir", str(tmp_path), "--name", "pole", "--evaluate-episodes", "3", "--evaluate-patience", "2"]
    assert shoal_(["train", "shoal/CartPole-v1", *flags, *where, "--learning-rate", "1e-9"]) == 0
    said = capsys.readouterr()
    assert (
        "evaluates every epoch on 3 held-out episodes; stops early when they are no better 2 times in a row" in said.err
    )
    assert "epoch 1: held-out return" in said.err
    assert "the best so far" in said.err
    assert "2 held-out evaluations in a row were no better than" in said.out + said.err
    assert shoal_(["evaluate", "pole", "--runs-dir", str(tmp_path), "--episodes", "3"]) == 0
    assert "epoch 1 is taken, the best while it trained (held_out/return" in capsys.readouterr().err


@pytest.mark.parametrize("given", [{"env": Fair, "backend": "serial"}, {"task": "shoal/GridWorld-v0"}])
def test_a_run_that_goes_on_remembers(tmp_path: Path, given: dict[str, Any]) -> None:
    """From every checkpoint, as after a kill: the same rows, bits and best as the run that was never stopped."""
    options = {**given, **CURVE, "evaluate_every": 1, "save_interval": 1, "keep": 99}
    whole = trained(tmp_path, "whole", **options).run
    for epoch in (1, 4):
        stopped = tmp_path / f"stopped-{epoch}"
        shutil.copytree(whole, stopped)
        for later in range(epoch + 1, 7):
            shutil.rmtree(stopped / "checkpoints" / f"epoch-{later:08d}")
        trained(tmp_path, "", resume=stopped, **({"env": given["env"]} if "env" in given else {}))
        same(whole, str(stopped))
        assert rows(str(stopped)) == rows(whole)
        assert (stopped / "best.json").read_bytes() == (Path(whole) / "best.json").read_bytes()


def test_a_kill_between_the_best_checkpoint_and_its_name(tmp_path: Path) -> None:
    """SIGKILL when the new best is saved and best.json names the old one: it goes on as if nothing had been."""
    few = ["--num-envs=8", "--rollout-steps=32", "--minibatch-size=64", "--hidden=16", "--epochs=8", "--seed=1"]
    few += ["--save-interval=1", "--keep=1", "--evaluate-every=1", "--evaluate-episodes=4", "--runs-dir", str(tmp_path)]
    assert shoal_(["train", "shoal/CartPole-v1", *few, "--name=whole"]) == 0
    scores = [row["held_out/return"] for row in rows(str(tmp_path / "whole"))]
    news = [place + 1 for place, score in enumerate(scores) if score > max(scores[:place], default=-1.0)]
    assert len(news) > 1, scores
    killed = subprocess.run(
        [sys.executable, "-m", "shoal", "train", "shoal/CartPole-v1", *few, "--name=killed"],
        env={**os.environ, "SHOAL_FAULT_POINT": f"checkpoint:before-prune@{news[1]}"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    named = best.read(Run(tmp_path / "killed"))
    assert named is not None
    assert named.epoch == news[0]
    assert shoal_(["train", "--resume", "killed", "--runs-dir", str(tmp_path)]) == 0
    same(str(tmp_path / "whole"), str(tmp_path / "killed"))
    assert rows(str(tmp_path / "killed")) == rows(str(tmp_path / "whole"))
    assert best.read(Run(tmp_path / "killed")) == best.read(Run(tmp_path / "whole"))
    assert checkpoint.epochs(tmp_path / "killed" / "checkpoints") == checkpoint.epochs(
        tmp_path / "whole" / "checkpoints"
    )


def test_a_best_from_after_the_checkpoint_is_forgotten(tmp_path: Path) -> None:
    """What the run goes on from decides, not what it had come to before it was stopped."""
    run = Path(trained(tmp_path, "a", task="shoal/CartPole-v1", save_interval=1, keep=9, **CURVE).run)
    shutil.rmtree(run / "checkpoints" / "epoch-00000006")
    best.write(Run(run), best.Best(5, "held_out/return", 1e9))
    assert trained(tmp_path, "", resume=run).best["score"] < 1e9
    assert best.read(Run(run)).score < 1e9


def test_a_target_ends_the_run_when_fresh_episodes_confirm_it(tmp_path: Path) -> None:
    """And a resumed run is over at once."""
    result = trained(tmp_path, "a", env=Fair, epochs=60, backend="serial", **CURVE, evaluate_target=7.0)
    assert result.epochs < 60
    assert "the target was 7" in result.reason
    assert "fresh ones" in result.reason
    again = trained(tmp_path, "", resume=result.run, env=Fair)
    assert (again.epochs, again.reason) == (result.epochs, result.reason)
    longer = trained(tmp_path, "", resume=result.run, env=Fair, evaluate_target=99.0, epochs=result.epochs + 2)
    assert longer.epochs == result.epochs + 2


def test_the_curve_may_begin_later_and_with_other_episodes(tmp_path: Path) -> None:
    """On a run that goes on."""
    run = trained(tmp_path, "a", task="shoal/CartPole-v1").run
    assert trained(tmp_path, "", resume=run, epochs=8, evaluate_every=1, evaluate_episodes=2).best["epoch"] in (7, 8)
    trained(tmp_path, "", resume=run, epochs=9, evaluate_episodes=3)
    assert any("the choice begins anew" in event.get("text", "") for event in Run(Path(run)).events())


def test_what_cannot_be_evaluated_is_refused(tmp_path: Path) -> None:
    """In words, before a folder is made."""
    envs = gym.make_vec("CartPole-v1", 4)
    with pytest.raises(ValueError, match=r"evaluate_every= needs environments of its own, and env= is a VectorEnv"):
        trained(tmp_path, "a", env=envs, **CURVE)
    with pytest.raises(ValueError, match=r"evaluate_env= is for evaluate_every="):
        trained(tmp_path, "a", task="CartPole-v1", evaluate_env=Fair)
    with pytest.raises(ValueError, match=r"evaluate_patience= goes by held-out evaluations: add evaluate_every="):
        trained(tmp_path, "a", task="CartPole-v1", evaluate_patience=3)
    with pytest.raises(ValueError, match=r"expected the observations that the run was trained on"):
        trained(tmp_path, "b", task="CartPole-v1", backend="serial", **CURVE, evaluate_env="Acrobot-v1")
    assert not (tmp_path / "a").exists()
    assert trained(tmp_path, "c", env=envs, **CURVE, evaluate_env="CartPole-v1").best is not None


class Breaks(Fair):
    """In its evaluation only: held-out seeds have bit 30."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None and seed >> 30:
            raise RuntimeError("no licence left")
        return super().reset(seed=seed, options=options)


def test_a_fault_of_the_evaluation(tmp_path: Path) -> None:
    """Ends the run with a checkpoint; with --on-fault restart the training goes on without a figure."""
    with pytest.raises(shoal.core.errors.EnvFault, match="no licence left"):
        trained(tmp_path, "a", env=Breaks, backend="serial", **CURVE)
    assert checkpoint.epochs(tmp_path / "a" / "checkpoints") == [0, 2]
    result = trained(tmp_path, "b", env=Breaks, backend="serial", on_fault="restart", **CURVE)
    assert result.epochs == 6
    assert result.best is None
    told = [event["text"] for event in Run(Path(result.run)).events() if "broken off" in event.get("text", "")]
    assert len(told) == 3
    assert "no licence left" in told[0]


def test_a_best_that_could_not_be_saved_is_not_said_to_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first evaluation is the best; the disk is full just then."""
    save = checkpoint.save

    def full_at_first(folder: Path, epoch: int, *rest: Any, **more: Any) -> Path:
        if epoch == 2:
            raise checkpoint.CheckpointError("no space left")
        return save(folder, epoch, *rest, **more)

    monkeypatch.setattr(checkpoint, "save", full_at_first)
    result = trained(tmp_path, "a", env=Fair, backend="serial", learning_rate=1e-30, **CURVE)
    assert best.read(Run(Path(result.run))) is None
    assert result.best is None


def test_rides_are_evaluated_in_their_own_world(tmp_path: Path) -> None:
    """With what the training has learnt of riders; the same weights as without."""
    pytest.importorskip("pyvrp")
    flags = [
        "--customers=6",
        "--num-envs=2",
        "--epochs=2",
        "--runs-dir",
        str(tmp_path),
        "--iterations=5",
        "--futures=0",
    ]
    for name, more in (("without", []), ("with", ["--evaluate-every=1", "--evaluate-episodes=3"])):
        assert shoal_(["train", "rides", *flags, "--name", name, *more]) == 0
    same(str(tmp_path / "without"), str(tmp_path / "with"))
    assert [row["epoch"] for row in rows(str(tmp_path / "with")) if "held_out/return" in row] == [1, 2]
    from shoal.rides.policies.learned import Negotiator

    found = best.read(Run(tmp_path / "with"))
    assert found is not None
    assert Negotiator(tmp_path / "with").epoch == found.epoch
    assert Negotiator(tmp_path / "with", checkpoint="last").epoch == 2


def test_cage2_is_evaluated_by_its_own_simulator(tmp_path: Path) -> None:
    """The same weights as without."""
    flags = ["--num-envs=8", "--rollout-steps=16", "--epochs=2", "--runs-dir", str(tmp_path), "--hidden=16"]
    for name, more in (("without", []), ("with", ["--evaluate-every=1", "--evaluate-episodes=3"])):
        assert shoal_(["train", "cage2", *flags, "--name", name, *more]) == 0
    same(str(tmp_path / "without"), str(tmp_path / "with"))
    assert json.loads((tmp_path / "with" / "best.json").read_bytes())["epoch"] in (1, 2)


@pytest.mark.slow
def test_several_seeds_are_each_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--seeds`: every run keeps its own best, and is scored by it."""
    flags = "--num-envs 4 --rollout-steps 16 --minibatch-size 32 --hidden 8 --epochs 4 --evaluate-every 1 --seeds 2"
    where = ["--runs-dir", str(tmp_path), "--name", "both", "--evaluate-episodes", "3", "--held-out", "3"]
    assert shoal_(["train", "shoal/CartPole-v1", *flags.split(), *where]) == 0
    for run in (tmp_path / "both" / "runs").iterdir():
        found = best.read(Run(run))
        assert found is not None
        assert json.loads((run / "evaluation.json").read_text())["held_out"]["epoch"] == found.epoch
