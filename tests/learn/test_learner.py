"""The learner: behaviour and update agree to the bit, epochs and updates keep their bounds, state comes and goes."""

from __future__ import annotations

import functools
from io import StringIO

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from tiny_envs import Identity, Scripted
from torch import nn

import shoal
from shoal.config import TrainConfig
from shoal.core.errors import NotFinite
from shoal.learn.learner import Learner
from shoal.vector.make import make_vec
from shoal.vector.serial import SerialVectorEnv

KINDS = ["discrete", "masked", "multi", "box"]


def identity(kind: str, num_envs: int = 4) -> SerialVectorEnv:
    return SerialVectorEnv([functools.partial(Identity, kind)] * num_envs)


def learner_for(env, module=None, **options) -> Learner:
    defaults = {"rollout_steps": 16, "hidden": (16,), "minibatch_size": 32, "num_envs": env.num_envs, "epochs": 10}
    learner = Learner(TrainConfig().replace(**{**defaults, **options}), env, network=module)
    learner.start()
    return learner


def epoch(learner: Learner, progress: float = 0.0) -> dict[str, float]:
    return learner.update(learner.estimate(learner.collect()), progress)


@pytest.mark.parametrize("interval", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_ratio_is_one(kind, interval) -> None:
    """Before any step the policy at update is the one that acted: masks, normalisation and all, on every row."""
    whole = {"minibatch_size": 10**6, "update_epochs": 1}  # the update's first and only minibatch is everything
    learner = learner_for(identity(kind), normalise_observations=True, update_interval=interval, **whole)
    for _ in range(2 * interval):  # so that the statistics have moved once
        epoch(learner)
    batch = None
    while batch is None:
        batch = learner.estimate(learner.collect())
    with torch.no_grad():
        params = learner.agent.network.policy(batch.features)
        if batch.masks is not None:
            params = learner.agent.kind.mask(params, batch.masks)
        ratio = (learner.agent.kind.log_prob(params, batch.actions) - batch.log_probs).exp()
        entropy = float(learner.agent.kind.entropy(params).mean())
    assert len(ratio) == 64 * interval
    assert float((ratio - 1).abs().max()) < 1e-5
    assert learner.agent.moments.count == 2 * interval * 64
    metrics = learner.update(batch, 0.0)
    assert metrics["policy/kl"] == pytest.approx(0, abs=1e-7)  # float32
    assert metrics["policy/entropy"] == pytest.approx(entropy, rel=1e-5)
    learner.env.close()


def test_the_behaviour_log_probs_are_of_the_policy_that_acted() -> None:
    """An update between acting and estimating would show: log-probabilities come from the stored parameters."""
    learner = learner_for(identity("discrete"))
    rollout = learner.collect()
    acted = learner.agent.kind.log_prob(rollout.params.flatten(0, 1), rollout.actions.flatten())
    with torch.no_grad():
        learner.agent.network.policy_head.bias += torch.tensor([3.0, 0.0, 0.0, 0.0])
    batch = learner.estimate(rollout)
    assert torch.equal(batch.log_probs, acted)
    learner.env.close()


def test_statistics_move_after_the_update_and_not_before() -> None:
    """Collecting and estimating leave the scale of observations alone, but for the first rollout: see the next test."""
    learner = learner_for(identity("box"), normalise_observations=True)
    epoch(learner)
    assert learner.agent.moments.count == 64
    batch = learner.estimate(learner.collect())
    assert learner.agent.moments.count == 64
    learner.update(batch, 0.0)
    assert learner.agent.moments.count == 128
    learner.env.close()


class Large(gym.Env):
    """Observations around 1,000: all would be cut to 10 where nothing is known of them."""

    observation_space, action_space = spaces.Box(0, 2000, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._see(), {}

    def _see(self):
        return self.np_random.uniform(900, 1100, 2).astype(np.float32)

    def step(self, action):
        return self._see(), 0.0, False, False, {}


@pytest.mark.parametrize("interval", [1, 2])
def test_the_first_rollout_is_learnt_from_as_scaled_by_itself(interval) -> None:
    """Not as raw numbers that are all alike; log-probabilities stay those of the policy that acted. Taken in once."""
    learner = learner_for(SerialVectorEnv([Large] * 4), normalise_observations=True, update_interval=interval)
    batch = None
    while batch is None:
        rollout = learner.collect()
        batch = learner.estimate(rollout)
    assert learner.agent.moments.count == 64 * interval
    assert batch.features.mean(0).abs().max() < 1e-3
    torch.testing.assert_close(batch.features.std(0), torch.ones(2), rtol=0.02, atol=0)
    acted = learner.agent.kind.log_prob(rollout.params.flatten(0, 1), rollout.actions.flatten())
    assert torch.equal(batch.log_probs, acted)
    learner.update(batch, 0.0)
    assert learner.agent.moments.count == 64 * interval
    learner.env.close()


def test_updates_come_every_interval_and_marks_with_them() -> None:
    """With an interval of 3: two epochs without an update, then one of 3 rollouts; steps count every epoch."""
    learner = learner_for(identity("discrete"), update_interval=3)
    before = {name: p.clone() for name, p in learner.agent.network.state_dict().items()}
    for number in (1, 2):
        assert epoch(learner) == {}
        assert (learner.epoch, learner.marked_epoch) == (number, 0)
    assert all(torch.equal(p, before[name]) for name, p in learner.agent.network.state_dict().items())
    metrics = epoch(learner)
    assert metrics["optim/gradient_steps"] == 4 * 6  # 3 * 64 samples in minibatches of 32, four passes
    assert (learner.epoch, learner.marked_epoch, learner.steps) == (3, 3, 192)
    learner.env.close()


def test_a_longer_interval_is_a_longer_rollout() -> None:
    """Two rollouts of 8 steps with an update after both equal one of 16: advantages, targets, log-probabilities."""
    batches = []
    for steps, interval in ((16, 1), (8, 2)):
        env = SerialVectorEnv([functools.partial(Scripted, place) for place in range(3)])
        learner = learner_for(env, rollout_steps=steps, update_interval=interval)
        batch = None
        while batch is None:
            batch = learner.estimate(learner.collect())
        batches.append(batch)
        env.close()
    for name in ("features", "actions", "advantages", "targets", "log_probs"):
        torch.testing.assert_close(getattr(batches[0], name), getattr(batches[1], name))


def test_learning_does_not_depend_on_torchs_global_generator() -> None:
    """A network with dropout learns the same from the same seed, and the caller's random numbers stay."""

    class Dropout(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Dropout(0.5))
            self.head, self.critic = nn.Linear(16, 4), nn.Linear(16, 1)

        def policy(self, features):
            return self.head(self.body(features))

        def value(self, features):
            return self.critic(self.body(features)).squeeze(-1)

    results = []
    for disturbance in (1, 2):
        torch.manual_seed(0)
        network = Dropout()
        learner = learner_for(identity("discrete"), module=network)
        torch.manual_seed(disturbance)
        expected = torch.Generator().manual_seed(disturbance)
        epoch(learner)
        assert torch.equal(torch.rand(3), torch.rand(3, generator=expected))
        results.append(network.head.weight.detach().clone())
        learner.env.close()
    assert torch.equal(*results)


def test_an_empty_batch_changes_nothing_and_is_counted() -> None:
    """Every transition masked out: no update, no crash, the rollout goes on."""
    learner = learner_for(identity("discrete"), normalise_observations=True, normalise_rewards=True)
    rollout = learner.collect()
    rollout.valid[:] = False
    before = learner.agent.network.policy_head.weight.clone()
    assert learner.update(learner.estimate(rollout), 0.0) == {"guard/empty_batches": 1}
    assert torch.equal(learner.agent.network.policy_head.weight, before)
    assert learner.agent.moments.count == 0
    epoch(learner)
    assert learner.agent.moments.count == 64
    learner.env.close()


class Poisonous(Scripted):
    """In environment 1, gives what must not be learned from."""

    def __init__(self, place: int, poison: str) -> None:
        super().__init__(place)
        self.poison = poison if place == 1 else ""

    def step(self, action):
        seen, reward, terminated, truncated, info = super().step(action)
        if self.poison == "observation":
            seen = seen * np.nan
        if self.poison == "reward":
            reward = 1e300  # finite for the environment, infinite as float32
        return seen, reward, terminated, truncated, info


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize("poison", ["observation", "reward"])
@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "serial"])
def test_nothing_that_is_not_finite_is_learned_from(poison, foreign) -> None:
    """Whoever steps the environments: an error names the environment, and the statistics stay clean."""
    factories = [functools.partial(Poisonous, place, poison) for place in range(3)]
    env = SyncVectorEnv(factories) if foreign else SerialVectorEnv(factories)
    learner = learner_for(env, normalise_observations=True, normalise_rewards=True)
    with pytest.raises(NotFinite, match=rf"{poison}.*finite.*\[environment 1"):
        epoch(learner)
    assert learner.agent.moments.count == learner.reward_scale.moments.count == 0
    env.close()


