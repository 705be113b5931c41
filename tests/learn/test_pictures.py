"""Pictures: which leaves they are, what sees them, and that a run with them is as exact and as small as it says."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flashes import Flashes
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from benchmarks.harness.stored import settings_hash
from shoal.config import PPOConfig, TrainConfig, from_dict, to_dict
from shoal.evaluation import evaluate
from shoal.learn import sizing
from shoal.learn.backprop import loss_of
from shoal.learn.distributions import action_kind
from shoal.learn.encoders import Features
from shoal.learn.learner import Learner
from shoal.learn.pictures import Picture, SeeingActorCritic, chosen_encoder, pictures, seen_once
from shoal.learn.policy import Agent
from shoal.runs import checkpoint
from shoal.tasks.networks import load_policy
from shoal.training import train
from shoal.vector.serial import SerialVectorEnv

SHORT: dict[str, Any] = {
    "num_envs": 4, "rollout_steps": 8, "minibatch_size": 16, "update_epochs": 1, "torch_threads": 1, "seed": 3,
    "hidden": (),
}  # fmt: skip
PARTS = spaces.Dict(
    camera=spaces.Box(0, 255, (20, 20, 3), np.uint8),
    action_mask=spaces.MultiBinary(2),
    speed=spaces.Box(-1, 1, (3,)),
    gear=spaces.Discrete(4),
)


def box(*shape: int, dtype: Any = np.uint8) -> spaces.Box:
    return spaces.Box(0, 255, shape, dtype)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        ((84, 84, 3), (3, 84, 84)),
        ((4, 84, 84), (4, 84, 84)),
        ((96, 60, 1), (1, 96, 60)),
        ((84, 84), (1, 84, 84)),
        ((4, 84, 84, 3), (12, 84, 84)),
        ((4, 3, 84, 84), (12, 84, 84)),
        ((50, 50, 50), (50, 50, 50)),
    ],
)
def test_channels_are_found_and_put_first(shape, size) -> None:
    """First, last, none, or frame by frame of a stack: pixel (h, w) of channel c stays what it was."""
    (found,) = pictures(box(*shape))
    assert found.size == size
    rows = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    seen = found.channels_first(torch.from_numpy(rows).flatten(1)).numpy()
    assert seen.shape == (2, *size)
    by_hand = {
        2: lambda one: one[None],
        3: lambda one: one if shape == (4, 84, 84) else one.transpose(2, 0, 1),
        4: lambda one: (one if shape[1] == 3 else one.transpose(0, 3, 1, 2)).reshape(size),
    }[len(shape)]
    for row in range(2):
        np.testing.assert_array_equal(seen[row], by_hand(rows[row]))


@pytest.mark.parametrize(
    ("space", "encoder"),
    [
        (box(84, 84, 4), "nature"),
        (box(35, 84, 4), "impala-small"),
        (box(7, 7, 3), "auto"),
        (box(84, 84, 4, dtype=np.float32), "auto"),
        (spaces.Box(0, 255, (128,), np.uint8), "auto"),
        (PARTS, "impala-small"),
    ],
)
def test_auto_takes_what_fits(space, encoder) -> None:
    """The CNN of DQN, a small one for small pictures, none for boards and for what is no picture."""
    assert chosen_encoder("auto", space) == encoder
    assert chosen_encoder("flat", space) == "flat"


def test_a_small_board_is_a_picture_when_asked() -> None:
    """And what cannot be seen is refused with what to use."""
    assert chosen_encoder("impala-small", box(7, 7, 3)) == "impala-small"
    assert [one.shape for one in pictures(box(7, 7, 3), "impala-small")] == [(7, 7, 3)]
    with pytest.raises(ValueError, match=r"pictures of at least 36 x 36 pixels.* 7 x 7: use --encoder imp"):
        chosen_encoder("nature", box(7, 7, 3))
    with pytest.raises(ValueError, match="--encoder nature is for pictures"):
        chosen_encoder("nature", spaces.Box(-1, 1, (3,)))
    with pytest.raises(ValueError, match="no --policy-epochs"):
        Agent(box(84, 84, 3), spaces.Discrete(2), PPOConfig(policy_epochs=2))


def test_rows_hold_bytes_and_numbers() -> None:
    """Of a Dict: the picture as it is, the numbers to the last bit behind it, the mask apart."""
    features = Features(PARTS, "impala-small")
    generator = np.random.default_rng(0)
    leaves = [torch.from_numpy(np.stack([np.asarray(PARTS[key].sample()) for _ in range(5)])) for key in PARTS.spaces]
    by_name = dict(zip(PARTS.spaces, leaves, strict=True))
    numbers = torch.from_numpy(generator.normal(size=(5, 7)).astype(np.float32))
    rows = features.pack(leaves, numbers)
    assert (features.size, features.width, rows.dtype, rows.shape) == (7, 1200 + 28, torch.uint8, (5, 1228))
    assert torch.equal(rows[:, :1200], by_name["camera"].flatten(1))
    eyes = SeeingActorCritic(features.pictures, 7, action_kind(spaces.Discrete(2)), "impala-small", hidden=()).encoder
    assert torch.equal(eyes(rows)[:, -7:], numbers)
    assert torch.equal(features.masks(leaves), by_name["action_mask"] != 0)


@pytest.mark.parametrize("encoder", ["nature", "impala-small"])
def test_gradients_are_those_of_autograd(encoder) -> None:
    """The pass of an update goes once through the encoder, and gives what two whole passes would."""
    torch.manual_seed(0)
    kind = action_kind(spaces.Discrete(3))
    network = SeeingActorCritic([Picture(0, "p", (36, 40, 3))], 2, kind, encoder, hidden=(8,), shared=False)
    rows = torch.randint(0, 256, (6, 36 * 40 * 3 + 8), dtype=torch.uint8)
    rows[:, -8:] = torch.randn(6, 2).view(torch.uint8)
    params, values = network.policy(rows), network.value(rows)
    slopes = torch.randn_like(params), torch.randn_like(values)
    torch.autograd.backward([params, values], list(slopes))
    expected = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    calls = []
    network.encoder.register_forward_hook(lambda *_: calls.append(1))
    head, features = seen_once(network, rows)
    torch.testing.assert_close(head.policy(features), params)
    torch.testing.assert_close(head.value(features), values)
    torch.autograd.backward([head.policy(features), head.value(features)], list(slopes))
    assert len(calls) == 1
    for parameter, grad in zip(network.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-4, atol=1e-5)


def test_first_policies_are_nearly_uniform() -> None:
    """Orthogonal convolutions, gain sqrt 2; the policy's last layer 0.01 of it."""
    torch.manual_seed(0)
    network = SeeingActorCritic([Picture(0, "p", (84, 84, 4))], 0, action_kind(spaces.Discrete(6)), "nature", hidden=())
    rows = torch.randint(0, 256, (8, 84 * 84 * 4), dtype=torch.uint8)
    assert network.policy(rows).softmax(-1).sub(1 / 6).abs().max() < 0.02
    second = network.encoder.eyes[0][2].weight.detach().flatten(1)
    torch.testing.assert_close(second @ second.t(), 2 * torch.eye(64), atol=1e-4, rtol=0)


