"""A policy in use elsewhere: what it refuses, what it says, where it can be sent."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import shoal
from shoal.runs import checkpoint
from shoal.runs.checkpoint import CheckpointError
from shoal.runs.folder import Run
from shoal.tasks.networks import resolve

BOX = gym.spaces.Box(-1, 1, (3,), np.float32)


class Plain(gym.Env):
    """Three numbers, two actions, five steps."""

    observation_space, action_space = BOX, gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.clock = 0
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), {}

    def step(self, action):
        self.clock += 1
        return self.np_random.uniform(-1, 1, 3).astype(np.float32), float(action), False, self.clock == 5, {}


def trained(folder: Path, **options: Any) -> str:
    small = {"num_envs": 2, "rollout_steps": 8, "minibatch_size": 16, "backend": "serial", "steps": 64}
    kept = {"save_interval": 1, "normalise_observations": True, "stream": StringIO(), "runs_dir": str(folder)}
    return shoal.train("Plain", env=Plain, **{**small, **kept, **options}).run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def policy(run: str) -> Any:
    return shoal.load_policy(run)


def test_a_batch_given_as_one_observation_is_told_how(policy: Any) -> None:
    """The message names the keyword; any other wrong shape does not."""
    many = np.zeros((5, 3), np.float32)
    with pytest.raises(RuntimeError, match=r"(?s)got shape \(5, 3\).*policy\(observations, batched=True\)"):
        policy(many)
    assert policy(many, batched=True).shape == (5,)
    with pytest.raises(RuntimeError, match=r"got shape \(4,\)") as caught:
        policy(np.zeros(4, np.float32))
    assert "batched" not in str(caught.value)


@pytest.mark.parametrize("bad", [np.zeros((5, 4)), np.zeros(3), np.array([["a", "b", "c"]]), np.float32(1)])
def test_a_batch_of_another_shape_is_refused(policy: Any, bad: np.ndarray) -> None:
    """Not by a message about matrices."""
    with pytest.raises(RuntimeError, match="expected the observations of"):
        policy(bad, batched=True)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(policy: Any, value: float) -> None:
    """A broken sensor must not become action 0; in a batch the row is named."""
    with pytest.raises(RuntimeError, match="the observation is not finite"):
        policy(np.array([0, value, 0], np.float32))
    many = np.zeros((5, 3), np.float32)
    many[3, 1] = value
    with pytest.raises(RuntimeError, match=r"not finite.*3"):
        policy(many, batched=True)


def _actions(given: tuple[Any, np.ndarray]) -> list[int]:
    policy, many = given
    return policy(many, batched=True).tolist()


def test_a_policy_can_be_sent_to_a_pool(policy: Any) -> None:
    """It acts the same there."""
    many = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    with torch.no_grad():
        policy.agent.network.policy_head.weight.mul_(100)
    expected = policy(many, batched=True).tolist()
    assert 0 < sum(expected) < 50
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_actions, [(policy, many)]) == [expected]


@pytest.mark.parametrize("way", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_copy_acts_by_its_own_weights(policy: Any, way: Callable[[Any], Any]) -> None:
    """Also in training's way of acting."""
    other, leaves = way(policy), [torch.ones(4, 3)]
    noise = torch.zeros(4, 2)
    torch.testing.assert_close(other.agent.act(leaves, noise)[0], policy.agent.act(leaves, noise)[0])
    with torch.no_grad():
        other.agent.network.policy_head.bias += torch.tensor([0.0, 5.0])
    assert other.agent.act(leaves, noise)[1].tolist() == [1] * 4
    assert not torch.allclose(other.agent.act(leaves, noise)[0], policy.agent.act(leaves, noise)[0])


def test_a_damaged_newest_checkpoint_is_told(tmp_path: Path) -> None:
    """The older policy is used, with a warning; policy and evaluation name what was passed over."""
    run = trained(tmp_path)
    newest = sorted(Path(run, "checkpoints").glob("epoch-*"))[-1] / "state.safetensors"
    data = bytearray(newest.read_bytes())
    data[-1] ^= 1
    newest.write_bytes(data)
    with pytest.warns(UserWarning, match=r"epoch 3 is used: damaged checkpoint epoch-00000004"):
        policy = shoal.load_policy(run)
    assert policy.epoch == 3
    assert len(policy.skipped) == 1
    with pytest.warns(UserWarning, match="damaged"):
        assert shoal.evaluate(run, env=Plain, episodes=2)["skipped"] == policy.skipped


