"""The visiting grid world as a domain: 24 orders of four regions, a hidden best one. `shoal search gridworld`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from shoal.callbacks import Callback, Training
from shoal.compiled.vector import CompiledVectorEnv
from shoal.config import TrainConfig
from shoal.core.arrays import Array
from shoal.core.seeds import Stream, sequence
from shoal.core.statistics import normal, standard_error
from shoal.environments import visiting
from shoal.environments.visiting import Visiting
from shoal.learn.learner import Learner
from shoal.learn.policy import Agent
from shoal.learn.weights import load_weights, weights_of
from shoal.runs import checkpoint
from shoal.search.bandit.orders import all_ranks
from shoal.search.domain import Domain, Fresh, Pull, Ranking, Say
from shoal.search.options import SearchConfig
from shoal.stopping import Episodes, Epochs, FirstOf, Update
from shoal.training import loop

EPISODES = 200  # of a verdict, and of each check on the way
CHECK_EVERY = 5  # updates
ALIGN = 2.0


@dataclass(frozen=True)
class GridworldOptions:
    """The world that is searched."""

    world: int = 0
    """Which of the worlds: it decides the hidden best order."""
    slip: float = 0.05
    """Probability that a move goes in a random direction."""


class Gridworld(Domain):
    """Pulls train a small policy that is rewarded for one order; the score is the world's own reward."""

    Options = GridworldOptions
    DEFAULTS: ClassVar = {"episodes_per_env": 300}  # with 50 about half of all fresh networks fail the gate
    judged = "visits"
    score = "reward of an episode of at most 500 steps"

    def __init__(self, config: SearchConfig, world: int = 0, slip: float = 0.05) -> None:
        self.config, self.slip = config, slip
        self.hidden = int(np.random.default_rng(world).integers(len(visiting.ORDERS)))
        self.points = all_ranks(4)
        self.names = [visiting.name_of(order) for order in range(len(visiting.ORDERS))]
        initials = ["".join(word[0].upper() for word in region.split("-")) for region in visiting.REGIONS]
        self.things = list(visiting.REGIONS)
        self.key = ", ".join(f"{code} {region}" for code, region in zip(initials, visiting.REGIONS, strict=True))
        self.codes = [" ".join(initials[region] for region in order) for order in visiting.ORDERS]
        Visiting(0, self.hidden, slip)  # refuses a wrong slip here

    def prepare(self, folder: Path, say: Say) -> Path | None:
        """Nothing is needed: a first pull starts from a fresh network."""
        return None

    def pull(self, item: int, *, start: Path | None, seed: int, folder: Path, say: Say) -> Pull:
        """Train until the order is kept to, or the budget is spent; then score on other episodes."""
        config = self.config
        envs = CompiledVectorEnv(Visiting(item, self.hidden, self.slip, ALIGN), config.num_envs)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            learner = Learner(_train_config(config, seed), envs)
            if start is not None:
                _load(learner.agent, start)
            learner.start()
            most = math.ceil(config.episodes_per_env * Visiting.max_episode_steps / config.update_every_steps)
            episodes = Episodes(config.episodes_per_env * config.num_envs)
            limit = FirstOf(Epochs(most, Update.of(learner.config)), episodes)
            reason = loop(Training(learner, limit), _UntilObedient(self, item, _word(seed, 1)))
            stopped, updates = "compliance" if reason == "compliance" else "budget", learner.epoch
            weights = folder / "weights"
            tensors = {f"network.{name}": array for name, array in weights_of(learner.agent.network).items()}
            checkpoint.save(weights, updates, tensors, {"order": self.names[item]}, keep=1)
            returns, conduct = self.examine(item, learner.agent, _word(seed, 0))
        finally:
            torch.set_num_threads(threads)
        details = {
            **conduct,
            "episodes": learner.tracker.completed,
            "updates": updates,
            "stopped": stopped,
            "evaluated": len(returns),
        }
        se = standard_error(returns)
        return Pull(float(returns.mean()), se, self.obeys(conduct, config.compliance_threshold), str(weights), details)

    def obeys(self, conduct: dict[str, Any], threshold: float) -> bool:
        """Visits in order, and all of them: keeping to an order by going nowhere does not count."""
        lows = [conduct[name]["low"] for name in ("compliance", "coverage")]
        return all(low is not None and low >= threshold for low in lows)

    def examine(self, item: int, agent: Agent, seed: int) -> tuple[Array, dict[str, Any]]:
        """Returns of held-out episodes, float64[episode], played greedily, and how the order was kept to."""

        def act(observations: Array) -> Array:
            params = agent.distribution([torch.from_numpy(observations)])
            return np.asarray(agent.kind.to_env(agent.kind.mode(params).numpy()))

        return self._play(item, act, seed)

    @torch.inference_mode()
    def _play(self, item: int, act: Any, seed: int, episodes: int = EPISODES) -> tuple[Array, dict[str, Any]]:
        envs = CompiledVectorEnv(Visiting(item, self.hidden, self.slip), episodes, stream=Stream.EVALUATE)
        observations, _ = envs.reset(seed=seed)
        returns, left = np.zeros(episodes), np.ones(episodes, np.bool_)
        finals = np.zeros((episodes, visiting.NUM_FEATURES), np.float32)
        while left.any():
            observations, rewards, terminated, truncated, _ = envs.step(act(observations))
            returns += np.where(left, rewards, 0.0)
            ended = left & (terminated | truncated)
            finals[ended] = envs.final_obs[ended]
            left &= ~ended
        compliant, _, visits = visiting.conduct(finals)
        some = visits > 0
        return returns, {
            "compliance": _share(compliant[some] / visits[some]),
            "coverage": _share(visits / 4),
        }

    def score_again(self, item: int, weights: Path, seed: int) -> Fresh:
        """The policy on episodes that neither the verdict nor the checks have seen."""
        envs = CompiledVectorEnv(Visiting(item, self.hidden, self.slip), 1)
        agent = Agent(envs.single_observation_space, envs.single_action_space, _train_config(self.config, 0).ppo)
        _load(agent, weights)
        returns, conduct = self.examine(item, agent, _word(seed, 2))
        return Fresh(float(returns.mean()), standard_error(returns), len(returns), conduct["compliance"])

    def ranking(self, folder: Path, say: Say) -> Ranking:
        """All orders by a scripted follower that takes the shortest way: what a perfect policy would earn."""
        say("ranking all 24 orders by a scripted follower")
        found = [self._play(item, visiting.follow, 0, 1000)[0] for item in range(len(self.names))]
        return Ranking(
            "a scripted follower of each order, 1,000 episodes",
            [float(returns.mean()) for returns in found],
            [standard_error(returns) for returns in found],
        )

    def episode(self, item: int, weights: Path) -> tuple[str, Any]:
        """The way of one episode over the grid."""
        from shoal.search.figures import way_figure

        envs = CompiledVectorEnv(Visiting(item, self.hidden, self.slip), 1, stream=Stream.EVALUATE)
        agent = Agent(envs.single_observation_space, envs.single_action_space, _train_config(self.config, 0).ppo)
        _load(agent, weights)
        observations, _ = envs.reset(seed=1)
        way, total, ended = [], 0.0, False
        while not ended:
            way.append((int(envs.state["row"][0]), int(envs.state["column"][0])))
            with torch.inference_mode():
                params = agent.distribution([torch.from_numpy(observations)])
                actions = agent.kind.to_env(agent.kind.mode(params).numpy())
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            total += float(rewards[0])
            ended = bool(terminated[0] or truncated[0])
        last = np.rint(envs.final_obs[0, :2] * (visiting.SIZE - 1)).astype(int)
        way.append((int(last[0]), int(last[1])))
        text = f"{self.names[item]}: {len(way) - 1} steps, reward {total:.2f}"
        corners = [(name, *corner) for name, corner in zip(visiting.REGIONS, visiting.CORNERS, strict=True)]
        return text, way_figure(way, corners, visiting.REGION, visiting.SIZE, text)


