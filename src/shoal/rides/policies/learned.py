"""A trained rides run as a policy: for contests on held-out days, and for a booking desk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from shoal.core.arrays import Array
from shoal.learn.deploy import DeployedPolicy
from shoal.learn.policy import Agent
from shoal.learn.weights import load_weights, weights_of
from shoal.rides.observe import MINUTES
from shoal.rides.options import FUTURES, RidesOptions
from shoal.rides.policies import finals
from shoal.rides.policies.finals import Finals
from shoal.rides.policies.network import RidesNetwork
from shoal.rides.policies.thinking import MOST_FUTURES, Thinking
from shoal.runs import checkpoint as checkpoints
from shoal.runs.folder import Run
from shoal.tasks.networks import load_policy

if TYPE_CHECKING:
    from shoal.rides.contest.play import Entrant
    from shoal.rides.desk.offer import Booked, Desk, Offer

_LEARNED = "env.flexibility."
_SEEN = (
    "start",
    "start_temperature",
    "prices",
    "futures",
    "mask",
    "kappa",
    "threshold",
)  # what shapes its observations


class Negotiator:
    """Network and flexibility model of a run: of its best checkpoint by `--evaluate-every`, if there is one, else of
    the newest; or of an epoch kept.

    `futures`: how many to sample before each offer; by default 32, or none if the run was trained without. `think`:
    how many more, to be weighed against the network's judgement (thinking.py), or with `think_s` as many as end in so
    many seconds. `loop`: in an open one every later rider of a future is asked generously; in a closed one the agent
    negotiates them, for its best three offers one by one (finals.py).
    """

    def __init__(
        self,
        run: str | Path,
        *,
        runs_dir: str | Path = "runs",
        epoch: int | None = None,
        checkpoint: str | int | None = None,
        futures: int | None = None,
        think: int = 0,
        think_s: float | None = None,
        loop: Literal["open", "closed"] = "open",
    ) -> None:
        from shoal.rides.observe import FEATURES_VERSION

        self.policy = load_policy(run, runs_dir=runs_dir, epoch=epoch, checkpoint=checkpoint)
        config = self.policy.config
        if config.task != "rides":
            raise ValueError(f"expected a run of rides, got one of {config.task}: {run}")
        self.policy.check_features(FEATURES_VERSION)
        folder = Run.open(run, Path(runs_dir))
        found = checkpoints.load(folder.checkpoints, self.policy.epoch)
        self.name, self.path, self.epoch = folder.name, folder.path, self.policy.epoch
        trained = RidesOptions(**json.loads(config.env_kwargs))
        self.options = replace(trained, futures=(FUTURES if trained.futures else 0) if futures is None else futures)
        self.flexibility = {
            name[len(_LEARNED) :]: value for name, value in found.tensors.items() if name.startswith(_LEARNED)
        }
        self._policies: dict[int, DeployedPolicy] = {self.options.customers: self.policy}
        self._desk: Desk | None = None
        self.thinking: Thinking | None = None
        if think or think_s is not None:
            self._check_judges("--think")
            if loop == "closed":
                self.thinking = Finals(self.act, self.net_min, think or finals.MOST_FUTURES, seconds=think_s)
            else:
                self.thinking = Thinking(self.net_min, think or MOST_FUTURES, seconds=think_s)

    def act(self, env: Any, observations: dict[str, Array]) -> Array:
        """The offers int64[N] of highest probability, for any number of customers a day."""
        actions: Array = self._for(env.single_observation_space, env.options.customers)(observations, batched=True)
        return actions

    def net_min(self, env: Any, observations: dict[str, Array]) -> Array:
        """The net gain in minutes that the network expects of each offer, float64[N, 16]."""
        agent = self._for(env.single_observation_space, env.options.customers).agent
        assert isinstance(agent.network, RidesNetwork)
        with torch.inference_mode():
            leaves = [torch.from_numpy(part) for part in agent.features.layout.take_apart(observations)]
            logits = agent.distribution(leaves).cpu().numpy().astype(np.float64)
            sharpness = float(agent.network.log_sharpness.exp())
        return np.asarray(MINUTES * (logits - observations["bias"]) / sharpness)

    def entrant(self) -> Entrant:
        """For a contest: the policy, the options that shape its observations, and what it learned of riders."""
        from shoal.rides.contest.play import Entrant

        return Entrant(self.thinking or self.act, self._seen(), self.flexibility or None)

    def rollout(self) -> Entrant:
        """For a contest: the same agent, which plays its best offers to the end before it decides (halving.py)."""
        from shoal.rides.contest.play import Entrant
        from shoal.rides.policies.halving import Halving

        self._check_judges("--policy rollout:agent")
        return Entrant(Halving(self.act, self.net_min), self._seen(), self.flexibility or None)

    def _seen(self) -> dict[str, Any]:
        return {name: getattr(self.options, name) for name in _SEEN}

    def _check_judges(self, what: str) -> None:
        if not isinstance(self.policy.agent.network, RidesNetwork):
            network = type(self.policy.agent.network).__name__
            raise ValueError(f"{what} needs the network that comes with rides: {self.name} has a {network}")

    def offer(self, booked: Booked, request: Any, rider: int, purpose: int) -> Offer:
        """What to offer this rider now: `booked` is the day so far, `request` a REQUEST record as asked.

        The first call builds the city; from then on it takes milliseconds, but for a day that has more calls than the
        run's number of customers: every tenth call beyond takes a third of a second.
        """
        return self.desk().offer(booked, request, rider, purpose)

    def desk(self) -> Desk:
        """The desk that `offer` uses, kept open between calls."""
        if self._desk is None:
            from shoal.rides.desk.offer import Desk

            self._desk = Desk(self.thinking or self.act, self.options, self.flexibility or None)
        return self._desk

    def _for(self, space: Any, customers: int) -> DeployedPolicy:
        """The same weights for days of another length: the network reads a set of requests of any size."""
        if customers not in self._policies:
            config = self.policy.config
            if self.policy.agent.moments is not None:
                raise ValueError(
                    f"the run scales its observations by statistics of days with {self.options.customers} customers "
                    f"(--normalise-observations): it cannot be used on days with {customers}"
                )
            agent = Agent(space, self.policy.action_space, config.ppo, own_network=self.policy.agent.own_network)
            load_weights(agent.network, weights_of(self.policy.agent.network))
            self._policies[customers] = DeployedPolicy(agent, self.policy.action_space, config, self.epoch)
        return self._policies[customers]
