"""Whole runs: bit for bit the same on every backend and after every kind of interruption, or labelled inexact."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from shoal.learn import backprop
from shoal.learn.ppo import Diverged
from shoal.runs import checkpoint
from shoal.runs.checkpoint import CheckpointError
from shoal.runs.folder import Run
from shoal.training import train
from shoal.vector import batch as batch_module

CARTPOLE = {"task": "CartPole-v1", "num_envs": 5, "rollout_steps": 24, "backend": "serial"}
COMPILED = {"task": "shoal/CartPole-v1", "num_envs": 5, "rollout_steps": 24}
PENDULUM = {
    "task": "Pendulum-v1", "num_envs": 3, "rollout_steps": 70, "backend": "serial", "lr_schedule": "cosine",
    "normalise_observations": True, "normalise_rewards": True,
}  # fmt: skip
SCENARIOS = {
    "serial": CARTPOLE,
    "process 1": {**CARTPOLE, "backend": "process", "workers": 1},
    "process 2": {**CARTPOLE, "backend": "process", "workers": 2},
    "process 3": {**CARTPOLE, "backend": "process", "workers": 3},
    "compiled": COMPILED,
    "compiled, 2 threads": {**COMPILED, "env_threads": 2},
    "compiled, masked": {**COMPILED, "task": "shoal/GridWorld-v0", "normalise_observations": True},
    "pendulum": PENDULUM,
    "pendulum, process": {**PENDULUM, "backend": "process", "workers": 2},
    "interval": {**CARTPOLE, "update_interval": 2, "entropy_coef": 0.01, "entropy_schedule": "linear"},
    "apart": {**CARTPOLE, "policy_epochs": 3, "value_epochs": 2, "value_clip": 0.3, "target_kl": 0.02},
    "double": {**CARTPOLE, "slices": "double"},
    "double, process": {**CARTPOLE, "slices": "double", "backend": "process", "workers": 2},
    "split": {**CARTPOLE, "backend": "split", "workers": 2},
    "split over 3": {**CARTPOLE, "backend": "split", "workers": 3},
}
# Whatever the task's preset says: small, quick, and known numbers.
SMALL = {
    "hidden": (16,), "minibatch_size": 64, "torch_threads": 1, "update_epochs": 4, "learning_rate": 3e-4,
    "lr_schedule": "linear", "lr_final": 0.0, "target_return": None,
}  # fmt: skip
INTERRUPTED = {**CARTPOLE, "rollout_steps": 300, "epochs": 12, "seed": 5}

# Resumes runs in a process of its own; argument: JSON list of [folder, options].
RESUMER = """
import io, json, sys, traceback
from shoal.training import train
sys.modules["shoal.training"].write_report = lambda run: None
for folder, options in json.loads(sys.argv[1]):
    try:
        result = train(resume=folder, stream=io.StringIO(), **options)
        print(json.dumps([folder, result.status]), flush=True)
    except BaseException:
        print(json.dumps([folder, traceback.format_exc()]), flush=True)