def copy_state(source: Learner, target: Learner, **options) -> list[str]:
    tensors, meta = source.state()
    return target.set_state({name: np.array(value) for name, value in tensors.items()}, meta, **options)


def same_state(one: Learner, other: Learner) -> bool:
    first, second = one.state()[0], other.state()[0]
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_goes_on_to_the_same_bits(kind) -> None:
    """In one process, after two epochs and in the middle of episodes, with everything that has a state."""
    options = {"normalise_observations": True, "normalise_rewards": True, "rollout_steps": 11}
    one, other = (learner_for(identity(kind), **options) for _ in range(2))
    for _ in range(2):
        epoch(one)
    assert copy_state(one, other) == []
    assert same_state(one, other)
    for _ in range(2):
        epoch(one)
        epoch(other)
    assert same_state(one, other)
    assert list(one.tracker.recent_returns) == list(other.tracker.recent_returns)
    assert len(one.tracker.recent_returns) > 0
    for learner in (one, other):
        learner.env.close()


def test_state_in_the_middle_of_a_rollout_is_that_of_its_beginning() -> None:
    """What was collected since the last update is collected again, to the same bits."""
    one, other = (learner_for(identity("discrete"), update_interval=2) for _ in range(2))
    for _ in range(2):
        epoch(one)
    saved = one.state()[0]
    epoch(one)  # the first half of the next update's data
    assert all(np.array_equal(saved[name], value) for name, value in one.state()[0].items())
    copy_state(one, other)
    assert other.epoch == 2
    epoch(one)
    epoch(other), epoch(other)
    assert same_state(one, other)
    for learner in (one, other):
        learner.env.close()


