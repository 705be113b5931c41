"""`--init-from RUN`: begin with the weights and the normalisation of another run. The optimiser is new."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.config import PPOConfig, TrainConfig, from_dict
from shoal.core.spaces import space_from_data
from shoal.learn.learner import Learner
from shoal.learn.weights import by_part, load_weights
from shoal.runs import best, checkpoint, manifest
from shoal.runs.checkpoint import Checkpoint, CheckpointError
from shoal.runs.folder import Run
from shoal.runs.kinds import open_training

# Options that decide what the weights mean. Shapes would not tell: a tanh layer is as large as a relu layer.
_ARCHITECTURE = ("hidden", "activation", "network", "encoder")


@dataclass(frozen=True)
class Origin:
    """A checkpoint of another run."""

    name: str
    task: str
    ppo: PPOConfig
    found: Checkpoint
    chosen: str  # why that epoch, where it is not the newest

    @property
    def about(self) -> str:
        """For people."""
        return f"begins with the weights of {self.name} ({self.task}), epoch {self.found.epoch}"


def located(config: TrainConfig) -> TrainConfig:
    """With the other run by its path: a training in another folder of runs finds it too."""
    if not config.init_from:
        return config
    return config.replace(init_from=str(Run.open(config.init_from, Path(config.run.runs_dir)).path))


def find_origin(config: TrainConfig) -> Origin | None:
    """What a new run begins with, if it is not to begin anew."""
    if not config.init_from:
        if config.init_checkpoint:
            raise ValueError("--init-checkpoint says which checkpoint of --init-from RUN to begin with: add that")
        return None
    run = open_training(config.init_from, Path(config.run.runs_dir))
    theirs: TrainConfig = from_dict(run.config)
    try:
        epoch, chosen = best.chosen(run, config.init_checkpoint or None)
    except ValueError as error:
        raise ValueError(str(error).replace("--checkpoint", "--init-checkpoint")) from None
    folder = run.checkpoints
    found = checkpoint.load_latest(folder) if epoch is None else checkpoint.load(folder, epoch)
    return Origin(run.name, theirs.task, theirs.ppo, found, chosen.replace("--checkpoint", "--init-checkpoint"))


def begin_with(learner: Learner, origin: Origin, *, own_module: bool) -> dict[str, Any]:
    """Give a new learner the weights; returns what to note. What does not fit is refused by name.

    `own_module`: the network was given from Python, so its options say nothing of it.
    """
    try:
        notes = _fit(learner, origin, own_module)
        parts = by_part(origin.found.tensors)
        load_weights(learner.agent.network, parts.get("network", {}))
        if learner.agent.moments is not None:
            learner.agent.set_moments_state(parts.get("moments", {}))
        if learner.reward_scale is not None and "count" in parts.get("rewards", {}):
            learner.reward_scale.set_state(parts["rewards"], same_envs=False)
    except CheckpointError as error:
        raise CheckpointError(f"{origin.found.path}: {error}") from None
    except ValueError as error:
        raise ValueError(f"--init-from {origin.name}: {error}") from None
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise CheckpointError(
            f"{origin.found.path} is whole, but no run can begin with it: {type(error).__name__}: {error}"
        ) from error
    sha256 = manifest.read(origin.found.path)["files"][manifest.STATE]["sha256"]
    text = "; ".join([origin.about, *notes, *origin.found.skipped])
    return {"event": "began with", "text": text, "run": origin.name, "epoch": origin.found.epoch, "sha256": sha256}


def _fit(learner: Learner, origin: Origin, own_module: bool) -> list[str]:
    """Refuse what the weights do not fit; what they fit less well is returned as notes."""
    meta, notes = origin.found.meta, []
    ours = learner.env.single_observation_space, learner.env.single_action_space
    for what, saved, present, data in zip(
        ("observations", "actions"), meta["spaces"], ours, learner.state_of_spaces(), strict=True
    ):
        if json.dumps(_shape(saved)) != json.dumps(_shape(data)):
            raise ValueError(
                f"it was trained with {what} {space_from_data(saved)}, this run has {present}: expected the same "
                "names, shapes and types (limits may differ). Wrap the environment (--wrapper), or begin anew"
            )
        if what == "actions" and saved != data:
            notes.append(f"its actions were {space_from_data(saved)}, here they are {present}")
    version = learner.parts.features_version
    if meta.get("features") != version:
        raise ValueError(
            f"it was trained on features {meta.get('features')}, this environment gives {version}: the same numbers "
            "would mean other things. Begin anew"
        )
    own, theirs = learner.agent.own_network, meta.get("network")
    if not own_module:
        mine, its = (None if own is None else own.task), (None if theirs is None else theirs[0])
        if mine != its:
            what, here = (f"that of {name}" if name else "the usual one" for name in (its, mine))
            raise ValueError(f"its network is {what}, this run's is {here}: expected the same kind of network")
    _check_options(learner.config.ppo, origin, built_in=own is None and not own_module)
    if learner.config.ppo.normalise_rewards != origin.ppo.normalise_rewards:
        how = "scaled" if origin.ppo.normalise_rewards else "unscaled"
        notes.append(f"its values are of {how} rewards, and have to be learnt anew")
    return notes


def _check_options(ours: PPOConfig, origin: Origin, *, built_in: bool) -> None:
    names = ["normalise_observations", *(_ARCHITECTURE if built_in else ())]
    found = [(name, _of(origin.ppo, name), _of(ours, name)) for name in names]
    differ = [(name, theirs, mine) for name, theirs, mine in found if theirs != mine]
    if differ:
        was = ", ".join(_flag(name, theirs) for name, theirs, _ in differ)
        here = ", ".join(_flag(name, mine) for name, _, mine in differ)
        cure = " ".join(_flag(name, theirs) for name, theirs, _ in differ)
        raise ValueError(f"its weights are of {was}, this run has {here}: add {cure}")


def _of(config: PPOConfig, name: str) -> Any:
    value = getattr(config, name)
    return "flat" if value == "auto" else value  # of a run from before there were encoders


def _flag(name: str, value: Any) -> str:
    """An option as it is typed.

    >>> _flag("hidden", (64, 64)), _flag("normalise_observations", False)
    ('--hidden 64,64', '--no-normalise-observations')
    """
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {','.join(map(str, value)) if isinstance(value, tuple) else value}"


def _shape(data: Any) -> Any:
    """A space as data, without the limits of numbers; whether bytes are pictures' stays."""
    if isinstance(data, dict) and data.get("kind") == "Box":
        return {**data, "low": None, "high": data.get("high") == 255 if data.get("dtype") == "uint8" else None}
    if isinstance(data, dict):
        return {name: _shape(part) for name, part in data.items()}
    return [_shape(part) for part in data] if isinstance(data, list) else data
