"""The noise meter: right against brute force, without a trace in what is learned, and the same after a resume."""

from __future__ import annotations

import functools
import json
from io import StringIO

import gymnasium as gym
import numpy as np
import pytest
import torch
from flashes import Flashes
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from test_credit import Crossing
from tiny_envs import Identity, Scripted
from torch import nn

import shoal
from shoal.config import PPOConfig, TrainConfig
from shoal.core.protocols import TrainingEnv
from shoal.learn.distributions import Categorical
from shoal.learn.learner import Learner
from shoal.learn.losses import Batch
from shoal.learn.networks import ActorCritic
from shoal.learn.noise import MOST_ENVS, NoiseMeter, parts_of
from shoal.learn.ppo import PPO
from shoal.runs import checkpoint
from shoal.runs.folder import Run
from shoal.vector.serial import SerialVectorEnv


class Moods(TrainingEnv):
    """Episodes of one length; each environment is in a mood for a whole episode, which adds to or takes from the worth
    of every action: its steps tell of each other, as those of an environment do."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    checks_finite = True

    def __init__(self, num_envs: int, seed: int, length: int = 8) -> None:
        self.num_envs, self.length = num_envs, length
        self.single_observation_space = gym.spaces.Box(0, 1, (3,), np.float32)
        self.single_action_space = gym.spaces.Discrete(3)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.draw = np.random.default_rng(seed)

    def look(self):
        self.state = self.draw.integers(0, 3, self.num_envs)
        return np.eye(3, dtype=np.float32)[self.state]

    def begin(self):
        self.clock, self.mood = 0, self.draw.normal(0, 1, (self.num_envs, 3))
        return self.look()

    def reset(self, *, seed=None, options=None):
        return self.begin(), {}

    def step(self, actions):
        rows = np.arange(self.num_envs)
        rewards = (actions == self.state) + self.mood[rows, actions] + self.draw.normal(0, 0.5, self.num_envs)
        self.clock += 1
        over = np.full(self.num_envs, self.clock == self.length)
        seen = self.begin() if over.all() else self.look()
        return seen, rewards, over, np.zeros_like(over), {}


def learner_of(env, module=None, **options) -> Learner:
    settings = {"num_envs": env.num_envs, "rollout_steps": 8, "minibatch_size": 64, "hidden": (8,), "epochs": 10}
    learner = Learner(TrainConfig().replace(**{**settings, **options}), env, network=module)
    learner.start()
    return learner


def gradient(learner: Learner, batch) -> np.ndarray:
    """Of the policy's loss on the whole batch, by autograd."""
    network, kind = learner.agent.network, learner.agent.kind
    network.zero_grad()
    advantages = (batch.advantages - batch.advantages.mean()) / batch.advantages.std()
    log_probs = kind.log_prob(network.policy(batch.features.clone()), batch.actions.clone())
    (-(log_probs - batch.log_probs).exp() * advantages).mean().backward()
    parts = [np.zeros(p.numel()) if p.grad is None else p.grad.flatten().numpy().copy() for p in network.parameters()]
    network.zero_grad()
    return np.concatenate(parts)


def test_it_agrees_with_the_variance_over_1000_independent_batches(monkeypatch) -> None:
    """A policy that stays as it is, batches of 32 environments: the variance of their gradients times 32, and with it
    the noise scale, are within 15 % of what the meter says of the first 300."""
    still = {"learning_rate": 1e-30, "minibatch_size": 10**6, "update_epochs": 1}
    learner, looks, gradients = learner_of(Moods(32, 5), **still), [], []
    monkeypatch.setattr(learner.meter, "due", lambda passes, steps: len(looks) < 300)
    for number in range(1000):
        batch = learner.estimate(learner.collect())
        gradients.append(gradient(learner, batch))
        if number < 300:
            looks.append(learner.update(batch, 0.0))
        else:
            learner.collector.carry_over()
    found = np.array(gradients)
    variance = 32 * found.var(0, ddof=1).sum()
    signal = (found.mean(0) ** 2).sum() - variance / 32 / 1000
    seen = [np.mean([look[f"noise/{part}"] for look in looks[:300]]) for part in ("variance", "signal")]
    assert seen[0] == pytest.approx(variance, rel=0.15)
    assert seen[0] / seen[1] == pytest.approx(variance / signal, rel=0.15)
    assert 3 < variance / signal < 100


