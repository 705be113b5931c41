"""The state of a learner on disk: all that decides how a run goes on, and how it is taken up again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from shoal.core.arrays import Array
from shoal.core.errors import RankFailed
from shoal.core.protocols import TrainingEnv
from shoal.core.spaces import space_from_data, space_to_data
from shoal.learn.noise import NoiseMeter
from shoal.learn.normalise import RewardScale
from shoal.learn.policy import Agent
from shoal.learn.ppo import PPO
from shoal.learn.rollout import Collector, EpisodeTracker
from shoal.learn.team import Team
from shoal.learn.weights import by_part, load_weights, weights_of
from shoal.vector.adapt import Stepper


class Resumable:
    """The part of a learner that is saved at any moment, and continued to the same bits."""

    env: VectorEnv[Any, Any, Any]
    parts: TrainingEnv
    team: Team
    num_envs: int  # of all ranks
    own: slice  # those of this one
    agent: Agent
    ppo: PPO
    stepper: Stepper
    collector: Collector
    tracker: EpisodeTracker
    reward_scale: RewardScale | None
    meter: NoiseMeter | None
    noise: torch.Generator
    shuffle: torch.Generator
    epoch: int
    steps: int
    elapsed_s: float
    seed_scheme: int

    def start(self) -> None:
        """First observations."""
        raise NotImplementedError

    def mark(self) -> None:
        """Remember where this epoch begins: a checkpoint is always of a beginning, even one written in the middle."""
        self.marked = {
            "noise": self.noise.get_state().numpy().copy(),
            "shuffle": self.shuffle.get_state().numpy().copy(),
            **_prefixed("tracker", self.tracker.state()),
            **_prefixed("moments", self.agent.moments_state()),
        }
        if self.reward_scale is not None:  # it takes in a rollout before that is learned from
            self.marked |= _prefixed("rewards", self.reward_scale.moments.state())
            self.marked_returns = self.reward_scale.returns.copy()
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
        }
        if self.meter is not None:
            tensors |= _prefixed("meter", self.meter.state())
        kept = self._kept_by_ranks()
        for rank, part in enumerate(kept):
            tensors |= _prefixed(f"rank{rank}", part) if rank else part
        own = self.agent.own_network
        meta = {
            "epoch": self.marked_epoch,
            "steps": self.marked_steps,
            "num_envs": self.num_envs,
            **({"ranks": self.team.size, "lost": not kept} if self.team.size > 1 else {}),
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

    def _kept_by_ranks(self) -> list[dict[str, Array]]:
        """What only this rank knows, of every rank: where its environments are. Nothing where one cannot be asked."""
        own = {f"observations.{i}": array.copy() for i, array in enumerate(self.collector.current())}
        if self.reward_scale is not None:
            own["rewards.returns"] = self.marked_returns.copy()
        if self.parts.resumable:
            own |= _prefixed("env", self.parts.marked_state())
        try:
            return self.team.gather(own)
        except RankFailed:
            return []

    def state_of_spaces(self) -> list[dict[str, Any]]:
        """Of observations and of actions, as a checkpoint has them."""
        return [space_to_data(self.env.single_observation_space), space_to_data(self.env.single_action_space)]

    def set_state(self, tensors: dict[str, Array], meta: dict[str, Any], *, reshard: bool = False) -> list[str]:
        """Go on from a checkpoint. Returns the reasons why the continuation is not exact, if there are any."""

        if meta.get("not_resumable"):
            raise ValueError(str(meta["not_resumable"]))
        parts = by_part(tensors)
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
        load_weights(self.agent.network, parts.get("network", {}))
        self.ppo.set_state(parts.get("optimiser", {}))
        self.ppo.skipped_in_a_row = int(meta["skipped_in_a_row"])
        self.ppo.restored_in_a_row = int(meta.get("restored_in_a_row", 0))
        self.agent.set_moments_state(parts.get("moments", {}))
        self.shuffle.set_state(torch.from_numpy(tensors["shuffle"].copy()))
        self.noise.set_state(torch.from_numpy(tensors["noise"].copy()))
        self.epoch, self.steps, self.elapsed_s = int(meta["epoch"]), int(meta["steps"]), float(meta["elapsed_s"])
        same_size = meta["num_envs"] == self.num_envs
        if not same_size and not reshard:
            raise ValueError(
                f"the checkpoint is of {meta['num_envs']} environments, this run has {self.num_envs}. Add "
                "--reshard to go on with fresh episodes (the run is then labelled inexact)"
            )
        ranks = meta.get("ranks", 1)
        if self.meter is not None and same_size and ranks == self.team.size:
            self.meter.set_state(parts.get("meter", {}))
        same_ranks = ranks == self.team.size and not meta.get("lost")
        if self.team.rank and same_ranks:  # what the others have of an environment is not its own
            tensors = {**tensors, **parts.get(f"rank{self.team.rank}", {})}
            parts = by_part(tensors)
        goes_on = same_size and same_ranks and self.parts.resumable  # with the unfinished episodes, that is
        if self.reward_scale is not None:
            self.reward_scale.set_state(parts.get("rewards", {}), goes_on)
        self.tracker.set_state(parts.get("tracker", {}), goes_on)
        self.tracker.said.set_state(meta.get("said", {}))
        if not goes_on:
            self.start()
            if not same_size:
                return [f"resharded from {meta['num_envs']} to {self.num_envs} environments"]
            if meta.get("lost"):
                return ["a rank was lost, and with it where its environments were: every one began a new episode"]
            if not same_ranks:
                return [f"saved by {ranks} rank(s), now {self.team.size}: every environment began a new episode"]
            return [f"{type(self.env).__name__} cannot give its state: every environment began a new episode"]
        differing = self.parts.set_state(parts.get("env", {})) or []
        self.stepper.resumed()
        observations, anew = [tensors[f"observations.{i}"] for i in range(len(self.collector.current()))], []
        if differing:
            observations, elapsed = self.parts.present()
            anew = [i for i in differing if elapsed[i] == 0]
        if self.reward_scale is not None:
            self.reward_scale.forget(np.array(anew, np.int64))
        told = self.team.hear([[self.own.start + i for i in envs] for envs in (differing, anew)])
        differing, anew = ([i for part in told for i in part[which]] for which in (0, 1))
        self.tracker.forget(np.array(anew, np.int64))
        self.collector.first(observations)
        self.mark()
        some = ", ".join(map(str, differing[:10]))
        left = f"environments that did not come back to the observation saved (not deterministic?): {some}"
        return [left] if differing else []


def _prefixed(prefix: str, tensors: dict[str, Array]) -> dict[str, Array]:
    return {f"{prefix}.{name}": value for name, value in tensors.items()}