"""
STARTER = """
import io, json, sys
from shoal.training import train
sys.modules["shoal.training"].write_report = lambda run: None
result = train(stream=io.StringIO(), **json.loads(sys.argv[1]))
print(json.dumps([result.status, result.signal]))
"""


def quiet(**options):
    return train(**{**({} if "resume" in options else SMALL), "stream": io.StringIO(), **options})


def spawn(script: str, argument) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, json.dumps(argument)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def outcome(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, object], list[dict[str, object]]]:
    """All that two equal runs share: the last checkpoint, its plain data and the metrics, clocks left out."""
    found = checkpoint.load_latest(folder / "checkpoints")
    meta = {name: value for name, value in found.meta.items() if name != "elapsed_s"}
    rows = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in Run(folder).metrics()]
    return found.tensors, meta, rows


def assert_equal(one: Path, other: Path) -> None:
    (tensors, meta, rows), (tensors_, meta_, rows_) = outcome(one), outcome(other)
    assert meta == meta_
    assert rows == rows_
    assert tensors.keys() == tensors_.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == tensors_[name].dtype, name
        assert np.array_equal(tensor, tensors_[name]), name


def cut_back(source: Path, target: Path, epoch: int) -> Path:
    """The run as it would be had its machine been switched off after the checkpoint of an epoch."""
    shutil.copytree(source, target)
    for folder in (target / "checkpoints").iterdir():
        if int(folder.name.split("-")[1]) > epoch:
            shutil.rmtree(folder)
    return target


def events(folder: Path, kind: str) -> list[str]:
    return [str(event.get("text", "")) for event in Run(folder).events() if event["event"] == kind]


@pytest.fixture(autouse=True, scope="module")
def _no_reports():
    """A page of pictures after each of fifty tiny runs would take most of the time; tests/test_report.py has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["shoal.training"], "write_report", lambda run: None)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Every scenario trained for four epochs; copies cut back to epoch 2, and one interrupted, resumed elsewhere."""
    root = tmp_path_factory.mktemp("runs")
    plain = {**SMALL, "hidden": [16]}
    starter = spawn(STARTER, {**plain, **INTERRUPTED, "runs_dir": str(root), "name": "interrupted"})
    interrupted = ThreadPoolExecutor(1).submit(interrupt, starter, root / "interrupted")
    todo: list[tuple[str, dict[str, object]]] = []
    for number, (name, options) in enumerate(SCENARIOS.items()):
        full = f"full-{number}"
        quiet(**{"epochs": 4, "save_interval": 2, "seed": 3, **options}, runs_dir=str(root), name=full)
        todo.append((str(cut_back(root / full, root / f"resumed-{number}", 2)), {}))
        if name == "serial":
            moved = cut_back(root / full, root / "moved", 2)
            todo.append((str(moved), {"backend": "process", "workers": 2}))
            constant = {"seed": 3, "lr_schedule": "constant", **options}
            quiet(**constant, epochs=2, runs_dir=str(root), name="short")
            quiet(**constant, epochs=4, runs_dir=str(root), name="long")
            todo.append((str(root / "short"), {"epochs": 4}))
    quiet(**INTERRUPTED, runs_dir=str(root), name="uninterrupted")
    interrupted.result()
    todo.append((str(root / "interrupted"), {}))
    # What the checkpoint of the interrupted run was, before it goes on.
    before = checkpoint.load_latest(root / "interrupted" / "checkpoints").epoch
    (root / "interrupted-at").write_text(str(before))
    child = spawn(RESUMER, todo)
    out, errors = child.communicate(timeout=200)
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == len(todo), errors
    assert {folder: status for folder, status in answers if status != "finished"} == {}
    return root


def interrupt(process: subprocess.Popen[str], folder: Path) -> None:
    """Ctrl-C once the run has had an epoch, most probably in the middle of a rollout."""
    deadline = time.monotonic() + 120
    metrics = folder / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=200)
    assert json.loads(out.splitlines()[-1]) == ["interrupted", signal.SIGINT], errors


@pytest.mark.parametrize("name", SCENARIOS)
def test_resumed_halfway_in_a_new_process_equals_uninterrupted(runs, name) -> None:
    """Weights, optimiser, every generator, environments, statistics and metrics, to the bit (FAULTS row 17)."""
    number = list(SCENARIOS).index(name)
    assert_equal(runs / f"full-{number}", runs / f"resumed-{number}")
    assert events(runs / f"resumed-{number}", "inexact") == []
    assert [e["epoch"] for e in Run(runs / f"resumed-{number}").events() if e["event"] == "resumed"] == [2]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("serial", "process 1"), ("serial", "process 2"), ("serial", "process 3"), ("pendulum", "pendulum, process"),
        ("compiled", "compiled, 2 threads"), ("double", "double, process"), ("serial", "split"),
        ("serial", "split over 3"),
    ],
)  # fmt: skip
def test_backends_and_workers_change_no_bit(runs, one, other) -> None:
    """The same seed, the same run, wherever it steps (FAULTS row 18)."""
    first, second = (runs / f"full-{list(SCENARIOS).index(name)}" for name in (one, other))
    assert_equal(first, second)


@pytest.mark.parametrize("name", ["serial", "process 2", "split", "interval", "pendulum, process"])
def test_observations_written_in_place_change_no_bit(runs, tmp_path, monkeypatch, name) -> None:
    """Large observations go straight into the rollout: here small ones do, and half the run is a resumed one."""
    monkeypatch.setattr(batch_module, "_WORTH_AIMING", 0)
    monkeypatch.setattr(batch_module.BatchVectorEnv, "_observations", copied_only_from_the_block)
    before = runs / f"full-{list(SCENARIOS).index(name)}"
    options = {**SCENARIOS[name], "epochs": 4, "save_interval": 2, "seed": 3, "runs_dir": str(tmp_path)}
    quiet(**options, name="direct")
    assert_equal(before, tmp_path / "direct")
    cut_back(tmp_path / "direct", tmp_path / "resumed", 2)
    quiet(resume=str(tmp_path / "resumed"))
    assert_equal(before, tmp_path / "resumed")


_observations = batch_module.BatchVectorEnv._observations


def copied_only_from_the_block(self, rows, out):
    """As it is, but a step whose observations would have to be copied into the rollout fails."""
    assert out is None or out is self._direct
    return _observations(self, rows, out)


def test_a_run_may_move_to_another_backend(runs) -> None:
    """Begun serially, resumed in two worker processes: still the same bits."""
    assert_equal(runs / "full-0", runs / "moved")


def test_a_budget_may_grow(runs) -> None:
    """Two epochs, finished, then two more in a new process equal four at once (with constant schedules)."""
    assert_equal(runs / "long", runs / "short")


def test_an_interrupted_rollout_is_collected_again(runs) -> None:
    """Ctrl-C amid a rollout, then resumed: equal to the run that nobody disturbed (FAULTS rows 13 and 17)."""
    assert 1 <= int((runs / "interrupted-at").read_text()) < INTERRUPTED["epochs"]
    assert_equal(runs / "uninterrupted", runs / "interrupted")


def test_scenarios_do_learn_and_differ(runs) -> None:
    """The comparisons above are not between runs in which nothing happens."""
    weights = [outcome(runs / f"full-{n}")[0]["network.trunk.0.weight"] for n in range(len(SCENARIOS))]
    start = checkpoint._read(runs / "full-0" / "checkpoints" / "epoch-00000000", 0)[0]["network.trunk.0.weight"]
    assert not np.array_equal(weights[0], start)
    assert not np.array_equal(weights[0], weights[list(SCENARIOS).index("interval")])
    rows = outcome(runs / "full-0")[2]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4]
    assert rows[-1]["episodes"] > 0
    rates = [row["optim/learning_rate"] for row in rows]
    assert rates == pytest.approx([3e-4, 2.25e-4, 1.5e-4, 0.75e-4]), "linear, and the last update still learns"


def test_another_seed_is_another_run(tmp_path, runs) -> None:
    """Everything random descends from the seed."""
    quiet(**CARTPOLE, epochs=4, seed=4, runs_dir=str(tmp_path), name="other")
    assert outcome(tmp_path / "other")[2] != outcome(runs / "full-0")[2]


# -- inexact, and refused --------------------------------------------------------------------------------


class Noisy(gym.Env):
    """Environment 1 of each batch draws its observations from the operating system."""

    metadata: dict[str, object] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, noisy: bool = False, size: int = 2, actions: int = 2, reward: float = 1.0) -> None:
        self.observation_space, self.action_space = spaces.Box(-9, 9, (size,)), spaces.Discrete(actions)
        self.noisy, self.reward, self.size = noisy, reward, size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self._see(), {}

    def step(self, action):
        self.clock += 1
        return self._see(), self.reward, False, self.clock == 13, {}

    def _see(self):
        generator = np.random.default_rng() if self.noisy else self.np_random
        return generator.uniform(-1, 1, self.size).astype(np.float32)


def batch(**options):
    """Three environments of which the middle one may be noisy."""
    noisy = options.pop("noisy", False)
    return [functools.partial(Noisy, noisy=noisy and place == 1, **options) for place in range(3)]


def started(tmp_path: Path, env, **options) -> Path:
    defaults = {"num_envs": 3, "rollout_steps": 8, "backend": "serial", "epochs": 2, "lr_schedule": "constant"}
    quiet(**{**defaults, **options}, env=env, runs_dir=str(tmp_path), name="run")
    return tmp_path / "run"


def test_an_environment_that_is_not_deterministic_is_named(tmp_path) -> None:
    """The run goes on, labelled inexact in events.jsonl with the environment's number."""
    folder = started(tmp_path, batch(noisy=True))
    assert quiet(resume=folder, env=batch(noisy=True), epochs=3).status == "finished"
    (label,) = events(folder, "inexact")
    assert "did not come back to the observation saved" in label
    assert label.endswith(": 1")
    assert [row["epoch"] for row in Run(folder).metrics()] == [1, 2, 3]