def test_a_picture_stays_bytes_and_is_not_copied() -> None:
    """From the rollout to the minibatch; a truncated episode's last observation too is valued as bytes."""
    config = TrainConfig().replace(**SHORT)
    learner = Learner(config, SerialVectorEnv([Flashes] * 4))
    learner.start()
    batch = learner.estimate(learner.collect())
    assert batch is not None
    assert learner.collector.rollout.observations[0].dtype == np.uint8
    assert batch.features.dtype == torch.uint8
    assert [frames.data_ptr() for frames, _ in batch.features._parts] == [
        learner.collector.rollout.tensors[0].data_ptr()
    ]
    learner.update(batch, 0.0)
    again = learner.estimate(learner.collect())
    assert again is not None
    assert learner.collector.rollout.finals
    assert float(again.targets.abs().max()) > 0
    learner.env.close()


@pytest.mark.parametrize("parts", [False, True])
def test_values_are_those_of_acting(parts) -> None:
    """One look gives action and value: what is valued later are the last observations. A first rollout is valued anew
    where its own statistics scale the numbers."""
    config = TrainConfig().replace(**SHORT, normalise_observations=True)
    learner = Learner(config, SerialVectorEnv([functools.partial(Flashes, parts=parts, length=50)] * 4))
    learner.start()
    looks: list[int] = []
    learner.agent.network.encoder.register_forward_pre_hook(lambda _, given: looks.append(len(given[0])))
    for rollout, valued in ((0, 9 * 4 if parts else 4), (1, 4)):
        learner.collect()
        assert looks == [4] * 8
        batch = learner.estimate(learner.collector.rollout)
        assert batch is not None
        assert sum(looks[8:]) == valued, rollout
        np.testing.assert_allclose(batch.values, learner.agent.values(batch.features), rtol=1e-4, atol=1e-5)
        learner.update(batch, 0.0)
        looks.clear()
    learner.env.close()