class _UntilObedient(Callback):
    """Ends a pull's training when its order is kept to, on episodes of its own."""

    def __init__(self, domain: Gridworld, item: int, seed: int) -> None:
        config = domain.config
        self.domain, self.item, self.seed = domain, item, seed
        self.least = config.min_episodes * config.num_envs
        # Halfway from the threshold to 1: a policy that stops right at the threshold fails every other gate.
        self.threshold = (1 + config.compliance_threshold) / 2

    def on_epoch(self, training: Training) -> None:
        """Looks now and then."""
        learner = training.learner
        if training.epoch % CHECK_EVERY == 0 and learner.tracker.completed >= self.least:
            _, conduct = self.domain.examine(self.item, learner.agent, self.seed)
            if self.domain.obeys(conduct, self.threshold):
                training.stop("compliance")


def _train_config(config: SearchConfig, seed: int) -> TrainConfig:
    return TrainConfig(task="gridworld").replace(
        seed=seed,
        num_envs=config.num_envs,
        rollout_steps=config.update_every_steps,
        update_epochs=4,
        minibatch_size=625,
        learning_rate=3e-3,
        gamma=0.98,
        gae_lambda=0.9,
        entropy_coef=0.005,
        hidden=(64, 64),
        torch_threads=1,
    )


def _load(agent: Agent, folder: Path) -> None:
    tensors = checkpoint.load_latest(folder).tensors
    load_weights(agent.network, {name.removeprefix("network."): array for name, array in tensors.items()})


def _share(values: Array) -> dict[str, float | None]:
    """A mean over episodes with its 95 % normal interval; None where no episode has a value."""
    if not len(values):
        return {"mean": None, "low": None, "high": None}
    mean = float(values.mean())
    low, high = normal(mean, standard_error(values) if len(values) > 1 else 1.0)
    return {"mean": mean, "low": low, "high": high}


def _word(seed: int, exam: int) -> int:
    return int(sequence(seed, Stream.EVALUATE, exam).generate_state(1, np.uint32)[0] >> 1)
