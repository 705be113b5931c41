"""A trained policy for use elsewhere: a callable from observation to action. No training code is imported."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from shoal.config import TrainConfig, from_dict
from shoal.core.arrays import Array, Layout, conform
from shoal.core.errors import NotFinite, ShapeError
from shoal.core.seeds import SCHEME
from shoal.core.spaces import space_from_data
from shoal.learn.encoders import check_masks
from shoal.learn.policy import Agent, OwnNetwork, Resolver
from shoal.learn.weights import by_part, load_weights
from shoal.runs import best
from shoal.runs import checkpoint as checkpoints
from shoal.runs.checkpoint import Checkpoint, CheckpointError
from shoal.runs.folder import Run
from shoal.runs.kinds import open_training
from shoal.vector.preprocess import Observer, Preprocess


class DeployedPolicy:
    """`policy(observation) -> action`, for one observation or, with `batched=True`, for many at once.

    It can be pickled and copied, so that a pool of processes may act with it. `skipped` names newer checkpoints that
    were damaged and passed over.
    """

    def __init__(
        self,
        agent: Agent,
        action_space: spaces.Space[Any],
        config: TrainConfig,
        epoch: int,
        *,
        features_version: str | None = None,
        skipped: Sequence[str] = (),
        seed_scheme: int = SCHEME,
        chosen: str = "",
    ) -> None:
        self.agent, self.action_space, self.config, self.epoch = agent, action_space, config, epoch
        self.features_version, self.skipped = features_version, list(skipped)
        self.seed_scheme = seed_scheme  # of the episodes that it was trained on
        self.chosen = chosen  # what to tell a person of the epoch, where it is not the newest
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, observation: Any, *, deterministic: bool = True, batched: bool = False) -> Any:
        """The action for an observation of the space the policy was trained on."""
        layout = self.agent.features.layout
        if batched:
            rows = self._batch(observation)
        else:
            rows = layout.allocate(1)
            try:
                layout.write(observation, rows, 0)
            except ShapeError as error:
                if self._could_be_a_batch(observation):
                    hint = "This looks like many observations: call policy(observations, batched=True)"
                elif self.recipe:
                    hint = (
                        f"The run was trained with {self.recipe}: take observations from policy.wrap(env), or from "
                        "policy.observer(space), which treat them so"
                    )
                else:
                    raise
                raise ShapeError(f"{error.message}. {hint}") from None
        try:
            layout.check_finite(rows, "a policy answers finite numbers only:")
        except NotFinite as error:
            raise NotFinite(error.message, env=error.row if batched else None) from None
        actions = self.act(rows, deterministic)
        return actions if batched else _single(actions[0], self.action_space)

    @property
    def recipe(self) -> Preprocess:
        """What the run does to observations before its policy sees them: `--frame-stack 4` and the like."""
        return Preprocess.of(self.config)

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """An environment whose observations are as this policy takes them, an action repeated as in training. What the
        run had as `--wrapper` is the caller's to put around it first."""
        wrapped = self.recipe(env) if self.recipe else env
        self._check_space(wrapped.observation_space)
        return wrapped

    def observer(self, space: spaces.Space[Any]) -> Observer:
        """The same for raw observations that come from no environment, those of a camera, say: `first` at the beginning
        of an episode and `next` after it give what the policy takes."""
        observer = Observer(self.recipe, space)
        self._check_space(observer.space)
        return observer

    def _check_space(self, space: spaces.Space[Any]) -> None:
        trained = self.agent.features.layout
        if trained.leaves != Layout(space).leaves:
            raise ValueError(f"expected observations that become {trained.space}, as in training, got {space}")

    @torch.inference_mode()
    def act(self, rows: list[Array], deterministic: bool, noise: torch.Tensor | None = None) -> Array:
        """Actions for observation leaves `[B, *shape]`, as the environment takes them; `noise` as `kind.noise` gives it
        decides sampled ones, else the policy's own generator does."""
        if self.agent.features.mask_leaf is not None:
            check_masks(rows[self.agent.features.mask_leaf], self.agent.kind.choices)
        params = self.agent.distribution([torch.from_numpy(row) for row in rows]).cpu()
        kind = self.agent.kind
        if deterministic:
            return kind.to_env(kind.mode(params).numpy())
        noise = kind.noise((len(params),), self.generator) if noise is None else noise
        return kind.to_env(kind.sample(params, noise).numpy())

    def check_features(self, version: str | None) -> None:
        """Refuse an environment that says its observations mean other things than those the policy was trained on."""
        if version is not None and self.features_version not in (None, version):
            raise ValueError(
                f"the policy was trained on features {self.features_version}, this environment gives {version}: the "
                "same numbers would mean other things. Use the version of shoal that trained it, or train anew"
            )

    def _batch(self, observations: Any) -> list[Array]:
        """Many observations as leaf arrays `[B, *shape]`, checked."""
        layout = self.agent.features.layout
        parts = layout.take_apart(observations)
        size = np.shape(parts[0])[:1]
        names = ["/".join(map(str, path)) for path, _, _ in layout.leaves]
        return [
            conform(part, f"the observations {name}".strip(), (*(size or (1,)), *shape), dtype)
            for part, name, (_, shape, dtype) in zip(parts, names, layout.leaves, strict=True)
        ]

    def _could_be_a_batch(self, observation: Any) -> bool:
        layout = self.agent.features.layout
        pairs = zip(layout.take_apart(observation), layout.leaves, strict=True)
        return all(np.shape(part)[1:] == shape and np.ndim(part) == len(shape) + 1 for part, (_, shape, _) in pairs)


