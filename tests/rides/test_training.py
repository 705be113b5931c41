"""PPO on rides: the behaviour policy is replayed as it acted, and a run resumes to the same bits."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import shoal
from shoal.learn.learner import Learner
from shoal.runs import checkpoint
from shoal.runs.folder import Run
from shoal.tasks.networks import own_network
from shoal.tasks.presets import MOST_CLIP, auto_scaled, config_for
from shoal.training import make_envs

SMALL = {"customers": 5, "iterations": 2, "start": "myopic", "vehicles": 2}


def config(**options):
    own = {**SMALL, **options.pop("own", {})}
    settings = {"num_envs": 6, "policy_epochs": 2, "value_epochs": 3, "minibatch_size": 16, "log_interval": 1000}
    return config_for("rides", env_kwargs=json.dumps(own), **{**settings, "epochs": 4, **options})


@pytest.mark.parametrize("mask", ["soft", "hard", "off"])
def test_ratio_is_one_in_the_first_minibatch(mask):
    """With masks and exploration in the behaviour policy, its stored log-probabilities are those of the update."""
    settings = config(own={"mask": mask, "epsilon": 0.5})
    envs = make_envs(settings, None, lambda text: None)
    learner = Learner(settings, envs, own_network=own_network("rides", json.loads(settings.env_kwargs)))
    with torch.no_grad():  # an untrained residual is 0: make the network say something of its own
        for parameter in learner.agent.network.policy_head.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    learner.start()
    batch = learner.estimate(learner.collect())
    with torch.inference_mode():
        params = learner.agent.kind.mask(learner.agent.network.policy(batch.features), batch.masks)
    now = learner.agent.kind.log_prob(params, batch.actions)
    assert torch.allclose(now, batch.log_probs, atol=2e-6)
    assert len(batch) == 30
    envs.close()


def test_starts_as_the_policy_it_starts_from():
    """With a zero residual and no mask, the most likely offer is the one with the best start score."""
    settings = config(own={"mask": "off"})
    envs = make_envs(settings, None, lambda text: None)
    learner = Learner(settings, envs, own_network=own_network("rides", json.loads(settings.env_kwargs)))
    learner.start()
    rollout = learner.collect()
    offers = rollout.observations[[path[0] for path, _, _ in learner.stepper.layout.leaves].index("offers")]
    best = offers[:-1, :, :, 6].argmax(-1)  # the myopic column
    assert np.array_equal(rollout.params.argmax(-1).numpy(), best)
    envs.close()


def test_resumes_to_the_same_bits(tmp_path):
    """Four epochs at once, and two and two more from the checkpoint, give equal weights, days and buffers."""
    kept = {
        "runs_dir": str(tmp_path),
        "seed": 3,
        "lr_schedule": "constant",
        "entropy_schedule": "constant",
        "own": {"epsilon": 0.0},
    }
    shoal.train(config=config(name="whole", **kept))
    shoal.train(config=config(name="half", epochs=2, **kept))
    shoal.train(resume=tmp_path / "half", epochs=4)
    whole, half = (
        checkpoint.load_latest(Run.open(tmp_path / name, tmp_path).checkpoints).tensors for name in ("whole", "half")
    )
    assert whole.keys() == half.keys()
    assert [name for name in whole if not np.array_equal(whole[name], half[name])] == []


def test_policy_can_be_loaded_and_acts(tmp_path):
    """A run's policy is rebuilt with the task's own network and answers for a batch of observations."""
    result = shoal.train(config=config(runs_dir=str(tmp_path), name="run"))
    policy = shoal.load_policy(result.run)
    envs = make_envs(config(), None, lambda text: None)
    observations, _ = envs.reset(seed=0)
    actions = policy(observations, batched=True)
    assert actions.shape == (6,)
    assert ((actions >= 0) & (actions < 16)).all()
    envs.close()


def test_auto_scale_takes_larger_steps_for_more_environments():
    """Rate and clip range grow with the square root of the environments; the samples stay the same."""
    own = config_for("rides")
    scaled, lines = auto_scaled(own.replace(num_envs=4 * own.vector.num_envs))
    assert (scaled.ppo.learning_rate, scaled.ppo.clip) == (2 * own.ppo.learning_rate, 2 * own.ppo.clip)
    assert scaled.run == own.run
    assert scaled.ppo.minibatch_size == own.ppo.minibatch_size
    assert len(lines) == 2
    same, lines = auto_scaled(own)
    assert same == own
    assert lines == []
    far, _ = auto_scaled(own.replace(num_envs=4096))
    assert far.ppo.clip == MOST_CLIP


def test_the_settings_follow_from_where_the_advantages_come_from():
    """With credit and from rewards, from nothing and from a start; flags by hand still win."""

    def ppo(**own):
        return config_for("rides", env_kwargs=json.dumps(own)).ppo

    assert ppo(start="none").entropy_coef > 0 == ppo().entropy_coef == ppo(start="none", credit="rewards").entropy_coef
    assert ppo(start="none").gae_lambda > ppo(start="none", credit="rewards").gae_lambda == 0
    assert ppo().policy_epochs == 1 < ppo(credit="rebuilt").policy_epochs
    assert ppo(start="lookahead").clip < ppo(start="none").clip
    assert config_for("rides", env_kwargs='{"start": "none"}', clip=0.3).ppo.clip == 0.3


def test_every_training_from_rewards_but_the_taught_one_has_a_short_horizon():
    """The default, which starts taught and learns from rewards, keeps its settings: small steps of one pass."""

    def settings(**own):
        config = config_for("rides", env_kwargs=json.dumps(own))
        ppo = config.ppo
        return config.vector.num_envs, config.run.episodes, ppo.gae_lambda, ppo.clip, ppo.learning_rate

    for start in ("none", "myopic", "lookahead"):
        assert settings(start=start, credit="rewards") == (256, 12_800, 0.0, 0.2, 1e-3)
    assert settings() == settings(credit="rewards") == (64, 2_560, 0.95, 0.1, 3e-4)
    assert settings(start="lookahead") == (64, 2_560, 0.95, 0.1, 3e-4)  # with credit


def test_a_rollout_is_a_whole_day():
    """Other numbers of customers change the rollout with them, unless it is given by hand."""
    assert config_for("rides", env_kwargs='{"customers": 45}').ppo.rollout_steps == 45
    assert config_for("rides", env_kwargs='{"customers": 45}', rollout_steps=30).ppo.rollout_steps == 30
