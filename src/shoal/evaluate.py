"""A saved run on episodes it has never seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from torch import nn

from shoal.defender import cage2_played, cage2_policy
from shoal.learn.deploy import DeployedPolicy, load_policy
from shoal.tasks import environment
from shoal.train import check_environment, parse_env_kwargs
from shoal.vector.foreign import find_spec, import_all
from shoal.vector.layout import Array, Layout
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
    imports: Sequence[str] = (),
    runs_dir: str | Path = "runs",
) -> dict[str, Any]:
    """Score a run on held-out episodes, acting greedily and by sampling.

    `env` makes one environment, where the run was trained on one of your own; `imports` are modules to import first.

    Episode seeds come from the evaluation stream of the run's seed (or of `seed`), which no training shares. Every
    environment plays the same number of episodes: taking whichever end first would favour short ones.
    """
    if episodes < 1 or num_envs < 1:
        raise ValueError(f"expected at least 1 episode and 1 environment, got {episodes} and {num_envs}")
    if isinstance(env, VectorEnv):
        raise ValueError("expected env= as a function that makes one environment: a VectorEnv's seeds are its own")
    policy = load_policy(run, network=network, runs_dir=runs_dir)
    config = policy.config
    import_all(imports)
    check_environment(config, env, imports, f"shoal evaluate {run}", "evaluate it")
    seed = config.run.seed if seed is None else seed
    kwargs = parse_env_kwargs(config.env_kwargs) | ({} if simulator is None else {"simulator": simulator})
    played = cage2_played(kwargs) if config.task == "cage2" and env is None else None
    made, kwargs = (env, {}) if env is not None else environment(config.task, kwargs)
    if isinstance(made, str):
        try:
            find_spec(made)
        except ValueError as error:
            raise ValueError(f"{error}. One that was given from Python is evaluated there, with env=") from None
    result: dict[str, Any] = {
        "task": config.task, "epoch": policy.epoch, "seed": seed, "num_envs": num_envs, "held_out": True,
        "skipped": policy.skipped,
    }  # fmt: skip
    if played is not None:
        result["played"] = played
    for mode, deterministic in (("deterministic", True), ("sampled", False)):
        envs = make_vec(
            made,
            num_envs,
            stream=Stream.EVALUATE,
            env_kwargs=kwargs,
            imports=config.imports if env is None else (),
            wrappers=config.wrappers,
        )
        try:
            _check_same_observations(policy, envs)
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
    rules: str | None = None,
    epoch: int | None = None,
    runs_dir: str | Path = "runs",
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """A cage2 run by the challenge's protocol: 3 red agents x 30, 50 and 100 steps, the means and their sum.

    `rules` may be "final", those of the published leaderboard. `say` hears every few seconds how far it is: the real
    CybORG takes minutes.
    """
    from shoal.tasks.cage2.commands import score_policy

    act, options = cage2_policy(run, runs_dir, epoch)
    result = score_policy(act, episodes, seed, simulator=simulator, rules=rules, say=say, **options)
    return {"run": str(run), "episodes": episodes, "seed": seed, **result}


def _check_same_observations(policy: DeployedPolicy, envs: VectorEnv[Any, Any, Any]) -> None:
    """Rows go to the policy by position: every part must be of the same name, shape and type, in the same order."""
    trained, got = policy.agent.features.layout, Layout(envs.single_observation_space)
    if trained.leaves != got.leaves:
        raise ValueError(
            f"expected the observations that the run was trained on, {trained.space}, got {got.space}: evaluate it on "
            "the environment of the run (the order of a Dict's keys counts too)"
        )


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
