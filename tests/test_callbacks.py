"""Your own code in the loop: called at every stage, from Python and the shell, with the same bits however it is run."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

import shoal
from shoal.callbacks import CallbackFault, Training
from shoal.cli import main
from shoal.config import TrainConfig, from_dict, to_dict
from shoal.core.errors import EnvFault
from shoal.learn.learner import Learner
from shoal.runs import checkpoint
from shoal.runs.folder import Run
from shoal.stopping import Budget

SMALL = {
    "num_envs": 4, "rollout_steps": 16, "minibatch_size": 32, "update_epochs": 2, "hidden": (16,), "epochs": 6,
    "seed": 3, "backend": "serial", "target_return": None,
}  # fmt: skip
FLAGS = [
    "--num-envs=4", "--rollout-steps=16", "--minibatch-size=32", "--update-epochs=2", "--hidden=16", "--seed=3",
    "--backend=serial", "--save-interval=1",
]  # fmt: skip


def trained(folder: Path, name: str, **options) -> shoal.training.Result:
    task = None if "resume" in options or "env" in options else "CartPole-v1"
    where = {} if "resume" in options else {"runs_dir": str(folder), "name": name, **SMALL}
    return shoal.train(task, stream=io.StringIO(), **{**where, **options})


def weights(run: str) -> dict[str, np.ndarray]:
    return checkpoint.load_latest(Path(run) / "checkpoints").tensors


def assert_same(one: str, other: str) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


def rows(run: str) -> list[dict]:
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def events(run: str) -> list[dict]:
    return [json.loads(line) for line in (Path(run) / "events.jsonl").read_text().splitlines()]


class Diary(shoal.Callback):
    """Writes down what it is called with."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_start(self, training) -> None:
        self.lines.append(f"start {training.epoch}")

    def on_rollout(self, training, rollout) -> None:
        self.lines.append(f"rollout {rollout.rewards.shape}")

    def on_batch(self, training, batch) -> None:
        self.lines.append(f"batch {len(batch)}")

    def on_epoch(self, training) -> None:
        self.lines.append(f"epoch {training.epoch} {training.steps} {training.config.run.seed}")

    def on_end(self, training) -> None:
        self.lines.append(f"end {training.envs.num_envs}")


class Curriculum(shoal.Callback):
    """Harder by the epoch; remembers how hard it was."""

    console_rows = (("level", "own/level", ".0f"),)

    def __init__(self) -> None:
        self.level = 0

    def on_epoch(self, training) -> None:
        self.level += 1
        training.envs.set_attr("level", self.level)
        training.metrics["own/level"] = self.level

    def state(self) -> dict:
        return {"level": self.level}

    def set_state(self, training, state) -> None:
        self.level = state["level"]
        training.envs.set_attr("level", self.level)


class Steep(gym.Env):
    """Pays its level; an episode is one rollout, so that a change of level never comes in the middle of one."""

    observation_space, action_space = gym.spaces.Box(-9, 99, (2,)), gym.spaces.Discrete(2)
    level = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.steps, 0], np.float32)

    def step(self, action):
        self.steps += 1
        reward = float(self.level + action * self.np_random.random())
        return self.seen(), reward, False, self.steps == 16, {}


class SteepInSight(Steep):
    """Shows its level: of an episode that began before it was changed, the first observation is another one now."""

    def seen(self):
        return np.array([self.steps, self.level], np.float32)


def test_every_hook_is_called_in_its_place(tmp_path: Path) -> None:
    """Once a stage, in order."""
    diary = Diary()
    trained(tmp_path, "run", callbacks=[diary], epochs=2)
    one = ["rollout (16, 4)", "batch 64"]
    assert diary.lines == ["start 0", *one, "epoch 1 64 3", *one, "epoch 2 128 3", "end 4"]


def test_an_update_of_two_epochs_has_one_batch(tmp_path: Path) -> None:
    """There is nothing to learn from after half of it, and a stop waits for the whole."""

    class Once(Diary):
        def on_epoch(self, training) -> None:
            training.stop("at once")

    diary = Once()
    result = trained(tmp_path, "run", callbacks=[diary], update_interval=2)
    assert [line.split()[0] for line in diary.lines] == ["start", "rollout", "rollout", "batch", "end"]
    assert (result.status, result.reason, result.epochs) == ("finished", "at once", 2)


