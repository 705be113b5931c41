"""A saved run on episodes it has never seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from torch import nn

from shoal import _make_callable
from shoal.defender import cage2_policy
from shoal.learn.deploy import DeployedPolicy, load_policy
from shoal.tasks import environment
from shoal.train import parse_env_kwargs
from shoal.vector.layout import Array
from shoal.vector.make import make_vec
from shoal.vector.protocols import parts_of
from shoal.vector.seeding import Stream
from shoal.vector.stepping import Stepper

_RESAMPLES = 10_000


@dataclass(frozen=True)
class Score:
    """Returns of held-out episodes."""

    mean: float
    low: float  # 95 % bootstrap interval of the mean
    high: float
    median: float
    worst: float
    best: float
    mean_length: float
    episodes: int
    returns: list[float]

    @staticmethod
    def of(returns: list[float], lengths: list[int], seed: int) -> Score:
        values = np.array(returns)
        low, high = interval(values, seed)
        return Score(
            mean=float(values.mean()),
            low=low,
            high=high,
            median=float(np.median(values)),
            worst=float(values.min()),
            best=float(values.max()),
            mean_length=float(np.mean(lengths)),
            episodes=len(returns),
            returns=[float(value) for value in values],
        )


def interval(values: Array, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of a mean.

    >>> interval(np.ones(10))
    (1.0, 1.0)
    """
    rng = np.random.default_rng(seed)
    chunks = [values[rng.integers(0, len(values), (500, len(values)))].mean(1) for _ in range(_RESAMPLES // 500)]
    means = np.concatenate(chunks)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def evaluate(
    run: str | Path,
    *,
    episodes: int = 100,
    num_envs: int = 1,
    seed: int | None = None,
    env: Any = None,
    network: nn.Module | None = None,
    simulator: str | None = None,
    runs_dir: str | Path = "runs",
) -> dict[str, Any]:
    """Score a run on held-out episodes, acting greedily and by sampling.

    Episode seeds come from the evaluation stream of the run's seed (or of `seed`), which no training shares. Every
    environment plays the same number of episodes: taking whichever end first would favour short ones.
    """
    if episodes < 1 or num_envs < 1:
        raise ValueError(f"expected at least 1 episode and 1 environment, got {episodes} and {num_envs}")
    if isinstance(env, VectorEnv):
        raise ValueError("expected env= as a function that makes one environment: a VectorEnv's seeds are its own")
    policy = load_policy(run, network=network, runs_dir=runs_dir)
    config = policy.config
    seed = config.run.seed if seed is None else seed
    kwargs = parse_env_kwargs(config.env_kwargs) | ({} if simulator is None else {"simulator": simulator})
    made, kwargs = (env, {}) if env is not None else environment(config.task, kwargs)
    if isinstance(made, str) and made not in gym.registry:
        raise ValueError(
            f"the run was trained on an environment of its own, {config.task!r}, which Gymnasium does not know: "
            "evaluate it from Python with env=, as it was trained"
        )
    result: dict[str, Any] = {
        "task": config.task, "epoch": policy.epoch, "seed": seed, "num_envs": num_envs, "held_out": True,
        "skipped": policy.skipped,
    }  # fmt: skip
    for mode, deterministic in (("deterministic", True), ("sampled", False)):
        envs = make_vec(
            made,
            num_envs,
            stream=Stream.EVALUATE,
            env_kwargs=kwargs,
        )
        try:
            policy.check_features(parts_of(envs).features_version)
            returns, lengths = play(policy, Stepper(envs), episodes, seed, deterministic)
        finally:
            envs.close()
        result[mode] = asdict(Score.of(returns, lengths, seed))
    result |= {name: result["deterministic"][name] for name in ("mean", "low", "high", "episodes")}
    return result


def leaderboard(
    run: str | Path,
    *,
    episodes: int = 1000,
    seed: int = 0,
    simulator: str = "shoal",
    epoch: int | None = None,
    runs_dir: str | Path = "runs",
) -> dict[str, Any]:
    """A cage2 run by the challenge's protocol: 3 red agents x 30, 50 and 100 steps, the means and their sum."""
    from shoal.tasks.cage2.commands import score_policy

    act, options = cage2_policy(run, runs_dir, epoch)
    result = score_policy(act, episodes, seed, simulator=simulator, **options)
    return {"run": str(run), "simulator": simulator, "episodes": episodes, "seed": seed, **result}


def play(
    policy: DeployedPolicy, stepper: Stepper, episodes: int, seed: int, deterministic: bool
) -> tuple[list[float], list[int]]:
    """Returns and lengths of so many episodes, an equal share from each environment."""
    num_envs = stepper.env.num_envs
    quota = -(-episodes // num_envs)
    policy.generator.manual_seed(seed)
    rows = stepper.layout.allocate(num_envs)
    stepper.reset(seed, rows)
    totals, lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
    done: list[tuple[int, int, float, int]] = []  # (episode number, environment, return, length)
    played = np.zeros(num_envs, np.int64)
    while played.min() < quota:
        outcome = stepper.step(policy.act(rows, deterministic), rows)
        valid = np.ones(num_envs, np.bool_) if outcome.valid is None else outcome.valid
        totals += np.where(valid, outcome.rewards, 0.0)
        lengths += valid
        for env in np.flatnonzero(outcome.terminated | outcome.truncated):
            if played[env] < quota:
                done.append((int(played[env]), int(env), float(totals[env]), int(lengths[env])))
                played[env] += 1
            totals[env] = lengths[env] = 0
    done = sorted(done)[:episodes]
    return [entry[2] for entry in done], [entry[3] for entry in done]


_make_callable(__name__)  # so that shoal.evaluate(...) works beside `from shoal.evaluate import ...`
