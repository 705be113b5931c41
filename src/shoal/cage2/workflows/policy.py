"""A policy under an order: its network, its weights on disk, and how it does on episodes that it has never seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from shoal.cage2.simulator.env import make
from shoal.cage2.workflows.aligned import OrderedVectorEnv
from shoal.cage2.workflows.conduct import Conduct, Share
from shoal.cage2.workflows.orders import Order, number_of
from shoal.config import PPOConfig, TrainConfig
from shoal.core.arrays import Array
from shoal.core.seeds import Stream, sequence
from shoal.learn.policy import Agent
from shoal.learn.weights import load_weights, weights_of
from shoal.runs import checkpoint

REWARD_SCALE = 0.1  # of training: returns of some tens become values of a few units; scores are never scaled
GAMMA = 0.99
MIX = (0.5, 0.5, 0.0)  # of bline, meander and sleep in red="mixed"
STEPS = 100  # of an episode: what a pull of the search is scored at


def order_config(
    *,
    seed: int,
    warm: bool,
    num_envs: int = 25,
    update_every_steps: int = 100,
    learning_rate: float = 0.002,
    minibatch_size: int | None = None,
) -> TrainConfig:
    """The settings of training one workflow (docs/workflows.md), and what they leave open.

    `warm`: training starts from weights that are good already. Such a policy is nearly certain of its actions, and a
    step of 0.002 that is small for a fresh network can undo it: larger minibatches, a KL limit, no entropy bonus.
    """
    return TrainConfig(task="cage2").replace(
        seed=seed,
        num_envs=num_envs,
        rollout_steps=update_every_steps,
        update_epochs=4,
        minibatch_size=minibatch_size or (1250 if warm else 500),
        learning_rate=learning_rate,
        gamma=GAMMA,
        clip=0.2,
        target_kl=0.03 if warm else None,
        entropy_coef=0.0 if warm else 0.01,
        entropy_schedule="linear",
        hidden=(128, 128),
        activation="relu",
        torch_threads=1,
    )


def ordered_env(
    order: str | int | Order,
    red: str,
    *,
    mask: str = "useful",
    steps: int = STEPS,
    mix: tuple[float, ...] = MIX,
) -> Any:
    """The environment of a workflow; `order` may be "drawn", `red` may be "mixed"."""
    given = order if order == "drawn" else number_of(order)
    return make(horizon=steps, red=red, mix=mix, features="memory", mask=mask, order=given)


def new_agent(env: Any, config: PPOConfig, seed: int = 0) -> Agent:
    """A fresh network for an ordered environment."""
    return Agent(env.observation_space, env.action_space, config, init_seed=derived_seed(seed, Stream.INIT))


def save_policy(folder: Path, agent: Agent, number: int, meta: dict[str, Any]) -> Path:
    """Keep a network's weights as checkpoint `number` of a folder: safetensors, checked, atomic."""
    tensors = {f"network.{name}": value for name, value in weights_of(agent.network).items()}
    checkpoint.save(folder, number, tensors, meta, keep=1)
    return folder


def load_policy(folder: str | Path, agent: Agent, features: str) -> dict[str, Any]:
    """Load the newest weights of a folder that `save_policy` wrote into an agent; returns their meta data."""
    found = checkpoint.load_latest(Path(folder))
    if found.meta.get("features") != features:
        raise ValueError(
            f"{folder}: expected weights for the features {features}, got {found.meta.get('features')}. "
            "Train or clone anew"
        )
    network = {name.removeprefix("network."): value for name, value in found.tensors.items()}
    load_weights(agent.network, network)
    return found.meta


class Exam:
    """The same held-out episodes for every candidate, played greedily: returns and tallies.

    `number` tells exams of one seed apart: 0 is the final one, others validate while training goes on.
    """

    def __init__(self, env: Any, episodes: int, seed: int, number: int = 0) -> None:
        self.seed = derived_seed(seed, Stream.EVALUATE, number)
        self.envs = OrderedVectorEnv(env, episodes, stream=Stream.EVALUATE)

    @torch.inference_mode()
    def take(self, agent: Agent) -> tuple[Array, Array]:
        """Returns float64[episode] of the environment's own reward, and tallies TALLY[episode]."""
        observations, _ = self.envs.reset(seed=self.seed)
        self.envs.take_episodes()
        layout, left = agent.features.layout, np.ones(self.envs.num_envs, np.bool_)
        while left.any():
            rows = [torch.from_numpy(np.asarray(part)) for part in layout.take_apart(observations)]
            params = agent.distribution(rows).cpu()
            actions = agent.kind.to_env(agent.kind.mode(params).numpy())
            observations, _, terminated, truncated, _ = self.envs.step(actions)
            left &= ~(terminated | truncated)
        episodes = self.envs.take_episodes()
        _, first = np.unique(episodes["env"], return_index=True)  # with drawn horizons some play more than one
        return episodes["cost"][first] / -10.0, episodes["tally"][first]

    def grade(self, agent: Agent) -> tuple[Share, Conduct]:
        """The score and the conduct, with their intervals."""
        returns, tallies = self.take(agent)
        return Share.of(returns), Conduct.of(tallies)


def derived_seed(seed: int, stream: Stream, *key: int) -> int:
    """A 31-bit seed of one purpose, by spawn keys."""
    return int(sequence(seed, stream, *key).generate_state(1, np.uint32)[0] >> 1)