def test_the_noise_meter_takes_no_more_memory_than_a_step() -> None:
    """It measures a quarter of the environments' rows, a minibatch of them at a time, to the same gradient."""
    learner = Learner(TrainConfig().replace(**SHORT | {"rollout_steps": 40}), SerialVectorEnv([Flashes] * 4))
    learner.start()
    batch = learner.estimate(learner.collect())
    assert batch is not None
    learner.ppo.clip, learner.ppo.entropy_coef = 0.2, 0.0
    learner.ppo._loss_of = loss_of(learner.agent.network)
    rows = torch.arange(40)
    gradient = learner.ppo._policy_gradient(batch, rows)
    learner.ppo.config = dataclasses.replace(learner.ppo.config, minibatch_size=40)
    torch.testing.assert_close(gradient, learner.ppo._policy_gradient(batch, rows), rtol=1e-4, atol=1e-6)
    learner.ppo.config = dataclasses.replace(learner.ppo.config, minibatch_size=16)
    looks: list[int] = []
    learner.agent.network.encoder.register_forward_pre_hook(lambda _, given: looks.append(len(given[0])))
    figures = learner.update(batch, 0.0)
    assert max(looks) == 16
    assert "noise/variance" in figures
    learner.env.close()


@pytest.mark.parametrize("encoder", ["nature", "impala-small"])
def test_the_last_layer_is_a_linear_one(encoder) -> None:
    """Done as a convolution, it gives what its weights give by a product of matrices."""
    torch.manual_seed(0)
    network = SeeingActorCritic([Picture(0, "p", (40, 44, 3))], 0, action_kind(spaces.Discrete(2)), encoder, hidden=())
    eye = network.encoder.eyes[0]
    seen = torch.rand(3, *eye[-2].map[1:])
    expected = torch.nn.functional.linear(seen.flatten(1), eye[-2].weight, eye[-2].bias)
    torch.testing.assert_close(eye[-2](seen.contiguous(memory_format=torch.channels_last)), expected)