@pytest.mark.parametrize("how", [{}, {"backend": "process", "workers": 2}, {"backend": "split", "workers": 2}], ids=str)
def test_a_callback_that_does_nothing_changes_no_bit(tmp_path: Path, how: dict) -> None:
    """Nor does the number of workers."""
    plain = trained(tmp_path, "plain")
    assert_same(plain.run, trained(tmp_path, "with", callbacks=[shoal.Callback(), Diary()], **how).run)


@pytest.mark.parametrize("how", [{}, {"backend": "process", "workers": 2}], ids=str)
def test_a_curriculum_resumes_to_the_same_bits(tmp_path: Path, how: dict) -> None:
    """What it set of the environments is put back before they go on: no run is labelled inexact."""
    whole = trained(tmp_path, "whole", env=Steep, callbacks=[Curriculum()], **how)
    assert [row["own/level"] for row in rows(whole.run)] == [1, 2, 3, 4, 5, 6]
    assert rows(whole.run)[-1]["return/mean_100"] > rows(whole.run)[0]["return/mean_100"] + 16
    half = trained(tmp_path, "half", env=Steep, callbacks=[Curriculum()], epochs=3, lr_schedule="constant", **how)
    on = shoal.train(resume=half.run, env=Steep, callbacks=[Curriculum()], epochs=6, stream=io.StringIO())
    constant = trained(tmp_path, "constant", env=Steep, callbacks=[Curriculum()], lr_schedule="constant", **how)
    assert_same(constant.run, on.run)
    assert [row["own/level"] for row in rows(on.run)] == [1, 2, 3, 4, 5, 6]
    assert not any(event["event"] == "inexact" for event in events(on.run))


def test_a_change_that_replaying_cannot_follow_is_labelled(tmp_path: Path) -> None:
    """Episodes begin as the environment is now: where that shows, the run says that it is not exact."""
    half = trained(tmp_path, "half", env=SteepInSight, callbacks=[Curriculum()], epochs=3)
    on = shoal.train(resume=half.run, env=SteepInSight, callbacks=[Curriculum()], epochs=6, stream=io.StringIO())
    assert any(event["event"] == "inexact" for event in events(on.run))


def test_a_run_that_goes_on_without_its_callback_says_so(tmp_path: Path) -> None:
    """One that came from Python cannot be made from the run folder."""
    half = trained(tmp_path, "half", env=Steep, callbacks=[Curriculum()], epochs=3)
    stream = io.StringIO()
    shoal.train(resume=half.run, env=Steep, epochs=4, stream=stream)
    assert "the run had a callback Curriculum, it goes on without" in stream.getvalue()


def test_metrics_of_ones_own_reach_the_console(tmp_path: Path) -> None:
    """In its lines and in the block at the end."""
    stream = io.StringIO()
    shoal.train(
        "steep", env=Steep, callbacks=[Curriculum()], stream=stream, runs_dir=str(tmp_path), log_interval=1, **SMALL
    )
    assert "| level 1 |" in stream.getvalue()
    assert "  level " in stream.getvalue()


def test_what_a_callback_changes_is_learned_from(tmp_path: Path) -> None:
    """The rollout, and what the schedules go by."""

    class Late(shoal.Callback):
        def on_batch(self, training, batch) -> None:
            training.progress = 0.75

    class Blind(shoal.Callback):
        def on_rollout(self, training, rollout) -> None:
            rollout.rewards[:] = 0

    late = trained(tmp_path, "late", callbacks=[Late()], learning_rate=1e-3, lr_schedule="linear", lr_final=0.0)
    assert [row["optim/learning_rate"] for row in rows(late.run)] == [pytest.approx(2.5e-4)] * 6
    blind, seeing = trained(tmp_path, "blind", callbacks=[Blind()]), trained(tmp_path, "seeing")
    names = [name for name in weights(blind.run) if name.startswith("network.")]
    assert any((weights(blind.run)[name] != weights(seeing.run)[name]).any() for name in names)


@pytest.mark.parametrize("hook", ["on_start", "on_rollout", "on_batch", "on_epoch", "on_end", "state"])
def test_an_error_names_callback_hook_and_line(tmp_path: Path, hook: str) -> None:
    """And the run is one that failed, with the checkpoints that it had."""

    def broken(*_):
        raise KeyError("nowhere")

    Broken = type("Broken", (shoal.Callback,), {hook: broken})
    with pytest.raises(
        CallbackFault, match=rf"the callback Broken failed in {hook}.*KeyError.*test_callbacks.py, line"
    ):
        trained(tmp_path, "run", callbacks=[Broken()])
    status = tmp_path / "run" / "status.json"
    if status.exists():
        assert json.loads(status.read_text())["status"] == "failed"