def test_another_number_of_environments_is_refused_or_labelled(tmp_path) -> None:
    """Without reshard nothing is written; with it the run goes on, inexact (FAULTS row 20)."""
    folder = started(tmp_path, Noisy)
    with pytest.raises(ValueError, match="reshard"):
        quiet(resume=folder, env=Noisy, num_envs=4, epochs=3)
    assert len(Run(folder).metrics()) == 2
    assert events(folder, "inexact") == []
    assert quiet(resume=folder, env=Noisy, num_envs=4, epochs=3, reshard=True).status == "finished"
    (label,) = events(folder, "inexact")
    assert "resharded from 3 to 4 environments" in label


def test_a_vector_environment_passed_through_is_labelled(tmp_path) -> None:
    """It trains, and a resumed run says that its episodes began anew."""

    def envs() -> SyncVectorEnv:
        return SyncVectorEnv([Noisy] * 3)

    folder = started(tmp_path, envs())
    assert quiet(resume=folder, env=envs(), epochs=4).epochs == 4
    (label,) = events(folder, "inexact")
    assert "SyncVectorEnv cannot give its state" in label


@pytest.mark.parametrize("other", [{"size": 5}, {"actions": 4}], ids=str)
def test_an_environment_of_another_size_is_refused(tmp_path, other) -> None:
    """Both pairs of spaces are in the message, and the run's rows stay (FAULTS row 20)."""
    folder = started(tmp_path, Noisy)
    with pytest.raises(ValueError, match=r"checkpoint is of an environment with .*Discrete\(2\).*this one has .*Box"):
        quiet(resume=folder, env=functools.partial(Noisy, **other), epochs=3)
    assert len(Run(folder).metrics()) == 2


