"""The trainings that the credit study compares: what each starts from, and what it learns from.

A training leaves one small file of weights, so that it may run on another machine than the evaluation:

    python -m benchmarks.rides.credit_arms ARM SEED [--work DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import stored
from shoal.learn.distributions import ActionKind
from shoal.learn.learner import Learner
from shoal.learn.losses import Batch, Loss, Recipe, ppo_loss
from shoal.learn.networks import PolicyAndValue
from shoal.learn.ppo import PPO
from shoal.learn.sizing import choose_threads
from shoal.learn.weights import load_weights, weights_of
from shoal.rides.examination import Examination
from shoal.rides.observe import MINUTES
from shoal.rides.options import FUTURES, RidesOptions
from shoal.rides.routing.problem import NO_CHANGE
from shoal.tasks.networks import own_network
from shoal.tasks.presets import config_for
from shoal.training import make_envs

WORK = Path(tempfile.gettempdir()) / "shoal-rides-credit"


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    own: dict[str, Any]  # of RidesOptions
    against: str  # the baseline that it is compared with, or the arm: its training with the same seed
    target: float | None  # for the lower end of the interval
    options: dict[str, Any] = field(default_factory=dict)  # of `shoal train`
    regression: bool = False
    goes_on_from: str = ""  # an arm: its weights, and what it knows of riders, of the same seed
    same_as: str = ""  # an arm: nothing is trained, its trainings are played otherwise
    shown: int = 0  # futures before each offer when it is played; 0: as many as in training


TODAY = "today's default"  # all seeds of it that rides_learning has stored
_QUICK = {"futures": 0, "held_out_days": 0}
_SCRATCH = _QUICK | {"start": "none"}
_NEGOTIATED = _SCRATCH | {"credit": "negotiated", "credit_requests": 3, "epsilon": 0.0}
_SMALL_STEPS = {"num_envs": 64, "episodes": 1_280, "learning_rate": 5e-4, "clip": 0.2, "entropy_coef": 0.0}
ARMS = {  # the first ones first: what a reader asks first
    "scratch": Arm(_SCRATCH, "lookahead:pooled", 0.5),  # the settings of `make run`
    "scratch-insertion": Arm(_SCRATCH | {"prices": "insertion"}, "myopic", 1.5, {"episodes": 10_240}),
    "lookahead": Arm(_QUICK | {"start": "lookahead"}, "lookahead:pooled", 0.3, {"episodes": 5_120}),
    "taught": Arm(_QUICK | {"start": "taught", "credit": "rebuilt"}, "taught", -0.5, {"episodes": 5_120}),
    "scratch-rewards": Arm(_SCRATCH | {"credit": "rewards"}, "myopic:pooled", None),
    "scratch-regression": Arm(
        _SCRATCH | {"mask": "off"}, "lookahead:pooled", None, {"normalise_advantages": False}, True
    ),
    "scratch-agreed": Arm(_SCRATCH | {"credit_generous": 0.0}, "lookahead:pooled", None),
    "scratch-generous": Arm(_SCRATCH | {"credit_generous": 1.0}, "lookahead:pooled", None),
    # The second generation: what came later is negotiated again by the agent. The third goes on from the second.
    "again": Arm(_NEGOTIATED, "scratch", None, _SMALL_STEPS, goes_on_from="scratch"),
    "third": Arm(_NEGOTIATED, "again", None, _SMALL_STEPS, goes_on_from="again"),
    # What might be a better default: as today's, but with credit; and the training without futures, which are shown
    # only when it is played.
    "credit-32": Arm(
        {"held_out_days": 0, "credit": "rebuilt", "credit_requests": 30}, TODAY, 0.0, shown=FUTURES
    ),
    "taught-32": Arm(_QUICK | {"start": "taught", "credit": "rebuilt"}, TODAY, 0.0, {"episodes": 5_120},
                     same_as="taught", shown=FUTURES),
    # From nothing, with futures shown: does it need to be taught?
    "scratch-8": Arm({"start": "none", "futures": 8, "held_out_days": 0}, TODAY, 0.0, shown=FUTURES),
}  # fmt: skip
EXAMINED = 64  # days
CURVE = (0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1)  # shares of a training after which it is looked at


class Regression(PPO):
    """The control: least squares on the same credits, acting by softmax(Q / T) with T falling; no ratio, no clip."""

    first_min, last_min = 0.15, 0.03  # T, minutes

    def update(self, batch: Batch, progress: float, shuffle: torch.Generator) -> dict[str, float]:
        """As PPO's, with this epoch's temperature."""
        self.temperature = self.first_min * (self.last_min / self.first_min) ** progress
        sharpness: Any = self.network.log_sharpness
        sharpness.requires_grad_(False)
        self.parameters = [p for p in self.parameters if p is not sharpness]
        sharpness.fill_(math.log(MINUTES / self.temperature))
        return super().update(batch, progress, shuffle)

    def _passes(self, batch: Batch, epochs: int, shuffle: torch.Generator, *, policy: bool, value: bool) -> None:
        self._loss_of = self._squares
        super()._passes(batch, epochs, shuffle, policy=policy, value=value)

    def _squares(self, network: PolicyAndValue, kind: ActionKind, batch: Batch, recipe: Recipe) -> Loss:
        assert batch.every is not None
        params = network.policy(batch.features)
        params = params if batch.masks is None else kind.mask(params, batch.masks)
        worth_min = batch.every.advantages - batch.every.advantages[:, [NO_CHANGE]]
        error = self.temperature * (params - params[:, [NO_CHANGE]]) - worth_min
        loss = 0.5 * error.square().sum(-1).mean()
        values = ppo_loss(network, kind, batch, replace(recipe, policy=False)) if recipe.value else Loss(loss * 0, {})
        return Loss(loss + values.total, {"loss/policy": loss.detach(), **values.told})


def config_of(arm: Arm, seed: int) -> Any:
    """The settings of a training."""
    return config_for("rides", env_kwargs=json.dumps(arm.own), seed=seed, **arm.options)


def settings(arm: Arm) -> str:
    """A hash of what its result depends on beside the code."""
    from shoal.config import to_dict
    from shoal.rides import credit

    digest = hashlib.sha256(json.dumps(to_dict(config_of(arm, 0)), sort_keys=True).encode())
    digest.update(repr((credit.BUILD_ITERATIONS, credit.PRICE_ITERATIONS, credit.CAP_MIN, arm.regression)).encode())
    if arm.goes_on_from:
        digest.update(settings(ARMS[arm.goes_on_from]).encode())
    if arm.shown:
        digest.update(f"shown {arm.shown}".encode())
    return digest.hexdigest()[:16]


def weights_file(name: str, seed: int, work: Path) -> Path:
    """Where a training leaves its weights."""
    name = ARMS[name].same_as or name
    return work / f"{name}-{seed}-{settings(ARMS[name])}.npz"


def train(name: str, seed: int, work: Path, say: Any = print) -> Path:
    """Train one arm with one seed, unless it has been done."""
    name = ARMS[name].same_as or name
    done = weights_file(name, seed, work)
    if done.exists():
        return done
    arm = ARMS[name]
    config = config_of(arm, seed)
    torch.set_num_threads(choose_threads(config.ppo))
    envs = make_envs(config, None, lambda text: None)
    learner = Learner(config, envs, own_network=own_network("rides", arm.own))
    if arm.regression:
        learner.ppo = Regression(learner.agent.network, learner.agent.kind, config.ppo)
    if arm.goes_on_from:
        before = load(arm.goes_on_from, seed, train(arm.goes_on_from, seed, work, say).parent)
        load_weights(learner.agent.network, weights_of(before.network))
        known = {part: value for part, value in before.entrant.flexibility.items() if part != "buffer"}
        envs.flexibility.set_state(envs.flexibility.state() | known)  # type: ignore[attr-defined]
    learner.start()
    epochs = -(-config.run.episodes // config.vector.num_envs)
    options = RidesOptions(**json.loads(config.env_kwargs))
    shares = (0, 1) if options.futures else CURVE  # futures cost ten times what a training without them does
    looks, curve, cpu_s = {round(share * epochs) for share in shares}, [], 0.0
    exam = Examination(options, EXAMINED, 1)
    for epoch in range(epochs + 1):
        if epoch in looks:  # its time is not the training's
            found = exam.hold(learner.policy(), envs.flexibility.state())  # type: ignore[attr-defined]
            days = epoch * config.vector.num_envs
            curve.append([days, round(cpu_s, 1), *(round(value, 3) for value in found.values())])
            say(f"{name}, seed {seed}, {days:,} days, {cpu_s:.0f} CPU-s: net gain {curve[-1][2]:.2f}")
        if epoch < epochs:
            began = time.process_time()
            learner.update(learner.estimate(learner.collect()), epoch / epochs)
            cpu_s += time.process_time() - began
    levels = {level: round(value, 3) for level, value in exam.levels.items()}
    exam.close()
    known = {f"flexibility.{part}": value for part, value in envs.flexibility.state().items() if part != "buffer"}  # type: ignore[attr-defined]
    weights = {f"network.{part}": value.numpy() for part, value in learner.agent.network.state_dict().items()}
    envs.close()
    facts = {
        "days_trained": epochs * config.vector.num_envs,
        "train_cpu_s": round(cpu_s, 1),
        "curve": curve,  # days, CPU-seconds, net gain of the most probable offers, of sampled ones
        "levels": levels,  # of the policies to beat, on the days of the curve
        **stored.stamp(),
    }
    work.mkdir(parents=True, exist_ok=True)
    unfinished = done.with_suffix(".part.npz")
    np.savez_compressed(unfinished, allow_pickle=False, facts=np.array(json.dumps(facts)), **weights, **known)
    unfinished.replace(done)
    return done


@dataclass(frozen=True)
class Trained:
    """A training's outcome, ready to play."""

    entrant: Any  # with the most probable offers
    sampled: Any
    logits: Any  # of observations, float64[N, 16]
    facts: dict[str, Any]
    network: Any