def test_another_number_of_environments_needs_reshard() -> None:
    """Refused without it; with it counts and statistics stay, unfinished episodes go, and it is said."""
    one = learner_for(identity("discrete", 4), normalise_rewards=True)
    other = learner_for(identity("discrete", 6), normalise_rewards=True)
    for _ in range(3):
        epoch(one)
    with pytest.raises(ValueError, match=r"checkpoint is of 4 environments, this run has 6. Add --reshard"):
        copy_state(one, other)
    assert copy_state(one, other, reshard=True) == ["resharded from 4 to 6 environments"]
    assert other.tracker.completed == one.tracker.completed == 12
    assert list(other.tracker.recent_returns) == list(one.tracker.recent_returns)
    assert other.tracker.returns.tolist() == [0] * 6
    assert other.reward_scale.moments.count == one.reward_scale.moments.count
    assert other.epoch == 3
    epoch(other)
    for learner in (one, other):
        learner.env.close()


def test_a_foreign_vector_environment_begins_new_episodes() -> None:
    """It cannot give its state: said, no half episode is carried over, and not the same episodes as at the start."""

    def envs() -> SyncVectorEnv:
        return SyncVectorEnv([lambda: gym.make("CartPole-v1")] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)

    one, other = (learner_for(envs(), rollout_steps=9, normalise_rewards=True) for _ in range(2))
    beginning = [leaf.copy() for leaf in one.collector.current()]
    epoch(one)
    assert one.tracker.returns.tolist() == [9, 9]
    assert copy_state(one, other) == ["SyncVectorEnv cannot give its state: every environment began a new episode"]
    assert other.tracker.returns.tolist() == [0, 0]
    assert other.tracker.lengths.tolist() == [0, 0]
    assert other.reward_scale.returns.tolist() == [0, 0]
    assert not np.array_equal(other.collector.current()[0], beginning[0])
    for learner in (one, other):
        learner.env.close()


@pytest.mark.parametrize(
    ("observations", "actions"), [(spaces.Discrete(5), spaces.Discrete(4)), (spaces.Discrete(4), spaces.Discrete(2))]
)
def test_other_spaces_are_refused(observations, actions) -> None:
    """The message names both environments' spaces."""

    class Other(Identity):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space, self.action_space = observations, actions

    one, other = learner_for(identity("discrete")), learner_for(SerialVectorEnv([Other] * 4))
    with pytest.raises(ValueError, match=r"checkpoint is of an environment with .*Discrete\(4\).*this one has"):
        copy_state(one, other)
    for learner in (one, other):
        learner.env.close()


def test_an_environment_that_does_not_come_back_is_named() -> None:
    """Replayed to another observation: the run goes on from what is there, and says which environment it is."""

    class Drifting(Identity):
        drift = 0

        def _see(self):
            seen = super()._see()
            if self.place == 1:
                self.shown = seen = (int(seen) + type(self).drift) % 4
            return seen

    def envs() -> SerialVectorEnv:
        def make(place: int):
            env = Drifting()
            env.place = place
            return env

        return SerialVectorEnv([functools.partial(make, place) for place in range(3)])

    one = learner_for(envs(), rollout_steps=10)
    epoch(one)
    Drifting.drift = 1
    other = learner_for(envs(), rollout_steps=10)
    (reason,) = copy_state(one, other)
    assert reason.endswith("did not come back to the observation saved (not deterministic?): 1")
    assert np.array_equal(other.collector.current()[0], other.env.block.observations[0])
    epoch(other)
    for learner in (one, other):
        learner.env.close()


