"""Settings that work, by environment. `shoal train ID` starts from these; flags given by hand win.

A preset is what differs from the defaults of `shoal.config`. Found by search on the training stream of seeds, confirmed
on others (tests/learning).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from shoal.config import TrainConfig, chosen
from shoal.core.spelling import unaliased
from shoal.tasks import find, options_to_kwargs, task_or_default
from shoal.tasks.saved import parse_env_kwargs

# For environments without a preset; what each learns: docs and benchmarks/ppo/default_learning.py.
DEFAULT: dict[str, Any] = {
    "num_envs": 8,
    "rollout_steps": 256,
    "minibatch_size": 256,
    "update_epochs": 10,
    "learning_rate": 1e-3,
    "entropy_coef": "auto",
    "normalise_observations": True,
    "normalise_rewards": True,
    "steps": 1_000_000,
}

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
PRESETS["shoal/CartPole-v1"] = PRESETS["CartPole-v1"]

_PICTURES: dict[str, Any] = {  # PPO on pictures as Schulman et al. 2017 have it: one CNN, nothing behind it
    "num_envs": 8,
    "rollout_steps": 128,
    "minibatch_size": 256,
    "update_epochs": 4,
    "learning_rate": 2.5e-4,
    "clip": 0.1,
    "entropy_coef": 0.01,
    "hidden": (),
    "network": "shared",
}
# Of all ids that begin so, where an id has no settings of its own.
FAMILIES: dict[str, dict[str, Any]] = {
    # Of ALE's v5 are the sticky actions (0.25), the smallest set of actions and that a lost life ends nothing; its own
    # skipping is turned off, since it shows the last frame alone, without what blinks (Machado et al. 2018).
    "ALE/": {
        **_PICTURES,
        "env_kwargs": '{"frameskip": 1, "obs_type": "grayscale"}',
        "frame_skip": 4,
        "grey": True,
        "resize": 84,
        "frame_stack": 4,
        "clip_rewards": True,
        "steps": 10_000_000,
    },
    "MiniGrid-": {
        "num_envs": 16,
        "rollout_steps": 128,
        "minibatch_size": 256,
        "update_epochs": 4,
        "learning_rate": 1e-3,
        "entropy_coef": 0.01,
        "normalise_observations": True,  # codes of 0 to 10 that mean things: as pixels they would all be black
        "leave_out": ("mission",),
        "steps": 1_000_000,
    },
}
FAMILIES["BabyAI-"] = FAMILIES["MiniGrid-"]
PRESETS["MiniGrid-Empty-5x5-v0"] = {**FAMILIES["MiniGrid-"], "steps": 100_000}
PRESETS["MiniGrid-DoorKey-5x5-v0"] = {**FAMILIES["MiniGrid-"], "steps": 200_000}
PRESETS["CarRacing-v3"] = {
    **_PICTURES,
    "gae_lambda": 0.95,
    "frame_skip": 2,
    "grey": True,
    "resize": 64,
    "frame_stack": 2,
    "learning_rate": 1e-4,
    "clip": 0.2,
    "entropy_coef": 0.0,
    "update_epochs": 10,
    "normalise_rewards": True,
    "hidden": (256,),
    "steps": 4_000_000,
}

MOST_CLIP = 0.5  # of --auto-scale: beyond this hardly anything is clipped
BUDGETS = ("steps", "epochs", "episodes")


def preset_of(task: str) -> Mapping[str, Any]:
    """The settings of a task, of an id in the table, or those of any other."""
    name = task.rpartition(":")[2]
    found = None if name in PRESETS else find(task)
    if found is not None and found.preset is not None:
        return found.preset
    families = [settings for start, settings in FAMILIES.items() if name.startswith(start)]
    of_id: Mapping[str, Any] = PRESETS.get(name) or next(iter(families), DEFAULT)
    return of_id


def config_for(task: str, **options: Any) -> TrainConfig:
    """The settings of `shoal train TASK`: the preset, then the options given by flat name.

    Arguments of the environment are added to the preset's. What a wrapper leaves of an observation only its user knows,
    so with wrappers nothing is left out that is not asked for.
    """
    options = unaliased(options)
    preset = preset_of(task)
    if "env_kwargs" in options:
        options["env_kwargs"] = with_preset_kwargs(task, options["env_kwargs"])
    if options.get("wrappers"):
        options = {"leave_out": (), **options}
    config = TrainConfig(task=task).replace(**preset)
    known = task_or_default(task)
    if (
        known.Options is not None
    ):  # the task's own flags at their defaults: the same run from Python as from the command line
        task_options = known.Options(**json.loads(options.get("env_kwargs") or config.env_kwargs))
        options = {**options, "env_kwargs": options_to_kwargs(task_options)}
        config = config.replace(**unaliased(known.settings(task_options)))
    return _with_budget_of(config, options)


def with_preset_kwargs(task: str, given: str) -> str:
    """Arguments of the environment as JSON, beside those of the task's preset."""
    own = json.loads(preset_of(task).get("env_kwargs", "{}"))
    return json.dumps({**own, **parse_env_kwargs(given)}) if own else given


def config_without_preset(task: str, **options: Any) -> TrainConfig:
    """The settings of a run whose task is only a name, whatever else may be called so."""
    return _with_budget_of(TrainConfig(task=task).replace(**DEFAULT), unaliased(options))


def _with_budget_of(config: TrainConfig, options: dict[str, Any]) -> TrainConfig:
    if any(options.get(name) is not None for name in BUDGETS):
        config = without_budget(config)
    return config.replace(**options)


def auto_scaled(config: TrainConfig) -> tuple[TrainConfig, list[str]]:
    """`--auto-scale`: the task's own settings carried over to another number of environments, and what was chosen.

    The same samples in fewer, larger updates need larger steps: learning rate and clip range grow with the square root
    of the environments; minibatches, passes and budget stay.
    """
    base, ppo = own_settings(config).vector.num_envs, config.ppo
    assert isinstance(base, int)  # no preset says "auto"
    assert isinstance(config.vector.num_envs, int)  # settled before
    ratio = (config.vector.num_envs / base) ** 0.5
    changes: dict[str, Any] = {
        "learning_rate": float(f"{chosen(ppo.learning_rate) * ratio:.2g}"),
        "clip": min(float(f"{ppo.clip * ratio:.2g}"), max(ppo.clip, MOST_CLIP)),
    }
    lines = [
        f"auto-scale for {config.vector.num_envs} environments (settings are for {base}): {name} {old} -> {new}"
        for name, new in changes.items()
        for old in [getattr(ppo, name)]
        if old != new
    ]
    return config.replace(**changes), lines


def own_settings(config: TrainConfig) -> TrainConfig:
    """Those of a run's task, with nothing asked for but its own flags."""
    options = {"env_kwargs": config.env_kwargs} if task_or_default(config.task).Options is not None else {}
    return config_for(config.task, **options)


def without_budget(config: TrainConfig) -> TrainConfig:
    """The same run, to be given another budget."""
    return config.replace(**dict.fromkeys(BUDGETS))