def test_metrics_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    """TensorBoard could not take them either."""

    class Wordy(shoal.Callback):
        def on_epoch(self, training) -> None:
            training.metrics["own/mood"] = "fine"

    with pytest.raises(CallbackFault, match=r"expected training.metrics\['own/mood'\] as a number, got str"):
        trained(tmp_path, "run", callbacks=[Wordy()])


@pytest.mark.parametrize(("wrong", "said"), [(Diary, "not the class"), (print, "derived from shoal.Callback")])
def test_what_is_no_callback_is_refused(tmp_path: Path, wrong: object, said: str) -> None:
    """Before there is a folder."""
    with pytest.raises(ValueError, match=said):
        trained(tmp_path, "run", callbacks=[wrong])
    assert list(tmp_path.iterdir()) == []


# -- from the shell ----------------------------------------------------------------------------------

MODULE = """
import shoal
class Stopping(shoal.Callback):
    console_rows = (("twice", "own/twice", ".0f"),)
    def on_epoch(self, training):
        training.metrics["own/twice"] = 2 * training.epoch
        if training.epoch == LAST:
            training.stop("far enough")
class Needy(shoal.Callback):
    def __init__(self, size): pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of one's own in the folder that the person is in."""
    name = f"own_callbacks_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("LAST", "4"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield name
    sys.modules.pop(name, None)


def shell(*args: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as end:
        main([*args])
    assert end.value.code == code


def test_from_the_shell_by_name(module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The run remembers it; who resumes must name its module again, since a run folder may come from anybody."""
    place = f"{module}:Stopping"
    shell("train", "CartPole-v1", *FLAGS, "--epochs", "6", "--name", "run", "--callback", place)
    assert "far enough" in capfd.readouterr().out
    config = json.loads((tmp_path / "runs/run/config.json").read_text())
    assert config["callbacks"] == [place]
    assert [row["own/twice"] for row in rows("runs/run")] == [2, 4, 6, 8]

    shell("evaluate", "runs/run", "--episodes", "2", "--num-envs", "1")  # needs no callback, so imports none
    del sys.modules[module]
    shell("train", "--resume", "run", code=2)
    refused = capfd.readouterr().err
    assert f"names modules to import: {module}" in refused
    assert f"/run --import {module}\n" in refused
    shell("train", "--resume", "run", "--import", module)
    assert [row["own/twice"] for row in rows("runs/run")] == [2, 4, 6, 8, 10, 12]


def test_another_callback_for_the_rest(module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It may be named when resuming; the run says that it changed."""
    shell("train", "CartPole-v1", *FLAGS, "--epochs", "2", "--name", "run")
    shell("train", "--resume", "run", "--epochs", "8", "--callback", f"{module}:Stopping")
    assert "changed callbacks: []" in capfd.readouterr().err
    assert len(rows("runs/run")) == 4


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{}", "expected --callback as module:Class"),
        ("{}:Nothing", "has no Nothing"),
        ("{}:shoal", "derived from shoal.Callback"),
        ("{}:Needy", "to need no arguments"),
        ("no_such_module_anywhere:Class", "cannot import no_such_module_anywhere"),
    ],
)
def test_a_wrong_name_is_told_before_there_is_a_folder(
    module: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], place: str, said: str
) -> None:
    """In a sentence."""
    shell("train", "CartPole-v1", *FLAGS, "--epochs", "6", "--callback", place.format(module), code=2)
    assert said in capfd.readouterr().err
    assert not (tmp_path / "runs").exists()


# -- what stored results depend on -------------------------------------------------------------------


def test_an_option_that_is_not_used_leaves_no_trace_in_the_settings() -> None:
    """Stored results are found by a hash of the settings: a later option at its default is not among them."""
    assert set(to_dict(TrainConfig())) == {
        "task", "env_kwargs", "imports", "wrappers", "given", "vector", "ppo", "run"
    }  # fmt: skip
    assert "callbacks" in to_dict(TrainConfig(callbacks=("a:B",)))
    assert "callbacks" in to_dict(TrainConfig(), full=True)