def test_an_episode_that_cannot_be_reached_again_is_not_half_counted() -> None:
    """If the replay ends the episode, a new one begins, and its return and length start from nothing."""

    class Shrinking(Identity):
        limit = 16

        def step(self, action):
            seen, reward, *_, info = super().step(action)
            return seen, reward, self.clock == type(self).limit, False, info

    one = learner_for(SerialVectorEnv([Shrinking] * 2), rollout_steps=10, normalise_rewards=True)
    epoch(one)
    assert one.tracker.lengths.tolist() == [10, 10]
    Shrinking.limit = 7
    other = learner_for(SerialVectorEnv([Shrinking] * 2), rollout_steps=5, normalise_rewards=True)
    (reason,) = copy_state(one, other)
    assert reason.endswith(": 0, 1")
    assert other.tracker.lengths.tolist() == other.tracker.returns.tolist() == [0, 0]
    assert other.reward_scale.returns.tolist() == [0, 0]
    epoch(other), epoch(other)
    assert set(other.tracker.recent_lengths) == {7}
    for learner in (one, other):
        learner.env.close()


@pytest.mark.parametrize(
    ("kind", "epochs", "least"), [("discrete", 40, 0.9), ("masked", 30, 0.9), ("multi", 40, 0.9), ("box", 60, 0.5)]
)
def test_identity_environments_are_solved(kind, epochs, least) -> None:
    """Repeat what is shown: chance gives 0.25, 0.5, 0.42 and about -0.1 a step, a perfect policy 1."""
    options = {"learning_rate": 5e-3, "entropy_coef": 0.0, "gamma": 0.5, "update_epochs": 4, "minibatch_size": 64}
    learner = learner_for(identity(kind, 8), rollout_steps=32, lr_schedule="linear", **options)
    for number in range(epochs):
        epoch(learner, number / epochs)
    mean = np.mean(list(learner.tracker.recent_returns)[-30:]) / 16
    learner.env.close()
    assert mean > least


def test_cartpole_improves_with_everything_on() -> None:
    """Normalised observations and rewards, shared network, value clip, target KL: a few seconds of learning."""
    env = make_vec("CartPole-v1", 8, backend="serial")
    options = {"normalise_observations": True, "normalise_rewards": True, "network": "shared", "value_clip": 0.5}
    learner = learner_for(
        env, rollout_steps=64, minibatch_size=128, learning_rate=2e-3, target_kl=0.05, hidden=(32, 32), **options
    )
    for number in range(30):
        epoch(learner, number / 30)
    env.close()
    assert np.mean(list(learner.tracker.recent_returns)[-20:]) > 100


class Namesake(SyncVectorEnv):
    """Somebody's vector environment, with attributes that mean other things than training's of the same names."""

    final_obs, faults, slices, allocate, kill = "?", ["a", "b"], 7, None, "B"
    marked_state = after_rollout = features_version = 3

    def mark(self, lap):
        raise AssertionError

    def get_state(self):
        return np.zeros(3)

    def set_state(self):
        raise AssertionError


def test_names_alone_mean_nothing(tmp_path) -> None:
    """What an environment offers training it says by its class: any other trains as any, without false reports."""
    env = Namesake([functools.partial(Scripted, place) for place in range(3)], autoreset_mode=AutoresetMode.SAME_STEP)
    result = shoal.train("own", env=env, rollout_steps=16, steps=96, runs_dir=str(tmp_path), stream=StringIO())
    assert (result.status, result.steps, result.restarts) == ("finished", 96, 0)


def test_features_of_another_version_are_refused() -> None:
    """And the version is in the checkpoint; one that was saved without is taken."""

    class Versioned(SerialVectorEnv):
        features_version = "v1"

    def envs(version):
        env = Versioned([functools.partial(Identity, "discrete")] * 2)
        env.features_version = version
        return env

    one = learner_for(envs("v1"))
    assert one.state()[1]["features"] == "v1"
    with pytest.raises(ValueError, match="trained on features v1, this environment gives v2"):
        copy_state(one, learner_for(envs("v2")))
    with pytest.raises(ValueError, match="this environment gives None"):
        copy_state(one, learner_for(envs(None)))
    assert copy_state(learner_for(envs(None)), learner_for(envs("v2"))) == []
