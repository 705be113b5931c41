"""A trained policy for use elsewhere: a callable from observation to action. No training code is imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import nn

from shoal.config import TrainConfig, from_dict
from shoal.learn.agent import Agent
from shoal.learn.features import check_masks
from shoal.learn.weights import load_weights
from shoal.runs import checkpoint
from shoal.runs.store import Run
from shoal.vector.layout import Array
from shoal.vector.seeding import SCHEME
from shoal.vector.space_data import space_from_data


class DeployedPolicy:
    """`policy(observation) -> action`, for one observation or, with `batched=True`, for many at once."""

    def __init__(
        self,
        agent: Agent,
        action_space: spaces.Space[Any],
        config: TrainConfig,
        epoch: int,
        skipped: Sequence[str] = (),
        seed_scheme: int = SCHEME,
    ) -> None:
        self.agent, self.action_space, self.config, self.epoch = agent, action_space, config, epoch
        self.skipped = list(skipped)  # newer checkpoints that are damaged, and how
        self.seed_scheme = seed_scheme  # of the episodes that it was trained on
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, observation: Any, *, deterministic: bool = True, batched: bool = False) -> Any:
        """The action for an observation of the space the policy was trained on."""
        layout = self.agent.features.layout
        if batched:
            rows = [np.asarray(part) for part in layout.take_apart(observation)]
        else:
            rows = layout.allocate(1)
            layout.write(observation, rows, 0)
        actions = self.act(rows, deterministic)
        return actions if batched else _single(actions[0], self.action_space)

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


def load_policy(
    run: str | Path, *, epoch: int | None = None, network: nn.Module | None = None, runs_dir: str | Path = "runs"
) -> DeployedPolicy:
    """The newest policy of a run, or that of an epoch kept. A network of your own is given as `network`."""
    folder = Run.open(run, Path(runs_dir))
    config: TrainConfig = from_dict(folder.config).replace(device="cpu")
    kept = folder.checkpoints
    found = checkpoint.load_latest(kept) if epoch is None else checkpoint.load(kept, epoch)
    observation_space, action_space = (space_from_data(data) for data in found.meta["spaces"])
    agent = Agent(observation_space, action_space, config.ppo, network=network, own_network=found.meta.get("network"))
    part = {name.split(".", 1)[0]: {} for name in found.tensors}  # type: dict[str, dict[str, Array]]
    for name, value in found.tensors.items():
        part[name.split(".", 1)[0]][name.split(".", 1)[-1]] = value
    load_weights(agent.network, part["network"])
    agent.set_moments_state(part.get("moments", {}))
    return DeployedPolicy(
        agent, action_space, config, found.epoch, found.skipped, int(found.meta.get("seed_scheme", 1))
    )


def _single(action: Any, space: spaces.Space[Any]) -> Any:
    return (
        int(action)
        if isinstance(space, spaces.Discrete)
        else np.asarray(action, space.dtype).reshape(space.shape or ())
    )
