"""A saved run on episodes it has never seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from shoal.core.statistics import interval
from shoal.held_out import Episodes, Say, held_out_seeds, play
from shoal.learn.deploy import DeployedPolicy
from shoal.learn.said import chosen_names
from shoal.recording import check_recordable
from shoal.recording import record as write_clips
from shoal.report import write_report
from shoal.runs import scores
from shoal.runs.folder import Run
from shoal.runs.pace import Pace
from shoal.saved_run import limit_of, open_saved
from shoal.vector.adapt import Stepper

__all__ = ["Score", "evaluate", "interval", "play"]


@dataclass(frozen=True)
class Score:
    """Returns of held-out episodes."""

    mean: float
    low: float | None  # 95 % interval of the mean; one episode has none
    high: float | None
    median: float
    worst: float
    best: float
    mean_length: float
    episodes: int
    unfinished: int  # episodes cut at the limit of steps; their returns so far are among the others
    returns: list[float]
    infos: dict[str, float]  # means of the numbers in the episodes' last infos

    @staticmethod
    def of(played: Episodes, seed: int, infos: dict[str, float] | None = None) -> Score:
        values = played.returns
        low, high = interval(values, seed) or (None, None)
        return Score(
            mean=float(values.mean()),
            low=low,
            high=high,
            median=float(np.median(values)),
            worst=float(values.min()),
            best=float(values.max()),
            mean_length=float(played.lengths.mean()),
            episodes=len(values),
            unfinished=int(played.unfinished.sum()),
            returns=[float(value) for value in values],
            infos=infos or {},
        )


def evaluate(
    run: str | Path,
    *,
    episodes: int = 100,
    num_envs: int | None = None,
    seed: int | None = None,
    checkpoint: str | int | None = None,
    env: Any = None,
    network: nn.Module | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    max_episode_steps: int | None = None,
    record: bool = False,
    keep: bool = True,
    runs_dir: str | Path = "runs",
    say: Say | None = None,
) -> dict[str, Any]:
    """Score a run on held-out episodes, acting greedily and by sampling, and keep the score in its folder.

    `checkpoint` is "last", "best" or the number of an epoch; by default the best by the evaluations while it trained
    (`--evaluate-every`), if there were any, else the newest.

    `env` makes one environment, where the run was trained on one of your own; `imports` are modules to import first.
    `env_kwargs` are arguments of the environment in place of the run's own.

    Episode seeds come from the evaluation stream of the run's seed (or of `seed`), which no training shares. The
    score is the same whatever `num_envs`, which by default is as many as make it fast. An episode that nothing ends is
    cut after `max_episode_steps` (by default 20,000, or the environment's own limit if that is higher); how many were
    is in the result. With `record` the best, the median and the worst episode (deterministic) become short clips in the
    run's report. `say` hears warnings and, where it takes long, how long; without it warnings are Python's.
    """
    for name, count in (("episodes", episodes), ("num_envs", num_envs), ("max_episode_steps", max_episode_steps)):
        if count is not None and count < 1:
            raise ValueError(f"expected --{name.replace('_', '-')} of at least 1, got {count}")
    warn: Say = say or (lambda text: warnings.warn(text, stacklevel=3))
    saved = open_saved(
        run,
        verb="evaluate",
        warn=warn,
        checkpoint=checkpoint,
        seed=seed,
        env=env,
        network=network,
        env_kwargs=env_kwargs,
        imports=imports,
        runs_dir=runs_dir,
    )
    policy = saved.policy
    if say is not None and policy.chosen:
        say(policy.chosen)
    mode = check_recordable(saved) if record else ""
    envs = saved.environments(num_envs, episodes, say or (lambda text: None))
    try:
        result: dict[str, Any] = {
            "task": saved.config.task, "epoch": policy.epoch, "seed": saved.seed, "num_envs": envs.num_envs,
            "held_out": True, "skipped": policy.skipped,
        }  # fmt: skip
        if env_kwargs:
            result["env_kwargs"] = dict(env_kwargs)
        if saved.played:
            result["played"] = saved.played
        if policy.chosen:
            result["chosen"] = policy.chosen
        result |= _play_both(policy, Stepper(envs), episodes, saved.seed, max_episode_steps, say, saved.task.scored)
    finally:
        envs.close()
    result |= {name: result["deterministic"][name] for name in ("mean", "low", "high", "episodes")}
    cut = result["deterministic"]["unfinished"] + result["sampled"]["unfinished"]
    if cut:
        warn(
            f"WARNING: {cut} of {2 * episodes} episodes did not end within {result['max_episode_steps']:,} steps and "
            "were cut: their returns so far are counted"
        )
    if record:
        seeds, limit = held_out_seeds(saved.seed, episodes, policy.seed_scheme), result["max_episode_steps"]
        folder = Run.open(run, Path(runs_dir))
        result["recorded"] = write_clips(folder, saved, mode, seeds, result["deterministic"], limit, warn)
    if not result["replayed_alike"]:
        warn("WARNING: an episode played again with the same seed went otherwise: the environment ignores its seed")
    if keep:
        _keep(run, runs_dir, scores.HELD_OUT, result, warn)
    return result


def _play_both(
    policy: DeployedPolicy,
    stepper: Stepper,
    episodes: int,
    seed: int,
    max_episode_steps: int | None,
    say: Say | None,
    scored: Callable[[Episodes], dict[str, Any]],
) -> dict[str, Any]:
    """Greedily, by sampling, and one episode once more: does the environment do the same for the same seed?"""
    seeds = held_out_seeds(seed, episodes, policy.seed_scheme)
    wanted = chosen_names(policy.config.run.log_info)
    limit = limit_of(stepper, max_episode_steps)
    pace = Pace(2 * episodes, "episodes", say or (lambda text: None))
    result: dict[str, Any] = {"max_episode_steps": limit}
    for mode, before in (("deterministic", 0), ("sampled", episodes)):

        def heard(over: int, steps: int, before: int = before) -> None:
            pace.at(before + over, f" ({steps:,} steps)")

        played = play(policy, stepper, seeds, seed, deterministic=mode == "deterministic", max_steps=limit, heard=heard)
        result[mode] = asdict(Score.of(played, seed, played.said.means(wanted))) | scored(played)
    again = play(policy, stepper, seeds[:1], seed, max_steps=limit)
    result["replayed_alike"] = float(again.returns[0]) == result["deterministic"]["returns"][0]
    return result


def _keep(run: str | Path, runs_dir: str | Path, kind: str, result: dict[str, Any], warn: Say) -> None:
    try:
        scores.keep(Run.open(run, Path(runs_dir)), kind, result)
    except OSError as error:  # the score is there all the same
        return warn(f"the score was not kept: {error}")
    try:
        write_report(run, runs_dir=runs_dir)
    except (OSError, ValueError) as error:
        warn(f"the report was not written: {error}")
