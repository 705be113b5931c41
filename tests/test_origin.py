"""`--init-from RUN`: another run's weights and normalisation, a new optimiser; what does not fit is refused by name."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import shoal
from shoal.cli import main
from shoal.runs import checkpoint
from shoal.runs.folder import Run

SMALL: dict[str, Any] = {
    "num_envs": 4, "rollout_steps": 16, "minibatch_size": 32, "update_epochs": 2, "hidden": (16,), "epochs": 3,
    "seed": 3, "target_return": None, "backend": "serial",
}  # fmt: skip


@pytest.fixture(autouse=True)
def unreported(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pages are written where they are looked at."""
    if "command_line" not in request.node.name:
        monkeypatch.setattr("shoal.training.write_report", lambda run: None)


def trained(folder: Path, name: str, task: str | None = "CartPole-v1", **options: Any) -> Any:
    where = {} if "resume" in options else {"runs_dir": str(folder), "name": name, **SMALL}
    return shoal.train(None if {"resume", "env"} & set(options) else task, stream=io.StringIO(), **{**where, **options})


def state(run: str | Path, epoch: int) -> dict[str, Any]:
    return checkpoint.load(Path(run) / "checkpoints", epoch).tensors


class Scaled(gym.Env[Any, Any]):
    """Shows numbers that need scaling; `high` is a limit of its actions."""

    def __init__(self, high: float = 1.0, size: int = 3) -> None:
        self.observation_space = spaces.Dict(seen=spaces.Box(-1e4, 1e4, (size,)), mode=spaces.Discrete(3))
        self.action_space = spaces.Box(-high, high, (2,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        self.clock += 1
        return self._see(), -float(np.square(action).sum()), False, self.clock == 10, {}

    def _see(self) -> dict[str, Any]:
        size = self.observation_space["seen"].shape  # type: ignore[index]
        return {"seen": (100 + 7 * self.np_random.normal(size=size)).astype(np.float32), "mode": self.clock % 3}


BOTH = {"normalise_observations": True, "normalise_rewards": True}


def test_weights_and_normalisation_are_taken_and_the_optimiser_is_new(tmp_path: Path) -> None:
    """Its beginning is the other's end, on another environment with the same spaces; then it goes its own way."""
    first = trained(tmp_path, "first", env=Scaled, **BOTH).run
    second = trained(
        tmp_path, "second", env=lambda: Scaled(2.0), init_from="first", seed=9, save_interval=1, keep=9, **BOTH
    ).run
    theirs, ours = state(first, 3), state(second, 0)
    taken = [name for name in theirs if name.split(".")[0] in ("network", "moments")] + [
        "rewards.mean",
        "rewards.count",
    ]
    assert len(taken) > 8
    for name in taken:
        np.testing.assert_array_equal(theirs[name], ours[name], err_msg=name)
    assert not any(np.any(ours[name]) for name in ours if name.startswith("optimiser."))
    assert ours["rewards.returns"].shape == (4,)
    assert not ours["rewards.returns"].any()
    assert not np.array_equal(state(second, 3)["moments.mean"], theirs["moments.mean"])
    (event,) = [event for event in Run(Path(second)).events() if event["event"] == "began with"]
    assert event["run"] == "first"
    assert event["epoch"] == 3
    assert len(event["sha256"]) == 64
    assert event["text"].startswith(
        "begins with the weights of first (Scaled), epoch 3; its actions were Box(-1.0, 1.0"
    )
    policy = shoal.load_policy(second, checkpoint=0)
    seen = {"seen": np.full(3, 100, np.float32), "mode": 1}
    np.testing.assert_allclose(policy(seen), 2 * shoal.load_policy(first)(seen), rtol=1e-6)


def test_the_run_stands_on_its_own(tmp_path: Path) -> None:
    """The same bits twice, and after a resume, with the other run gone."""
    trained(tmp_path, "first")
    one = trained(tmp_path, "one", init_from=tmp_path / "first").run
    two = trained(tmp_path, "two", init_from="first", epochs=2).run
    (tmp_path / "first").rename(tmp_path / "gone")
    trained(tmp_path, "", resume=two, epochs=3)
    first, second = state(one, 3), state(two, 3)
    for name in first:
        if name.startswith("network."):
            np.testing.assert_array_equal(first[name].shape, second[name].shape)
    with pytest.raises(ValueError, match=r"init_from= is 'first' in the run to resume|init_from= is first in the run"):
        trained(tmp_path, "", resume=two, init_from="gone")


@pytest.mark.slow
def test_the_same_bits_on_any_backend(tmp_path: Path) -> None:
    """What it begins with has nothing to do with where it steps."""
    trained(tmp_path, "first", "shoal/CartPole-v1", backend="compiled")
    one = trained(tmp_path, "one", init_from="first", backend="serial").run
    two = trained(tmp_path, "two", init_from="first", backend="process", workers=2).run
    for name, array in state(one, 3).items():
        np.testing.assert_array_equal(array, state(two, 3)[name], err_msg=name)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Train, begin with the best or a named checkpoint, evaluate, go on, report."""
    few = ["--num-envs=4", "--rollout-steps=16", "--minibatch-size=32", "--runs-dir", str(tmp_path), "--epochs=4"]

    def shoal_(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main(words)
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out + said.err

    task = "shoal/CartPole-v1"
    every = ["--save-interval=1", "--keep=9", "--evaluate-every=1", "--evaluate-episodes=2", "--learning-rate=1e-9"]
    assert shoal_("train", task, *few, "--name=a", *every)[0] == 0
    for name, flags, epoch in (("b", [], 1), ("c", ["--init-checkpoint=last"], 4), ("d", ["--init-checkpoint=2"], 2)):
        code, said = shoal_("train", task, *few, f"--name={name}", "--init-from=a", *flags)
        assert code == 0
        assert f"begins with the weights of a ({task}), epoch {epoch}" in said
        assert json.loads((tmp_path / name / "config.json").read_text())["init_from"] == "a"
    assert "begins with the weights of a" in (tmp_path / "b" / "report.html").read_text()
    assert shoal_("evaluate", "b", "--runs-dir", str(tmp_path), "--episodes=2")[0] == 0
    assert shoal_("train", "--resume", "b", "--runs-dir", str(tmp_path), "--epochs=5")[0] == 0
    wrong = {
        "--init-from=nowhere": "no run 'nowhere' in",
        "--init-checkpoint=best": "--init-checkpoint says which checkpoint of --init-from RUN to begin with: add that",
        "--init-from=a --init-checkpoint=3000": "holds no checkpoint of epoch 3000; there are: 0, 1, 2, 3, 4",
        "--init-from=a --init-checkpoint=good": "expected --init-checkpoint as last, best or the number of an epoch",
        "--init-from=b --init-checkpoint=best": "holds no best checkpoint",
        "--init-from=a --hidden 32 --activation relu": "its weights are of --hidden 64,64, --activation tanh, this run "
        "has --hidden 32, --activation relu: add --hidden 64,64 --activation tanh",
        "--init-from=a --normalise-observations": "add --no-normalise-observations",
    }  # fmt: skip
    for flags, message in wrong.items():
        code, said = shoal_("train", task, *few, "--name=wrong", *flags.split())
        assert code != 0, (flags, said)
        assert message in said, (flags, said)
        assert not (tmp_path / "wrong").exists()


class Own(nn.Module):
    """A network of the user's."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.body, self.head, self.worth = nn.Linear(4, width), nn.Linear(width, 2), nn.Linear(width, 1)

    def policy(self, seen: Any) -> Any:
        return self.head(self.body(seen).tanh())

    def value(self, seen: Any) -> Any:
        return self.worth(self.body(seen).tanh()).squeeze(-1)


def test_other_spaces_and_networks_are_refused(tmp_path: Path) -> None:
    """By what does not fit: a space, a task's network, a layer."""
    trained(tmp_path, "pole")
    with pytest.raises(
        ValueError, match=r"init_from= pole: it was trained with observations Box\(.*4,.*this run has Box"
    ):
        trained(tmp_path, "a", "Acrobot-v1", init_from="pole")
    trained(tmp_path, "dict", env=Scaled)
    with pytest.raises(ValueError, match=r"expected the same names, shapes and types"):
        trained(tmp_path, "a", env=lambda: Scaled(size=4), init_from="dict")
    trained(tmp_path, "own", network=Own())
    with pytest.raises(ValueError, match=r"do not fit this network: expected body.bias of shape \(16,\), got \(8,\)"):
        trained(tmp_path, "a", network=Own(16), init_from="own")
    with pytest.raises(ValueError, match=r"expected body.bias of shape \(8,\), got nothing"):
        trained(tmp_path, "a", network=Own(), init_from="pole")
    assert trained(tmp_path, "b", network=Own(), init_from="own").epochs == 3
    assert not (tmp_path / "a").exists()


def test_a_task_with_a_network_of_its_own(tmp_path: Path) -> None:
    """cage2 after cage2 with another adversary."""
    few = ["--num-envs=4", "--rollout-steps=16", "--epochs=1", "--runs-dir", str(tmp_path), "--hidden=16"]
    for words in (["--name=a", "--red=bline"], ["--name=b", "--red=meander", "--init-from=a"]):
        with pytest.raises(SystemExit, match="0"):
            main(["train", "cage2", *few, *words])
    theirs, ours = state(tmp_path / "a", 1), state(tmp_path / "b", 0)
    for name in theirs:
        if name.startswith("network."):
            np.testing.assert_array_equal(theirs[name], ours[name])


@pytest.mark.slow
def test_several_seeds_begin_with_the_same_run(tmp_path: Path) -> None:
    """`--seeds` trains in a folder of its own, from which a run given by name is found all the same."""
    few = ["--num-envs=4", "--rollout-steps=16", "--minibatch-size=32", "--hidden=8", "--epochs=2", "--runs-dir"]
    for words in (["--name=a"], ["--name=both", "--seeds=2", "--held-out=2", "--init-from=a"]):
        with pytest.raises(SystemExit, match="0"):
            main(["train", "shoal/CartPole-v1", *few, str(tmp_path), *words])
    for run in (tmp_path / "both" / "runs").iterdir():
        assert any(event["event"] == "began with" for event in Run(run).events())


def test_arms_that_are_compared_train_to_the_end_and_find_the_other_run(tmp_path: Path) -> None:
    """Nothing that ends a run early is compared with a run that it does not end."""
    from shoal.comparison.plan import arms_of
    from shoal.config import TrainConfig

    trained(tmp_path, "first")
    config = TrainConfig(init_from="first").replace(
        runs_dir=str(tmp_path), steps=1000, evaluate_every=1, evaluate_target=5.0, evaluate_patience=2, num_envs=4
    )
    (arm,) = arms_of([("only", config)], ["samples"], {})
    assert arm.config["init_from"] == str(tmp_path / "first")
    settings = arm.settings(1, "elsewhere", "name").run
    assert (settings.evaluate_every, settings.evaluate_target, settings.evaluate_patience) == (1, None, None)