def test_what_may_not_change_is_refused(tmp_path) -> None:
    """A resumed run with another discount would be another run."""
    folder = started(tmp_path, Noisy)
    with pytest.raises(ValueError, match=r"gamma= is 0\.99 in the run"):
        quiet(resume=folder, env=Noisy, gamma=0.5)


# -- guards in a whole run -------------------------------------------------------------------------------


class Explosive(Noisy):
    """Rewards become so large, after 40 steps, that their squares are not float32 any more."""

    taken = 0

    def step(self, action):
        type(self).taken += 1
        seen, _, *rest = super().step(action)
        return seen, 1e30 if type(self).taken > 40 else 1.0, *rest


def test_a_run_that_diverges_keeps_its_last_good_checkpoint(tmp_path) -> None:
    """Stopped by Diverged, marked failed, finite weights on disk (FAULTS rows 21 and 22)."""
    Explosive.taken = 0
    plain = {"normalise_rewards": False, "normalise_observations": False, "update_epochs": 4}
    options = {"num_envs": 2, "rollout_steps": 8, "backend": "serial", "epochs": 30, "save_interval": 1, **plain}
    with pytest.raises(Diverged, match="last good checkpoint"):
        quiet(**options, env=Explosive, minibatch_size=2, runs_dir=str(tmp_path), name="run")
    found = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    assert found.epoch == 2
    assert all(np.isfinite(tensor).all() for name, tensor in found.tensors.items() if tensor.dtype.kind == "f")
    assert Run(tmp_path / "run").status == "failed"


def test_a_huge_learning_rate_raises_an_alarm_once(tmp_path) -> None:
    """KL blow-up or entropy collapse is in the record, each at most once (FAULTS row 22)."""
    folder = started(tmp_path, Noisy, learning_rate=10.0, epochs=6, rollout_steps=32)
    alarms = [text.split(":")[0] for text in events(folder, "alarm")]
    assert {"alarm, kl blow-up", "alarm, entropy collapse"} & set(alarms)
    assert len(alarms) == len(set(alarms))