def test_more_environments_make_a_gradient_clearer_than_longer_rollouts() -> None:
    """Where moods last, four times the environments cut the variance of an update's gradient by about four, four times
    the steps of each by far less: the same samples tell less when they are of fewer environments."""
    found = {}
    for num_envs, steps in ((16, 8), (64, 8), (16, 32)):
        still = {"learning_rate": 1e-30, "minibatch_size": 10**6, "update_epochs": 1, "gamma": 0.0}
        learner = learner_of(Moods(num_envs, 6, length=32), rollout_steps=steps, **still)
        learner.meter.due = lambda passes, gradient_steps: True
        looks = [learner.update(learner.estimate(learner.collect()), 0.0)["noise/variance"] for _ in range(80)]
        found[num_envs, steps] = np.mean(looks) / num_envs
    assert 3.2 < found[16, 8] / found[64, 8] < 4.8
    assert found[16, 8] / found[16, 32] < 2.0


def kept(learner: Learner) -> dict[str, np.ndarray]:
    tensors, _ = learner.state()
    return {name: array for name, array in tensors.items() if not name.startswith("meter.")}


class Drawing(nn.Module):
    """A network of the user's that draws from torch's generator whenever it is asked, with dropout besides."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2))
        self.heads = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 1)])

    def policy(self, features):
        hidden = self.body(features + 0.01 * torch.randn(1))
        return self.heads[0](hidden)

    def value(self, features):
        return self.heads[1](self.body(features)).squeeze(-1)


CASES = {
    "discrete": ("discrete", {}),
    "masked": ("masked", {}),
    "box": ("box", {"entropy_coef": 0.01}),
    "shared": ("discrete", {"network": "shared"}),
    "split passes": ("multi", {"policy_epochs": 2, "value_epochs": 1}),
    "several rollouts": ("masked", {"update_interval": 2}),
    "silu": ("discrete", {"activation": "silu", "normalise_observations": True}),
    "kl stop": ("discrete", {"target_kl": 1e-6}),
}


@pytest.mark.parametrize("case", [*CASES, "drawing", "pictures", "credit", "faults"])
def test_it_changes_nothing_that_is_learned(case) -> None:
    """Weights, optimiser, random streams: to the bit the same with it and without, and it has something to say."""
    found = []
    for on in (True, False):
        options, module = {"noise_meter": on, "rollout_steps": 16}, None
        if case == "pictures":
            env = SerialVectorEnv([functools.partial(Flashes, parts=True)] * 4)
            options |= {"minibatch_size": 16, "update_epochs": 1}
        elif case == "credit":
            env = Crossing(8, True)
        elif case == "faults":
            env = SerialVectorEnv([functools.partial(Scripted, place, masked=True) for place in range(5)])
        else:
            kind, more = CASES.get(case, ("discrete", {}))
            env, options = SerialVectorEnv([functools.partial(Identity, kind)] * 4), options | more
        if case == "drawing":
            torch.manual_seed(3)
            module = Drawing()
        learner = learner_of(env, module, **options)
        torch.manual_seed(4)
        metrics = {}
        for _ in range(4):
            metrics |= learner.update(learner.estimate(learner.collect()), 0.0)
        found.append(kept(learner))
        assert ("noise/variance" in metrics) is on
        assert not on or metrics["noise/variance"] > 0
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        assert np.array_equal(array, found[1][name], equal_nan=True), name


def test_one_environment_has_no_noise_to_measure() -> None:
    """Two groups are the least."""
    learner = learner_of(SerialVectorEnv([Identity]))
    metrics = learner.update(learner.estimate(learner.collect()), 0.0)
    assert not any(name.startswith("noise/") for name in metrics)


def test_the_parts_by_hand() -> None:
    """Gradients (3, 1) and (1, 1) of groups of 5: their product is 4; half the square of their distance, 2, times 5."""
    stacked = np.array([[3.0, 1.0], [1.0, 1.0]])
    assert parts_of(stacked @ stacked.T, 5).tolist() == [10.0, 4.0]


def test_rows_and_environments_that_were_left_out() -> None:
    """A group of which nothing was learned adds nothing; gradients weigh by their rows; what is not finite is no
    figure."""
    meter = NoiseMeter(4)
    owners = torch.tensor([0, 0, 0, 1])  # environments 2 and 3 have no rows; a group has one on average
    told = meter.look(owners, lambda rows: torch.tensor([float(len(rows))]))
    assert told["noise/signal"] == pytest.approx((2 * (9 * 1)) / (4 * 3))  # 9 = 3 rows of gradient 3, 1 = 1 row of 1
    assert meter.look(owners, lambda rows: torch.tensor([float("nan")])) == {}
    assert meter.look(owners[:1], lambda rows: torch.tensor([1.0])) == {}
    assert meter.scale()["noise/scale"] == pytest.approx(told["noise/variance"] / told["noise/signal"])


def test_a_rank_without_a_row_sees_nothing_and_goes_on() -> None:
    """All rows that are learned from may be another rank's."""
    kind = Categorical(2)
    one, rows = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    batch = Batch(torch.zeros(0, 3), None, rows, one, one, one, one, environments=rows, place=torch.full((64,), -1))
    ppo = PPO(ActorCritic(3, kind, hidden=(4,)), kind, PPOConfig().for_spaces(False, False), NoiseMeter(4))
    for _ in range(2):
        assert set(ppo._noise(batch)) <= {"time/noise_s"}