def rewritten(run: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> str:
    """The run with its newest checkpoint changed, checksums and all, as somebody who means harm would."""
    folder = Run.open(run, Path("runs")).checkpoints
    found = checkpoint.load_latest(folder)
    tensors, meta = {name: value.copy() for name, value in found.tensors.items()}, dict(found.meta)
    change(tensors, meta)
    checkpoint.save(folder, found.epoch, tensors, meta)
    return run


def no_spaces(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
    del meta["spaces"]


def one_space(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
    meta["spaces"] = 7


def strange_network(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
    meta["network"] = 7


def no_count(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
    del tensors["moments.count"]


def negative_variance(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
    tensors["moments.var"][0] = -1


def nan_weights(tensors: dict[str, Any], meta: dict[str, Any]) -> None:
    tensors["network.policy_head.weight"][0, 0] = np.nan


TAMPERED = [no_spaces, one_space, strange_network, no_count, negative_variance, nan_weights]


@pytest.mark.parametrize("change", TAMPERED, ids=lambda change: change.__name__)
def test_a_tampered_checkpoint_is_refused_in_words(tmp_path: Path, change: Callable[..., None]) -> None:
    """Right checksums, wrong contents: one kind of error, and nothing acts."""
    run = rewritten(trained(tmp_path), change)
    with pytest.raises(CheckpointError):
        shoal.load_policy(run)


@pytest.mark.parametrize("change", [no_spaces, no_count, negative_variance, nan_weights], ids=lambda c: c.__name__)
def test_a_tampered_checkpoint_is_not_resumed(tmp_path: Path, change: Callable[..., None]) -> None:
    """Nor does training go on from it."""
    run = rewritten(trained(tmp_path), change)
    with pytest.raises(CheckpointError):
        shoal.train(resume=run, env=Plain, steps=128, stream=StringIO())


PLACES = ["shoal.cli.__main__:main", "shoal.search.loop:Popen", "shoal.rides.policies.network:taught_network",
          "os:system", "builtins:exec"]  # fmt: skip


def test_a_checkpoint_cannot_choose_what_is_called(tmp_path: Path) -> None:
    """Only networks in the table are made; nothing else is even imported."""
    first, runs = trained(tmp_path), []
    for number, place in enumerate(PLACES):
        run = str(shutil.copytree(first, tmp_path / f"copy{number}"))
        runs.append(rewritten(run, lambda tensors, meta, place=place: meta.update(network=[place, {}])))
    script = (
        "import sys, shoal\nfrom shoal.runs.checkpoint import CheckpointError\n"
        "for run in sys.argv[1:]:\n"
        "    try:\n        shoal.load_policy(run)\n"
        "    except CheckpointError as error:\n        assert 'and brings a network' in str(error), error\n"
        "    else:\n        sys.exit('loaded')\n"
        "assert not {'shoal.cli.__main__', 'shoal.search.loop', 'shoal.rides.policies.network'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *runs], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stdout


def test_networks_have_names_and_old_checkpoints_still_find_theirs() -> None:
    """What is written down is a name; the path that older checkpoints hold means the same network."""
    start = {"start": "none", "start_temperature": 0.5, "prices": "insertion"}
    found, old = resolve("rides", start), resolve("shoal.tasks.rides.network:make_network", start)
    assert (found.task, found.options) == (old.task, old.options)
    assert found.task == "rides"
    assert found.options["start_temperature"] == 0.5
    with pytest.raises(ValueError, match="brings a network"):
        resolve("CartPole-v1", {})


def test_importing_the_command_line_runs_nothing() -> None:
    """`python -m shoal.cli` does, an import does not."""
    script = "import sys; sys.argv = ['deploy.py', 'tasks']\nimport shoal.cli.__main__"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert not done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli", "tasks", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["tasks"]