def test_a_kl_that_is_not_a_number_is_an_alarm(tmp_path, monkeypatch) -> None:
    """It stops each update, and the record says so; the row in metrics.jsonl stays valid JSON."""
    plain = backprop.policy_loss_and_slope

    def poisoned(*arguments):
        loss, _, clipped, slope = plain(*arguments)
        return loss, torch.tensor(float("nan")), clipped, slope

    monkeypatch.setattr(backprop, "policy_loss_and_slope", poisoned)
    folder = started(tmp_path, Noisy, target_kl=0.1)
    assert [text for text in events(folder, "alarm") if "kl blow-up" in text]
    for row in Run(folder).metrics():
        assert row["policy/kl"] is None
        assert "policy/kl" in row["not_finite"]
        assert row["guard/kl_stops"] == 1


def test_a_failed_save_is_told_and_tried_again(tmp_path, monkeypatch) -> None:
    """By default the run goes on; the next epoch saves."""
    plain, calls = checkpoint.save, []

    def flaky(folder, epoch, *arguments, **options):
        calls.append(epoch)
        if len(calls) == 1:
            raise CheckpointError("disk full")
        return plain(folder, epoch, *arguments, **options)

    monkeypatch.setattr(checkpoint, "save", flaky)
    folder = started(tmp_path, Noisy)
    assert calls == [0, 1, 2]
    assert "checkpoint of epoch 0 FAILED: disk full" in events(folder, "save failed")[0]


def test_a_failed_save_stops_the_run_if_asked(tmp_path, monkeypatch) -> None:
    """`on_save_error="fail"`, and in any case when it was the last one."""

    def broken(*arguments, **options):
        raise CheckpointError("disk full")

    monkeypatch.setattr(checkpoint, "save", broken)
    with pytest.raises(CheckpointError, match="disk full"):
        started(tmp_path / "a", Noisy, on_save_error="fail")
    with pytest.raises(CheckpointError, match="disk full"):
        started(tmp_path / "b", Noisy)
    assert Run(tmp_path / "a" / "run").metrics() == []
    assert len(Run(tmp_path / "b" / "run").metrics()) == 2


def test_a_budget_in_episodes_ends_with_the_epoch_that_completes_them(tmp_path) -> None:
    """Three environments with episodes of 13 steps, rollouts of 8: ten episodes are there after 7 epochs."""
    result = quiet(
        env=Noisy, num_envs=3, rollout_steps=8, backend="serial", episodes=10, runs_dir=str(tmp_path), name="run"
    )
    assert (result.epochs, result.episodes) == (7, 12)
    assert result.reason == "budget of 10 episodes spent"
    assert result.mean_return == 13.0


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("FrozenLake-v1", (256, 1e-3, 0.05)),
        ("CartPole-v1:bare", (256, 1e-3, 0.02)),
        ("MountainCarContinuous-v0:bare", (256, 1e-3, 0.0)),
    ],
)
def test_defaults_follow_the_kind_of_actions(task: str, expected: tuple[float, ...], tmp_path: Path) -> None:
    """What "auto" stands for is written down as numbers, and a flag given by hand wins."""
    options: dict[str, object] = {
        "epochs": 1, "rollout_steps": 8, "runs_dir": str(tmp_path), "stream": io.StringIO()
    }  # fmt: skip
    if task.endswith(":bare"):  # without its preset, as any environment of somebody else's
        options["env"] = lambda: gym.make(task.removesuffix(":bare"))
        result = train(**options)
        by_hand = train(**options, learning_rate=1e-2)
    else:
        result, by_hand = train(task, **options), train(task, **options, learning_rate=1e-2)
    ppo = json.loads((Path(result.run) / "config.json").read_text())["ppo"]
    assert (ppo["minibatch_size"], ppo["learning_rate"], ppo["entropy_coef"]) == expected
    assert json.loads((Path(by_hand.run) / "config.json").read_text())["ppo"]["learning_rate"] == 1e-2