class SmallLogits(shoal.Callback):
    """A term of the loss."""

    def __init__(self, weight: float = 10.0) -> None:
        self.weight = weight

    def loss(self, training, network, minibatch):
        return self.weight * network.policy(minibatch.features).square().mean()


class BoundedNetwork(torch.nn.Module):
    """A network that goes through autograd."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.one, self.other = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

    def policy(self, features):
        return 3 * torch.tanh(self.one(features))

    def value(self, features):
        return self.other(features).squeeze(-1)


@pytest.mark.parametrize("own", [False, True])
def test_a_term_of_the_loss_is_learnt_and_recorded(tmp_path, own) -> None:
    """With the built-in network and another one: logits shrink, two terms of one class add up, a zero term is none."""

    def run(name: str, *callbacks: shoal.Callback) -> str:
        network = {"network": BoundedNetwork()} if own else {}
        return trained(tmp_path, name, callbacks=callbacks, learning_rate=1e-2, **network).run

    def size(run: str) -> float:
        found = weights(run)
        return float(np.abs(found["network.one.weight" if own else "network.policy_head.weight"]).max())

    plain, half, twice = run("plain"), run("half", SmallLogits()), run("twice", SmallLogits(), SmallLogits())
    assert size(half) < size(plain)
    assert rows(twice)[0]["loss/SmallLogits"] > 1.2 * rows(half)[0]["loss/SmallLogits"] > 0
    assert "loss/SmallLogits" not in rows(plain)[0]
    if not own:  # a loop of one's own takes a hook as it is
        config = from_dict(Run(Path(plain)).config)
        learner = Learner(config, shoal.make_vec("CartPole-v1", 4, backend="serial"))
        learner.start()
        shoal.training.loop(Training(learner, Budget.of(config)), SmallLogits())
        assert [name for name, _ in learner.ppo.terms] == ["SmallLogits"]
        learner.env.close()
    nothing = run("nothing", SmallLogits(0.0))
    assert rows(nothing)[-1]["loss/policy"] == pytest.approx(rows(plain)[-1]["loss/policy"], abs=1e-5)


def test_a_run_with_a_term_of_the_loss_resumes_to_the_same_bits(tmp_path) -> None:
    """The term counts from the first step after the checkpoint on."""
    steady = {"callbacks": [SmallLogits()], "lr_schedule": "constant"}
    whole, half = trained(tmp_path, "whole", **steady), trained(tmp_path, "half", **steady, epochs=3)
    trained(tmp_path, "half", resume=half.run, callbacks=[SmallLogits()], epochs=6)
    assert_same(whole.run, half.run)


@pytest.mark.parametrize("term", [0.5, torch.ones(3)], ids=["a float", "three numbers"])
def test_a_term_that_is_no_number_is_refused(tmp_path, term) -> None:
    """With the class, the hook, and what was expected."""

    class Broken(shoal.Callback):
        def loss(self, training, network, minibatch):
            return term

    with pytest.raises(CallbackFault, match=r"Broken failed in loss \(epoch 1\).*torch tensor of one number.*, got "):
        trained(tmp_path, "broken", callbacks=[Broken()])


class Loses(shoal.Callback):
    """An environment that it asks is gone, when rewards of the third rollout have been scaled."""

    def on_batch(self, training, batch) -> None:
        if training.epoch == 3:
            raise EnvFault("gone")


def test_a_fault_after_rewards_were_scaled_leaves_the_statistics_of_the_checkpoint_alone(tmp_path) -> None:
    """It is of the rollout's beginning: the run goes on to the bits of one without a fault."""
    common = {
        "runs_dir": str(tmp_path),
        "num_envs": 2,
        "rollout_steps": 8,
        "hidden": (4,),
        "epochs": 4,
        "stream": io.StringIO(),
    }
    common |= {"normalise_rewards": True, "save_interval": 50, "backend": "serial"}
    with pytest.raises(EnvFault):
        shoal.train("Pendulum-v1", name="parts", callbacks=[Loses()], **common)
    shoal.train(resume=tmp_path / "parts", stream=io.StringIO())
    shoal.train("Pendulum-v1", name="whole", **common)
    parts, whole = (checkpoint.load_latest(tmp_path / name / "checkpoints").tensors for name in ("parts", "whole"))
    assert all(np.array_equal(parts[name], whole[name]) for name in whole)
