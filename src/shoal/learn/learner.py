"""Everything that lives as long as a run: environments, agent, optimiser, random streams; and its state on disk."""

from __future__ import annotations

import dataclasses
import json
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
from shoal.core.machine import Stopwatch
from shoal.core.protocols import parts_of
from shoal.core.seeds import SCHEME, Stream, sequence
from shoal.core.spaces import is_numbered, space_from_data, space_to_data
from shoal.learn.credit import credited, figures
from shoal.learn.deploy import DeployedPolicy
from shoal.learn.gae import gae, next_values
from shoal.learn.losses import Batch
from shoal.learn.noise import NoiseMeter
from shoal.learn.normalise import RewardScale
from shoal.learn.policy import Agent, OwnNetwork, check_device
from shoal.learn.ppo import PPO
from shoal.learn.rollout import Collector, EpisodeTracker, Rollout
from shoal.learn.said import chosen_names
from shoal.learn.weights import load_weights, weights_of
from shoal.vector.adapt import Stepper


class Learner:
    """Collects, estimates and updates; can be saved at any moment and continued to the same bits."""

    def __init__(
        self,
        config: TrainConfig,
        env: VectorEnv[Any, Any, Any],
        *,
        network: nn.Module | None = None,
        own_network: OwnNetwork | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        check_device(config.ppo.device)
        seen, acts = env.single_observation_space, env.single_action_space
        ppo = config.ppo.for_spaces(isinstance(acts, spaces.Box), is_numbered(seen))
        self.config, self.env, self.parts = dataclasses.replace(config, ppo=ppo), env, parts_of(env)
        seed = config.run.seed
        self.agent = Agent(
            seen,
            acts,
            ppo,
            init_seed=_word(seed, Stream.INIT),
            network=network,
            own_network=own_network,
        )
        self.meter = NoiseMeter(env.num_envs) if config.run.noise_meter else None
        self.ppo = PPO(self.agent.network, self.agent.kind, ppo, self.meter)
        self.noise = torch.Generator().manual_seed(_word(seed, Stream.ACT))
        self.shuffle = torch.Generator().manual_seed(_word(seed, Stream.SHUFFLE))
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
        )
        self.tracker = EpisodeTracker(env.num_envs, names=chosen_names(config.run.log_info, self.parts.has_figures))
        self.reward_scale = RewardScale(env.num_envs, ppo.gamma) if ppo.normalise_rewards else None
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
            rollout = self.collector.collect(segment)
        self.episodes_in_epoch = self.tracker.observe(rollout, segment * length, (segment + 1) * length)
        self.epoch += 1
        self.steps += length * self.env.num_envs
        return rollout

    @torch.inference_mode()
    def estimate(self, rollout: Rollout) -> Batch | None:
        """Values, advantages and log-probabilities, in batched calls; only valid rows remain.

        None while the rollout is not complete (`update_interval` above 1). A batch holds until the next one is made.
        """
        with self.estimating:
            return None if self.epoch % self.config.ppo.update_interval else self._estimated(rollout)

    def _estimated(self, rollout: Rollout) -> Batch:
        rollout.check_finite(None if self.parts.checks_finite else self.agent.features.layout)
        agent, steps, num_envs = self.agent, rollout.steps, rollout.num_envs
        self._scale_is_new = agent.moments is not None and agent.moments.count == 0
        if self._scale_is_new:
            self._learn_scale(rollout)
        flat = [tensor.flatten(0, 1) for tensor in rollout.tensors]  # per leaf [(T + 1) N, *shape]
        valid = rollout.valid.ravel()
        acted = None if rollout.values is None or self._scale_is_new else rollout.values.ravel()  # by the same scale
        features, values = agent.encode_and_value(flat, valid, acted)
        values = values.reshape(steps + 1, num_envs)
        rewards = np.sign(rollout.rewards) if self.config.ppo.clip_rewards else rollout.rewards
        if self.reward_scale is not None:
            rewards = self.reward_scale.scale(rewards, rollout.ended, rollout.valid)
        after = next_values(values, rollout.terminated, rollout.truncated, self._final_values(rollout))
        advantages, targets = gae(
            rewards, values[:-1], after, rollout.ended, self.config.ppo.gamma, self.config.ppo.gae_lambda
        )
        device, every = agent.device, None
        credit = self.parts.credit(rollout, self.policy())
        if (given := credited(credit, rollout.params, rollout.valid, agent.kind)) is not None:
            known, every = given
            features = features[torch.from_numpy(np.flatnonzero(known.ravel()[valid]))]
            valid = known.ravel()
            every = every.to(device)
        self._credit = figures(credit, every)
        rows = torch.from_numpy(np.flatnonzero(valid))
        masks = agent.features.masks(flat)
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
        if len(batch) > 0:
            start = time.perf_counter()
            with torch.random.fork_rng(devices=[]):  # a user's dropout draws from torch's own generator
                torch.manual_seed(_word(self.config.run.seed, Stream.SHUFFLE, self.epoch))
                metrics = self.ppo.update(batch, progress, self.shuffle)
            metrics["time/update_s"] = time.perf_counter() - start
        if not self._scale_is_new:
            self._learn_scale(self.collector.rollout)
        metrics |= self._credit
        metrics |= self.parts.after_rollout(progress)
        metrics |= self.parts.examine(self.policy(), self.epoch)
        self.collector.carry_over()
        self.mark()
        return metrics

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
            seed = _word(seed, Stream.ACT, self.epoch) & 0x3FFFFFFF  # a foreign VectorEnv may use it as an episode's
        else:
            self.parts.examine(self.policy(), 0)  # where it begins
        self.stepper.reset(seed, self.collector.current())
        self.mark()

    def mark(self) -> None:
        """Remember where this epoch begins: a checkpoint is always of a beginning, even one written in the middle."""
        self.marked = {"noise": self.noise.get_state().numpy().copy(), **_prefixed("tracker", self.tracker.state())}
        self.marked_said = self.tracker.said.state()
        self.marked_epoch, self.marked_steps, self.marked_episodes = self.epoch, self.steps, self.tracker.completed
        if self.parts.resumable:
            self.parts.mark()

    def state(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """All that decides how the run goes on, as of the last mark: arrays, and the rest as plain data."""
        tensors = {
            **self.marked,
            **_prefixed("network", weights_of(self.agent.network)),
            **_prefixed("optimiser", self.ppo.state()),
            **_prefixed("moments", self.agent.moments_state()),
            **{f"observations.{i}": array.copy() for i, array in enumerate(self.collector.current())},
            "shuffle": self.shuffle.get_state().numpy(),
        }
        if self.reward_scale is not None:
            tensors |= _prefixed("rewards", self.reward_scale.state())
        if self.meter is not None:
            tensors |= _prefixed("meter", self.meter.state())
        if self.parts.resumable:
            tensors |= _prefixed("env", self.parts.marked_state())
        own = self.agent.own_network
        meta = {
            "epoch": self.marked_epoch,
            "steps": self.marked_steps,
            "num_envs": self.env.num_envs,
            "skipped_in_a_row": self.ppo.skipped_in_a_row,
            "restored_in_a_row": self.ppo.restored_in_a_row,
            "spaces": self.state_of_spaces(),
            "features": self.parts.features_version,
            "network": None if own is None else [own.task, dict(own.options)],
            "elapsed_s": self.elapsed_s,
            "seed_scheme": self.seed_scheme,
            **({"said": self.marked_said} if self.marked_said else {}),
        }
        return tensors, meta

    def state_of_spaces(self) -> list[dict[str, Any]]:
        """Of observations and of actions, as a checkpoint has them."""
        return [space_to_data(self.env.single_observation_space), space_to_data(self.env.single_action_space)]

    def set_state(self, tensors: dict[str, Array], meta: dict[str, Any], *, reshard: bool = False) -> list[str]:
        """Go on from a checkpoint. Returns the reasons why the continuation is not exact, if there are any."""

        if meta.get("not_resumable"):
            raise ValueError(str(meta["not_resumable"]))
        part = _parts(tensors)
        if json.dumps(meta["spaces"]) != json.dumps(
            self.state_of_spaces()
        ):  # as text: the order of a Dict's keys counts too
            saved = " and ".join(str(space_from_data(data)) for data in meta["spaces"])
            raise ValueError(
                f"the checkpoint is of an environment with observations and actions {saved}; this one has "
                f"{self.env.single_observation_space} and {self.env.single_action_space}. Resume with the environment "
                "of the run"
            )
        version = self.parts.features_version
        if meta.get("features") not in (None, version):  # None: saved before its task had versions
            raise ValueError(
                f"the checkpoint was trained on features {meta.get('features')}, this environment gives "
                f"{version}: the same numbers would mean other things. Train anew"
            )
        self.seed_scheme = int(meta.get("seed_scheme", 1))
        load_weights(self.agent.network, part("network"))
        self.ppo.set_state(part("optimiser"))
        self.ppo.skipped_in_a_row = int(meta["skipped_in_a_row"])
        self.ppo.restored_in_a_row = int(meta.get("restored_in_a_row", 0))
        self.agent.set_moments_state(part("moments"))
        self.shuffle.set_state(torch.from_numpy(tensors["shuffle"].copy()))
        self.noise.set_state(torch.from_numpy(tensors["noise"].copy()))
        self.epoch, self.steps, self.elapsed_s = int(meta["epoch"]), int(meta["steps"]), float(meta["elapsed_s"])
        same_size = meta["num_envs"] == self.env.num_envs
        if not same_size and not reshard:
            raise ValueError(
                f"the checkpoint is of {meta['num_envs']} environments, this run has {self.env.num_envs}. Add "
                "--reshard to go on with fresh episodes (the run is then labelled inexact)"
            )
        if self.meter is not None and same_size:
            self.meter.set_state(part("meter"))
        goes_on = same_size and self.parts.resumable  # with the unfinished episodes, that is
        if self.reward_scale is not None:
            self.reward_scale.set_state(part("rewards"), goes_on)
        self.tracker.set_state(part("tracker"), goes_on)
        self.tracker.said.set_state(meta.get("said", {}))
        if not goes_on:
            self.start()
            if not same_size:
                return [f"resharded from {meta['num_envs']} to {self.env.num_envs} environments"]
            return [f"{type(self.env).__name__} cannot give its state: every environment began a new episode"]
        differing = self.parts.set_state(part("env")) or []
        self.stepper.resumed()
        if not differing:
            self.collector.first([tensors[f"observations.{i}"] for i in range(len(self.collector.current()))])
            self.mark()
            return []
        observations, elapsed = self.parts.present()
        self._forget(np.array([i for i in differing if elapsed[i] == 0], np.int64))  # began anew
        self.collector.first(observations)
        self.mark()
        some = ", ".join(map(str, differing[:10]))
        return [f"environments that did not come back to the observation saved (not deterministic?): {some}"]

    def _forget(self, envs: Array) -> None:
        self.tracker.forget(envs)
        if self.reward_scale is not None:
            self.reward_scale.forget(envs)


def _prefixed(prefix: str, tensors: dict[str, Array]) -> dict[str, Array]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}


def _parts(tensors: dict[str, Array]) -> Callable[[str], dict[str, Array]]:
    def part(prefix: str) -> dict[str, Array]:
        return {key[len(prefix) + 1 :]: value for key, value in tensors.items() if key.startswith(prefix + ".")}

    return part


def _word(seed: int, stream: Stream, *key: int) -> int:
    return int(sequence(seed, stream, *key).generate_state(1, np.uint64)[0] >> 1)