def read_policy(
    run: str | Path,
    resolve: Resolver,
    *,
    epoch: int | None = None,
    checkpoint: str | int | None,
    network: nn.Module | None,
    runs_dir: str | Path,
) -> DeployedPolicy:
    """The policy of a run: the best by the evaluations while it trained, if there were any, else the newest; or that
    of an epoch kept. `checkpoint` may be "last", "best" or an epoch. The caller says what `skipped` and `chosen` name.

    A checkpoint may come from anybody. What it says of its network goes to `resolve` and nowhere else.
    """
    folder = open_training(run, Path(runs_dir))
    config: TrainConfig = from_dict(folder.config).replace(device="cpu")
    if config.ppo.encoder == "auto":  # a run that names none has no pictures, or is older than encoders
        config = config.replace(encoder="flat")
    wanted, chosen = best.chosen(folder, checkpoint) if epoch is None else (epoch, "")
    found = _load(folder, wanted, by_name=epoch is not None or checkpoint is not None)
    try:
        observation_space, action_space, own_network, version = _described(found)
        part = by_part(found.tensors)
        if network is None and own_network is not None:
            agent = Agent(
                observation_space, action_space, config.ppo, own_network=_resolved(resolve, *own_network, found)
            )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise CheckpointError(
            f"{found.path} is whole, but does not describe a policy as shoal writes it: {type(error).__name__}: {error}"
        ) from error
    if network is not None or own_network is None:
        agent = Agent(observation_space, action_space, config.ppo, network=network)
    try:
        load_weights(agent.network, part.get("network", {}))
        agent.set_moments_state(part.get("moments", {}))
    except CheckpointError as error:
        raise CheckpointError(f"{found.path}: {error}") from None
    return DeployedPolicy(
        agent,
        action_space,
        config,
        found.epoch,
        features_version=version,
        skipped=found.skipped,
        seed_scheme=int(found.meta.get("seed_scheme", 1)),
        chosen=chosen if found.epoch == wanted else "",
    )


def _load(folder: Run, epoch: int | None, by_name: bool) -> Checkpoint:
    """Of that epoch, or the newest; where nobody named the epoch, the newest stands in for a damaged one."""
    if epoch is None:
        return checkpoints.load_latest(folder.checkpoints)
    try:
        return checkpoints.load(folder.checkpoints, epoch)
    except CheckpointError as error:
        if by_name:
            raise
        found = checkpoints.load_latest(folder.checkpoints)
        return dataclasses.replace(found, skipped=[*found.skipped, str(error)])


def _resolved(resolve: Resolver, name: str, options: dict[str, Any], found: Checkpoint) -> OwnNetwork:
    try:
        return resolve(name, options)
    except ValueError as error:  # it is refused by name, in words of its own
        raise CheckpointError(f"{found.path}: {error}") from error


def _described(
    found: Checkpoint,
) -> tuple[spaces.Space[Any], spaces.Space[Any], tuple[str, dict[str, Any]] | None, str | None]:
    """What a checkpoint says of its policy: both spaces, the network, the version of its features."""
    meta = found.meta
    observation_space, action_space = (space_from_data(data) for data in meta["spaces"])
    network, version = meta.get("network"), meta.get("features")
    if network is not None:
        name, options = network
        if not isinstance(name, str) or not isinstance(options, dict):
            raise TypeError(f"expected the network as [name, options], got {network!r:.80}")
        network = name, options
    if version is not None and not isinstance(version, str):
        raise TypeError(f"expected the features' version as text, got {version!r:.80}")
    return observation_space, action_space, network, version


def _single(action: Any, space: spaces.Space[Any]) -> Any:
    return (
        int(action)
        if isinstance(space, spaces.Discrete)
        else np.asarray(action, space.dtype).reshape(space.shape or ())
    )
