"""How many days one useful gradient takes: the gradient noise scale, by what the advantages come from.

The noise scale (McCandlish et al. 2018) is the trace of the covariance of a day's gradient over the squared norm of its
mean: with that many days the noise is as large as the signal. Measured for the policy network at the start of a
training from nothing, after five epochs of it, and after all of it, on days that it was not trained on; critics explain
2 to 5 % of a day's rest, so values are the mean by request of the day. All 30 requests of a day are credited.

    python -m benchmarks.rides.credit_noise [--days 256] [--seed 201] [--work DIR] [--store]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.rides.credit_arms import ARMS, WORK, config_of, train, weights_file
from shoal.learn.credit import AllActions, surrogate
from shoal.learn.gae import gae
from shoal.learn.learner import Learner
from shoal.learn.losses import policy_loss
from shoal.learn.weights import load_weights
from shoal.tasks.networks import own_network
from shoal.training import make_envs

PLACE, NAME, ARM, SEED, DAYS = "benchmarks.rides.credit_noise", "credit_noise", "scratch", 201, 256
FRESH_SEED = 77_001  # of the days
EPOCHS = 5  # of the stage between
STAGES = ("untrained", f"after {EPOCHS} epochs", "trained")
ESTIMATORS = ("rewards, GAE 0.95", "rewards, GAE 0.5", "rewards, GAE 0", "credit, offer made", "credit, all 16 offers")
Array = np.ndarray[Any, Any]


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made again."""
    return summarise(measure(parsed([]), say)) if full else stored.read_rows(NAME, PLACE)


def measure(given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, dict[str, tuple[float, float]]]:
    """By stage and estimator: the noise scale in days, and the squared norm of the mean over its own error."""
    arm = ARMS[ARM]
    changed = {**arm.own, "credit_requests": 1_000, "epsilon": 0.0, "background": False}
    config = config_of(type(arm)(changed, arm.against, None), FRESH_SEED).replace(num_envs=given.days)
    found = {}
    for stage in STAGES:
        envs = make_envs(config, None, lambda text: None)
        learner = Learner(config, envs, own_network=own_network("rides", arm.own))
        if stage == "trained":
            train(ARM, given.seed, given.work, say)
            with np.load(weights_file(ARM, given.seed, given.work), allow_pickle=False) as data:
                weights = {name[8:]: data[name] for name in data.files if name.startswith("network.")}
            load_weights(learner.agent.network, weights)
        elif stage != "untrained":
            load_weights(learner.agent.network, briefly_trained(given.seed))
        learner.start()
        found[stage] = scales(learner)
        envs.close()
        for name, (days, _) in found[stage].items():
            say(f"{stage}, {name}: {days:,.0f} days")
    return found


def briefly_trained(seed: int) -> dict[str, Array]:
    """The network's weights after a few epochs from nothing."""
    config, own = config_of(ARMS[ARM], seed), ARMS[ARM].own
    envs = make_envs(config, None, lambda text: None)
    learner = Learner(config, envs, own_network=own_network("rides", own))
    learner.start()
    for epoch in range(EPOCHS):
        learner.update(learner.estimate(learner.collect()), epoch * config.vector.num_envs / config.run.episodes)
    envs.close()
    return {name: value.numpy() for name, value in learner.agent.network.state_dict().items()}


def scales(learner: Learner) -> dict[str, tuple[float, float]]:
    """Of one rollout of a day in every environment."""
    rollout = learner.collect()
    batch = learner.estimate(rollout)
    assert batch is not None
    assert batch.every is not None
    steps, days = rollout.rewards.shape
    if len(batch) != steps * days:
        raise RuntimeError(f"expected {steps * days} credited requests, got {len(batch)}")
    to_go = rollout.rewards[::-1].cumsum(0)[::-1]
    values = np.repeat(to_go.mean(1, keepdims=True), days, 1).astype(np.float32)  # by request of the day
    after = np.concatenate([values[1:], np.zeros_like(values[:1])])
    lambdas = dict(zip(ESTIMATORS[:3], (0.95, 0.5, 0.0), strict=True))
    sampled = {
        name: gae(rollout.rewards, values, after, rollout.ended, 1.0, lam)[0].ravel() for name, lam in lambdas.items()
    }
    made = batch.actions.reshape(-1, 1).to(torch.int64)
    sampled[ESTIMATORS[3]] = batch.every.advantages.gather(1, made).ravel().numpy()
    return {name: scale(learner, batch, sampled.get(name), steps, days) for name in ESTIMATORS}


def scale(learner: Learner, batch: Any, sampled: Array | None, steps: int, days: int) -> tuple[float, float]:
    """Noise scale of one estimator: `sampled` advantages of the offers made, or those of all offers."""
    network: Any = learner.agent.network
    parameters = [p for name, p in network.named_parameters() if name.startswith(("policy", "log_"))]
    total, square = torch.zeros(()), 0.0
    for day in range(days):
        rows = torch.arange(steps) * days + day
        params = network.policy(batch.features[rows])
        if sampled is None:
            every = AllActions(batch.every.log_probs[rows], batch.every.advantages[rows])
            loss = surrogate(params, every, 1e9)[0]
        else:
            log_probs = torch.log_softmax(params, 1).gather(1, batch.actions[rows].reshape(-1, 1).long()).ravel()
            loss = policy_loss(log_probs, batch.log_probs[rows], torch.from_numpy(sampled[rows.numpy()]), 1e9)[0]
        parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradient = torch.cat([part.ravel() for part in parts if part is not None]).double()
        total, square = total + gradient, square + float(gradient.square().sum())
    mean = float((total / days).square().sum())
    noise = (square / days - mean) * days / (days - 1)  # trace of the covariance
    signal = mean - noise / days  # the squared norm of the true mean, without bias
    return (noise / signal if signal > 0 else float("inf")), signal / (noise / days)


def summarise(found: dict[str, dict[str, tuple[float, float]]]) -> list[Row]:
    """A row for each stage and estimator; none where the mean is not told from nothing."""
    made = []
    for stage, by_name in found.items():
        for name, (days, sure) in by_name.items():
            note = "" if sure > 0.2 else "the mean gradient does not stand out from the noise of these days"
            made.append(Row(f"rides, {stage}: gradient noise scale, {name}", None if note else days, "days", note=note))
    return made


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = stored.arguments(__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--work", type=Path, default=WORK)
    return parser.parse_args(given)


def main() -> None:
    given = parsed()
    store = stored.storing(given)
    found = summarise(measure(given, stored.print_line))
    if store:
        stored.write(NAME, f"python -m {PLACE} --days {given.days} --seed {given.seed} --store", found)
    stored.show(found)


if __name__ == "__main__":
    main()