def load(name: str, seed: int, work: Path) -> Trained:
    """What `train` left."""
    from shoal.learn.deploy import DeployedPolicy
    from shoal.learn.policy import Agent
    from shoal.rides.contest.play import Entrant
    from shoal.rides.env import RidesVectorEnv

    config = config_of(ARMS[name], seed)
    options = RidesOptions(**json.loads(config.env_kwargs))
    env = RidesVectorEnv(1, options)
    network = own_network("rides", ARMS[name].own)
    agent = Agent(env.single_observation_space, env.single_action_space, config.ppo, own_network=network)
    empty = {"buffer": env.flexibility.state()["buffer"][:0]}
    env.close()
    with np.load(weights_file(name, seed, work), allow_pickle=False) as data:
        parts = {part: data[part] for part in data.files}
    facts = json.loads(str(parts.pop("facts")))
    load_weights(agent.network, _under("network.", parts))
    flexibility = _under("flexibility.", parts) | empty
    policy = DeployedPolicy(agent, env.single_action_space, config, 0)
    seen = ("start", "start_temperature", "prices", "futures", "mask", "kappa", "threshold")
    changes = {option: getattr(options, option) for option in seen}
    changes["futures"] = ARMS[name].shown or options.futures

    def player(deterministic: bool) -> Any:
        return lambda env, observations: policy(observations, deterministic=deterministic, batched=True)

    @torch.inference_mode()
    def logits(observations: dict[str, Any]) -> Any:
        leaves = [torch.from_numpy(part) for part in agent.features.layout.take_apart(observations)]
        return agent.distribution(leaves).numpy().astype(np.float64)

    return Trained(
        Entrant(player(True), changes, flexibility), Entrant(player(False), changes, flexibility), logits, facts,
        agent.network,
    )  # fmt: skip


def _under(prefix: str, parts: dict[str, Any]) -> dict[str, Any]:
    return {name[len(prefix) :]: value for name, value in parts.items() if name.startswith(prefix)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arm", choices=[*ARMS, "all"])
    parser.add_argument("seeds", type=int, nargs="+")
    parser.add_argument("--work", type=Path, default=WORK)
    given = parser.parse_args()
    for seed in given.seeds:
        for name in ARMS if given.arm == "all" else [given.arm]:
            print(train(name, seed, given.work))


if __name__ == "__main__":
    main()
