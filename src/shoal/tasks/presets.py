"""Settings that work, by environment. `shoal train ID` starts from these; flags given by hand win.

A preset is what differs from the defaults of `shoal.config`. Found by search on the training stream of seeds, confirmed
on others (tests/learning).
"""

from __future__ import annotations

import json
from typing import Any

from shoal.config import TrainConfig
from shoal.tasks import options_class, options_to_kwargs

DEFAULT: dict[str, Any] = {"steps": 500_000}

PRESETS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "num_envs": 32,
        "rollout_steps": 32,
        "minibatch_size": 256,
        "update_epochs": 4,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "learning_rate": 2.5e-3,
        "steps": 200_000,
        "target_return": 475.0,
    },
    "Acrobot-v1": {
        "num_envs": 16,
        "learning_rate": 1e-3,
        "normalise_observations": True,
        "normalise_rewards": True,
        "steps": 300_000,
    },
    "Pendulum-v1": {
        "num_envs": 16,
        "gamma": 0.95,
        "update_epochs": 10,
        "learning_rate": 1e-3,
        "normalise_observations": True,
        "normalise_rewards": True,
        "steps": 300_000,
    },
    "MountainCarContinuous-v0": {  # wide noise at first: white noise of standard deviation 1 hardly ever climbs out
        "num_envs": 32,
        "rollout_steps": 256,
        "minibatch_size": 512,
        "gamma": 0.999,
        "update_epochs": 10,
        "learning_rate": 1e-3,
        "normalise_observations": True,
        "normalise_rewards": True,
        "initial_std": 3.0,
        "steps": 600_000,
    },
}
PRESETS["cage2"] = {
    "num_envs": 512,
    "rollout_steps": 100,
    "minibatch_size": 8192,
    "update_epochs": 4,
    "learning_rate": 2e-3,
    "lr_final": 1e-5,
    "entropy_coef": 0.01,
    "entropy_schedule": "linear",
    "normalise_rewards": True,
    "hidden": (128, 128),
    "activation": "relu",
    "steps": 12_000_000,
}
PRESETS["shoal/CartPole-v1"] = PRESETS["CartPole-v1"]

BUDGETS = ("steps", "epochs", "episodes")


def config_for(task: str, **options: Any) -> TrainConfig:
    """The settings of `shoal train TASK`: the preset, then the options given by flat name."""
    config = TrainConfig(task=task).replace(**{**DEFAULT, **PRESETS.get(task, {})})
    own = options_class(task)
    if own is not None:  # the task's own flags at their defaults: the same run from Python as from the command line
        config = config.replace(env_kwargs=options_to_kwargs(own(**json.loads(config.env_kwargs))))
    if any(options.get(name) is not None for name in BUDGETS):
        config = without_budget(config)
    return config.replace(**options)


def without_budget(config: TrainConfig) -> TrainConfig:
    """The same run, to be given another budget."""
    return config.replace(**dict.fromkeys(BUDGETS))