def test_rows_that_are_no_transitions_are_left_out() -> None:
    """Where a step only resets (NEXT_STEP), its picture is not learnt from."""
    env = SyncVectorEnv([functools.partial(Flashes, length=3)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    learner = Learner(TrainConfig().replace(**SHORT | {"num_envs": 2}), env)
    learner.start()
    rollout = learner.collect()
    batch = learner.estimate(rollout)
    assert batch is not None
    assert 0 < len(batch) == int(rollout.valid.sum()) < rollout.valid.size
    expected = rollout.observations[0][:-1].reshape(16, -1)[rollout.valid.ravel()]
    np.testing.assert_array_equal(batch.features[:].numpy(), expected)
    env.close()


def test_statistics_are_of_numbers_alone() -> None:
    """--normalise-observations leaves pictures as they are, also where there is nothing else."""
    agent = Agent(PARTS, spaces.Discrete(2), PPOConfig(normalise_observations=True))
    assert agent.moments is not None
    assert agent.moments.mean.shape == (7,)
    assert Agent(box(20, 20, 3), spaces.Discrete(2), PPOConfig(normalise_observations=True)).moments is None


def run_of(folder: Path, parts: bool, **options: Any) -> Any:
    env = functools.partial(Flashes, parts=parts)
    given = {**SHORT, "epochs": 2, "runs_dir": str(folder), "normalise_observations": True, **options}
    return train(env=env, stream=StringIO(), **given)


def weights(run: str) -> dict[str, np.ndarray]:
    return {k: v for k, v in checkpoint.load_latest(Path(run) / "checkpoints").tensors.items() if "env" not in k}


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("parts", [False, True])
def test_every_backend_gives_the_same_bits(tmp_path, parts) -> None:
    """Serial, in workers however many, and in both; and after a resume."""
    runs = [
        run_of(tmp_path, parts, name="serial", backend="serial"),
        run_of(tmp_path, parts, name="one", backend="process", workers=1),
        run_of(tmp_path, parts, name="two", backend="process", workers=2),
        run_of(tmp_path, parts, name="split", backend="split", workers=2),
        run_of(tmp_path, parts, name="parted", backend="serial", epochs=2, steps=None),
    ]
    first = run_of(tmp_path, parts, name="resumed", backend="serial", epochs=1, lr_schedule="constant")
    whole = run_of(tmp_path, parts, name="whole", backend="serial", epochs=3, lr_schedule="constant")
    env = functools.partial(Flashes, parts=parts)
    go_on = train(resume=first.run, env=env, epochs=3, backend="process", workers=2, stream=StringIO())
    expected = weights(runs[0].run)
    assert any(key.startswith("network.encoder.eyes.0") for key in expected)
    assert all(same(weights(run.run), expected) for run in runs[1:])
    assert same(weights(go_on.run), weights(whole.run))


def test_from_training_to_deployment(tmp_path) -> None:
    """It learns which half is lit; the score is that of the policy loaded; the header and config.json say what sees."""
    said = StringIO()
    options = {**SHORT, "num_envs": 8, "rollout_steps": 32, "minibatch_size": 64, "update_epochs": 4, "epochs": 5}
    result = train(env=Flashes, runs_dir=str(tmp_path), learning_rate=1e-3, stream=said, backend="serial", **options)
    assert "the observation is a picture of 16 x 24 pixels in 3 channel(s): a CNN sees it" in said.getvalue()
    assert "WARNING" not in said.getvalue()
    assert json.loads((Path(result.run) / "config.json").read_text())["ppo"]["encoder"] == "impala-small"
    score = evaluate(result.run, env=Flashes, episodes=8)
    assert score["mean"] > 10.5  # of 12; chance is 6
    policy, env = load_policy(result.run), Flashes()
    seen, right = env.reset(seed=1)[0], 0
    for _ in range(12):
        seen, reward, *_ = env.step(policy(seen))
        right += int(reward)
    assert right >= 10
    assert policy(np.stack([seen, seen]), batched=True).shape == (2,)


def test_a_run_that_names_no_encoder_is_flat(tmp_path) -> None:
    """It is older than encoders: it loads, and goes on, with the perceptron that it was trained with."""
    result = run_of(tmp_path, False, encoder="flat", backend="serial")
    path = Path(result.run) / "config.json"
    config = json.loads(path.read_text())
    assert config["ppo"].pop("encoder") == "flat"
    path.write_text(json.dumps(config))
    assert load_policy(result.run)(Flashes().reset(seed=0)[0]) in (0, 1)
    assert train(resume=result.run, env=Flashes, epochs=3, stream=StringIO()).epochs == 3


def test_hashes_of_settings_stay() -> None:
    """An option that is newer than stored results is written only where it is used."""
    assert settings_hash("CartPole-v1") == "5399805fa176e956"
    assert settings_hash("LunarLander-v3") == "c23d9cbf8a2c9c51"
    assert settings_hash("rides") == "2fc7423e4ecd361d"
    assert settings_hash("cage2") == "43639d985412abcd"
    plain = json.dumps(to_dict(TrainConfig()), sort_keys=True).encode()
    assert hashlib.sha256(plain).hexdigest()[:16] == "9c706a952770a6bd"
    used = TrainConfig().replace(encoder="nature")
    assert to_dict(used)["ppo"]["encoder"] == "nature"
    assert from_dict(to_dict(used)) == used


def test_threads_are_all_for_a_cnn(monkeypatch) -> None:
    """Its minibatch is never so small that a second thread would cost more."""
    monkeypatch.setattr(sizing, "usable_cores", lambda: 6)
    assert sizing.choose_threads(PPOConfig(hidden=()), 0, sees=True) == 6
    assert sizing.choose_threads(PPOConfig(hidden=(), torch_threads=2), 0, sees=True) == 2


@pytest.mark.parametrize(
    "space",
    [
        box(84, 84, dtype=np.float32),
        spaces.Dict(camera=spaces.Box(0, 1, (3, 40, 40)), speed=spaces.Box(-1, 1, (2,))),
    ],
)
def test_pictures_that_are_no_bytes_are_told_of(space) -> None:
    """A perceptron would see one flat row; a network of the user's is left alone."""
    found = sizing.seen_lines(PPOConfig(), space, False)
    rank = max(len(part.shape) for part in (space.values() if isinstance(space, spaces.Dict) else [space]))
    assert len(found) == (rank == 3)
    assert all("as uint8, 0 to 255" in line and "network=" in line for line in found)
    assert sizing.seen_lines(PPOConfig(), space, True) == []
    (line,) = sizing.seen_lines(PPOConfig(encoder="flat"), box(84, 84, 3), False)
    assert "leave out --encoder flat" in line


_MEASURE = """
import functools, sys
import gymnasium as gym, numpy as np, torch
from gymnasium import spaces
torch.set_num_threads(1)
from shoal.config import TrainConfig
from shoal.learn.learner import Learner
from shoal.learn.sizing import rollout_bytes
from shoal.vector.serial import SerialVectorEnv

class Seen(gym.Env):
    action_space = spaces.Discrete(4)
    def __init__(self, shape, parts):
        picture = spaces.Box(0, 255, shape, np.uint8)
        self.observation_space = spaces.Dict(camera=picture, speed=spaces.Box(-1, 1, (3000,))) if parts else picture
        self.seen = self.observation_space.sample()
    def reset(self, *, seed=None, options=None):
        return self.seen, {}
    def step(self, action):
        return self.seen, 0.0, False, False, {}

def learner(shape, parts, num_envs, steps, **options):
    config = TrainConfig().replace(num_envs=num_envs, rollout_steps=steps, hidden=(), update_epochs=1, **options)
    made = Learner(config, SerialVectorEnv([functools.partial(Seen, shape, parts)] * num_envs))
    made.start()
    return made

def resident(name):
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))

encoder, parts, num_envs, steps = sys.argv[1], sys.argv[2] == "parts", int(sys.argv[3]), int(sys.argv[4])
small = learner((36, 36, 1), parts, 2, 4, encoder=encoder)
small.update(small.estimate(small.collect()), 0.0)
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = resident("VmRSS")
one = learner((84, 84, 4), parts, num_envs, steps, encoder=encoder, normalise_observations=parts)
for _ in range(2):
    batch = one.estimate(one.collect())
    one.update(batch, 0.0)
peak = resident("VmHWM")
expected = rollout_bytes(one.config, num_envs, one.env.single_observation_space, one.env.single_action_space)
print(expected / (peak - before), expected >> 20)
"""


@pytest.mark.parametrize(
    ("encoder", "parts", "num_envs", "steps"),
    [("nature", "", 16, 64), ("nature", "parts", 16, 32), ("impala-small", "", 16, 16)],
)
def test_the_memory_said_is_the_memory_taken(encoder, parts, num_envs, steps) -> None:
    """Within a fifth: the rollout's bytes, the convolutions of a minibatch, the optimiser."""
    command = [sys.executable, "-c", _MEASURE, encoder, parts, str(num_envs), str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.8 < float(done.stdout.split()[0]) < 1.2