def test_without_a_signal_there_is_no_scale() -> None:
    """Gradients that cancel out: no number of environments in sight would be enough."""
    meter = NoiseMeter(4)
    meter.look(torch.arange(4), lambda rows: torch.tensor([(-1.0) ** int(rows[0])]))
    assert meter.scale() == {}


def test_it_looks_as_often_as_its_share_of_the_update_allows() -> None:
    """The first update, then every so many: rows and calls of its looks stay within 3 % of those of the updates."""
    for num_envs, passes, steps in ((32, 4, 16), (64, 4, 60), (512, 2, 26), (2_048, 10, 640), (8, 10, 80)):
        meter, looks = NoiseMeter(num_envs), 0
        for _ in range(2_000):
            if meter.due(passes, steps):
                looks += 1
                meter.look(torch.arange(num_envs), lambda rows: torch.ones(1))
        seen = min(num_envs, MOST_ENVS) / num_envs
        assert 0 < (looks - 1) * seen <= 0.03 * passes * 2_000
        assert 0 < (looks - 1) * 4 * 0.5 <= 0.03 * steps * 2_000


def test_environments_take_turns() -> None:
    """Of more than it looks at, each look takes the next ones."""
    meter, seen = NoiseMeter(MOST_ENVS + 64), set()
    for _ in range(2):
        meter.look(torch.arange(MOST_ENVS + 64), lambda rows: seen.update(rows.tolist()) or torch.ones(1))
    assert seen == set(range(MOST_ENVS + 64))


class Enough(shoal.Callback):
    """Ends a run after three epochs."""

    def on_epoch(self, training) -> None:
        if training.epoch == 3:
            training.stop("enough")


def test_a_run_shows_it_and_resumes_to_the_same_figures(tmp_path) -> None:
    """Through shoal.train: in every row, on the console, in the page; three epochs and three more are as six; a
    checkpoint that knows nothing of it resumes too, and so does a run that is to do without."""
    common = {"runs_dir": str(tmp_path), "num_envs": 8, "rollout_steps": 32, "minibatch_size": 64, "epochs": 6}
    common["update_epochs"] = 40  # so much work that each update is looked at
    stream = StringIO()
    shoal.train("CartPole-v1", name="whole", stream=stream, **common)
    shoal.train("CartPole-v1", name="parts", stream=StringIO(), callbacks=[Enough()], **common)
    assert len(Run.open("parts", tmp_path).metrics()) == 3
    shoal.train(resume=tmp_path / "parts", stream=StringIO())
    rows = [Run.open(name, tmp_path).metrics() for name in ("whole", "parts")]
    figures = [[{k: v for k, v in row.items() if k.startswith("noise/")} for row in one] for one in rows]
    assert figures[0] == figures[1]
    assert all("noise/variance" in row for row in figures[0])
    assert "noise scale" in stream.getvalue()
    assert "noise scale" in (tmp_path / "whole" / "report.html").read_text()
    off = {"noise_meter": False, "callbacks": [Enough()]}
    shoal.train("CartPole-v1", name="off", stream=(quiet := StringIO()), **off, **common)
    shoal.train(resume=tmp_path / "off", noise_meter=True, stream=StringIO())  # on from here
    assert ["noise/variance" in row for row in Run.open("off", tmp_path).metrics()] == [False] * 3 + [True] * 3
    assert "noise scale" not in quiet.getvalue()
    saved = [checkpoint.load_latest(Run.open(name, tmp_path).checkpoints).tensors for name in ("whole", "off")]
    for name in saved[1]:
        assert name.startswith("meter.") or np.array_equal(saved[0][name], saved[1][name]), name
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert "noise_meter" not in config["run"]  # at its default an option that came later is not written down
