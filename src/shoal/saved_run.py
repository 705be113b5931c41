"""A saved run opened for playing: its policy, and the environment that it is played in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gymnasium.vector import VectorEnv
from torch import nn

from shoal.config import TrainConfig
from shoal.held_out import MOST_STEPS, Say, open_environments
from shoal.learn.deploy import DeployedPolicy, read_policy
from shoal.tasks import Task, environment, task_or_default
from shoal.tasks.networks import resolve
from shoal.tasks.saved import check_environment, parse_env_kwargs
from shoal.vector.adapt import Stepper
from shoal.vector.foreign import find_spec, import_all
from shoal.vector.preprocess import wrappers_of


@dataclass(frozen=True)
class Saved:
    """What is played, by whom."""

    run: str
    policy: DeployedPolicy
    seed: int  # of the held-out episodes
    task: Task
    made: Any  # what `make_vec` takes
    kwargs: dict[str, Any]
    imports: tuple[str, ...]
    played: str  # where and against whom, where a score says nothing without it

    @property
    def config(self) -> TrainConfig:
        return self.policy.config

    def environments(self, num_envs: int | None, episodes: int, say: Say) -> VectorEnv[Any, Any, Any]:
        """To play so many episodes in; without `num_envs` as many as make it fast."""
        around: dict[str, Any] = {"imports": self.imports, "wrappers": wrappers_of(self.config)}
        return open_environments(self.made, self.kwargs, num_envs, episodes, self.policy, say, **around)


def open_saved(
    run: str | Path,
    *,
    verb: Literal["evaluate", "play"],
    warn: Say,
    checkpoint: str | int | None = None,
    seed: int | None = None,
    env: Any = None,
    network: nn.Module | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    runs_dir: str | Path = "runs",
) -> Saved:
    """Open a run for `shoal VERB`. `warn` hears what is not as expected."""
    if isinstance(env, VectorEnv):
        raise ValueError("expected env= as a function that makes one environment: a VectorEnv's seeds are its own")
    policy = read_policy(run, resolve, checkpoint=checkpoint, network=network, runs_dir=runs_dir)
    config = policy.config
    import_all(imports)
    check_environment(config, env, imports, f"shoal {verb} {run}", f"{verb} it")
    kwargs = parse_env_kwargs(config.env_kwargs) | dict(env_kwargs or {})
    task = task_or_default(config.task) if env is None else Task()
    played = task.played(task.options(kwargs))
    made, kwargs = (env, {}) if env is not None else environment(config.task, kwargs)
    if isinstance(made, str):
        try:
            find_spec(made)
        except ValueError as error:
            raise ValueError(f"{error}. One that was given from Python is evaluated there, with env=") from None
    for reason in policy.skipped:
        done = {"evaluate": "scored", "play": "played"}[verb]
        warn(f"WARNING: a checkpoint is damaged ({reason}): epoch {policy.epoch} is {done} instead")
    return Saved(
        run=str(run),
        policy=policy,
        seed=config.run.seed if seed is None else seed,
        task=task,
        made=made,
        kwargs=kwargs,
        imports=config.imports if env is None else (),
        played=played,
    )


def limit_of(stepper: Stepper, max_episode_steps: int | None) -> int:
    """Steps after which an episode is cut that nothing ends: no fewer than the environment's own limit."""
    spec = stepper.env.spec
    own_limit = 0 if spec is None else spec.max_episode_steps or 0
    return max_episode_steps or max(MOST_STEPS, own_limit)
