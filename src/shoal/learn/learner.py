"""Everything that lives as long as a run: environments, agent, optimiser, random streams; and its state on disk."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from torch import nn

from shoal.config import TrainConfig
from shoal.core.arrays import Array
from shoal.core.machine import Stopwatch, keep_freed_memory
from shoal.core.protocols import TrainingEnv, parts_of
from shoal.core.seeds import SCHEME, Stream, word
from shoal.core.spaces import is_numbered
from shoal.learn.credit import credited, figures
from shoal.learn.deploy import DeployedPolicy
from shoal.learn.gae import gae, next_values
from shoal.learn.losses import Batch
from shoal.learn.noise import NoiseMeter
from shoal.learn.normalise import RewardScale
from shoal.learn.policy import Agent, OwnNetwork, check_device
from shoal.learn.ppo import PPO
from shoal.learn.resuming import Resumable
from shoal.learn.rollout import Collector, EpisodeTracker, Rollout
from shoal.learn.said import chosen_names
from shoal.learn.team import ALONE, Team, places
from shoal.vector.adapt import Stepper


class Learner(Resumable):
    """Collects, estimates and updates; can be saved at any moment and continued to the same bits."""

    def __init__(
        self,
        config: TrainConfig,
        env: VectorEnv[Any, Any, Any],
        *,
        network: nn.Module | None = None,
        own_network: OwnNetwork | None = None,
        interrupted: Callable[[], bool] = lambda: False,
        team: Team = ALONE,
    ) -> None:
        """`env` has this rank's share of the environments."""
        check_device(config.ppo.device)
        seen, acts = env.single_observation_space, env.single_action_space
        ppo = config.ppo.for_spaces(isinstance(acts, spaces.Box), is_numbered(seen))
        self.config, self.env, self.parts = dataclasses.replace(config, ppo=ppo), env, parts_of(env)
        self.team, self.num_envs = team, env.num_envs * team.size
        self.own = team.own(self.num_envs)
        self.parts.ranks, self.parts.first_env = team, self.own.start
        seed = config.run.seed
        self.agent = Agent(
            seen,
            acts,
            ppo,
            init_seed=word(seed, Stream.INIT),
            network=network,
            own_network=own_network,
        )
        team.spread(self.agent.network)  # one that the user made may begin otherwise on every rank
        self.meter = NoiseMeter(env.num_envs) if config.run.noise_meter else None
        self.ppo = PPO(self.agent.network, self.agent.kind, ppo, self.meter, team)
        self.noise = torch.Generator().manual_seed(word(seed, Stream.ACT))
        self.shuffle = torch.Generator().manual_seed(word(seed, Stream.SHUFFLE))
        self.stepper = Stepper(env)
        self.collector = Collector(
            self.stepper,
            self.agent.features,
            self.agent.kind,
            self.agent.act,
            steps=ppo.rollout_steps,
            segments=ppo.update_interval,
            noise=self.noise,
            device=ppo.device,
            values=lambda: self.agent.acted_values,
            interrupted=interrupted,
            own=self.own,
            every=self.num_envs,
            depth=config.frame_stack,
        )
        if self.agent.features.pictures:
            keep_freed_memory()
        self.tracker = EpisodeTracker(self.num_envs, names=chosen_names(config.run.log_info, self.parts.has_figures))
        self.reward_scale = RewardScale(env.num_envs, ppo.gamma) if ppo.normalise_rewards else None
        if self.agent.moments is not None:
            self.agent.moments.pooled = team.pooled
        if self.reward_scale is not None:
            self.reward_scale.moments.pooled = team.pooled
        self._valid = np.zeros((self.collector.rollout.steps, self.num_envs), np.bool_)  # of all ranks
        self.epoch = self.steps = self.episodes_in_epoch = 0
        self._credit: dict[str, float] = {}  # figures of this rollout's
        self._scale_is_new = False  # the statistics have taken in this rollout, the first, before its update
        self.seed_scheme = SCHEME
        self.collecting, self.estimating = Stopwatch(), Stopwatch()
        self.elapsed_s = 0.0

    # -- one epoch -----------------------------------------------------------------------------

    def collect(self) -> Rollout:
        """One rollout of all environments: one epoch."""
        interval, length = self.config.ppo.update_interval, self.config.ppo.rollout_steps
        segment = self.epoch % interval
        with self.collecting:
            self.agent.begin_acting()
            with self.team.as_one():
                rollout = self.collector.collect(segment)
        rows = segment * length, (segment + 1) * length
        seen = self.team.side_by_side(rollout, *rows)
        self._valid[slice(*rows)] = seen.valid[slice(*rows)]
        self.episodes_in_epoch = self.tracker.observe(seen, *rows)
        self.epoch += 1
        self.steps += length * self.num_envs
        return rollout

    @torch.inference_mode()
    def estimate(self, rollout: Rollout) -> Batch | None:
        """Values, advantages and log-probabilities, in batched calls; only valid rows remain.

        None while the rollout is not complete (`update_interval` above 1). A batch holds until the next one is made.
        """
        with self.estimating:
            return None if self.epoch % self.config.ppo.update_interval else self._estimated(rollout)

    def _estimated(self, rollout: Rollout) -> Batch:
        with self.team.as_one():
            rollout.check_finite(None if self.parts.checks_finite else self.agent.features.layout)
        agent, steps, num_envs = self.agent, rollout.steps, rollout.num_envs
        self._scale_is_new = agent.moments is not None and agent.moments.count == 0
        if self._scale_is_new:
            self._learn_scale(rollout)
        valid = rollout.valid.ravel()
        acted = None if rollout.values is None or self._scale_is_new else rollout.values.ravel()  # by the same scale
        features, values = agent.encode_and_value(rollout.seen, valid, acted)
        values = values.reshape(steps + 1, num_envs)
        rewards = np.sign(rollout.rewards) if self.config.ppo.clip_rewards else rollout.rewards
        if self.reward_scale is not None:
            rewards = self.reward_scale.scale(rewards, rollout.ended, rollout.valid)
        after = next_values(values, rollout.terminated, rollout.truncated, self._final_values(rollout))
        advantages, targets = gae(
            rewards, values[:-1], after, rollout.ended, self.config.ppo.gamma, self.config.ppo.gae_lambda
        )
        device, every, masks_of_all = agent.device, None, self._valid
        credit = self.parts.credit(rollout, self.policy())
        if (given := credited(credit, rollout.params, rollout.valid, agent.kind, self.team)) is not None:
            known, every = given
            masks_of_all = np.concatenate([part["known"] for part in self.team.gather({"known": known})], axis=1)
            features = features[torch.from_numpy(np.flatnonzero(known.ravel()[valid]))]
            valid = known.ravel()
            every = every.to(device)
        self._credit = figures(credit, every)
        rows = torch.from_numpy(np.flatnonzero(valid))
        masks = agent.features.masks(rollout.seen.flat)
        actions = rollout.actions.flatten(0, 1)[rows].to(device)
        params = rollout.params.flatten(0, 1)[rows].to(device)

        def pick(array: Array) -> torch.Tensor:
            return torch.from_numpy(array.ravel())[rows].to(device)

        return Batch(
            features=features,
            masks=None if masks is None else masks[rows].to(device),
            actions=actions,
            log_probs=agent.kind.log_prob(params, actions),
            advantages=pick(advantages),
            targets=pick(targets),
            values=pick(values[:-1]),
            every=every,
            environments=rows % num_envs,
            place=places(masks_of_all, self.own) if self.team.size > 1 else None,
        )

    def policy(self) -> DeployedPolicy:
        """The policy as it is now, for the environment's own use."""
        return DeployedPolicy(self.agent, self.env.single_action_space, self.config, self.epoch)

    def update(self, batch: Batch | None, progress: float) -> dict[str, float]:
        """Learn from a batch; only afterwards do the observation statistics take it in: the update must see what acting
        saw. A run's first rollout is the exception. It was played without statistics, so that raw numbers cut off at 10
        would be learnt from; it is valued and learnt from as scaled by its own."""
        if batch is None:
            return {}
        metrics: dict[str, float] = {"guard/empty_batches": 1}
        if batch.total > 0:
            start = time.perf_counter()
            with torch.random.fork_rng(devices=[]):  # a user's dropout draws from torch's own generator
                own = (self.team.rank,) if self.team.rank else ()
                torch.manual_seed(word(self.config.run.seed, Stream.SHUFFLE, self.epoch, *own))
                metrics = self.ppo.update(batch, progress, self.shuffle)
            metrics["time/update_s"] = time.perf_counter() - start
        if not self._scale_is_new:
            self._learn_scale(self.collector.rollout)
        metrics |= self.team.figures(self._credit | self.parts.after_rollout(progress) | self._examined())
        self.collector.carry_over()
        self.mark()
        return metrics

    def _examined(self) -> dict[str, Any]:
        """How well the policy does where it is not trained: asked once, not by every rank."""
        return self.parts.examine(self.policy(), self.epoch) if self.team.leads else {}

    def _learn_scale(self, rollout: Rollout) -> None:
        leaves = [tensor[:-1].flatten(0, 1) for tensor in rollout.tensors]
        self.agent.learn_scale(leaves, rollout.valid.ravel())

    def progress_row(self) -> dict[str, Any]:
        """Where the run is, under the names of docs/metrics.md."""
        returns, lengths = self.tracker.recent_returns, self.tracker.recent_lengths
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "episodes": self.tracker.completed,
            "episodes/epoch": self.episodes_in_epoch,
            "episodes/broken": self.tracker.broken,
            "steps/lost": self.tracker.lost,
            "return/mean_100": sum(returns) / len(returns) if returns else None,
            "length/mean_100": sum(lengths) / len(lengths) if lengths else None,
            **self.tracker.said.means(),
        }

    def _final_values(self, rollout: Rollout) -> Array:
        """Values of the true final observations of truncated episodes [T, N], in one batched call."""
        final_values = np.zeros((rollout.steps, rollout.num_envs), np.float32)
        if rollout.finals:
            times = np.concatenate([np.full(len(envs), t) for t, envs, _ in rollout.finals])
            envs = np.concatenate([envs for _, envs, _ in rollout.finals])
            leaves = zip(*(leaves for _, _, leaves in rollout.finals), strict=True)
            tensors = [torch.from_numpy(np.concatenate(parts)) for parts in leaves]
            final_values[times, envs] = self.agent.values(self.agent.encode(tensors))
        return final_values

    # -- state ---------------------------------------------------------------------------------

    def start(self) -> None:
        """First observations of a new run; other ones where a run goes on with new episodes."""
        seed = self.config.run.seed
        if self.epoch > 0:
            seed = word(seed, Stream.ACT, self.epoch) & 0x3FFFFFFF  # a foreign VectorEnv may use it as an episode's
        else:
            self._examined()  # where it begins
        if self.team.rank and not isinstance(self.env, TrainingEnv):  # which has no way to be told its first number
            seed = word(seed, Stream.TRAIN, self.team.rank) & 0x3FFFFFFF
        self.collector.reset(seed)
        self.mark()
