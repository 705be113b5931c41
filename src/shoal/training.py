"""THE loop: collect, estimate, update, record, save, stop."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from torch import nn

from shoal import signals
from shoal.config import FromPython, TrainConfig, from_dict, to_dict
from shoal.core.errors import EnvFault
from shoal.core.protocols import parts_of
from shoal.core.spelling import in_python_words, unaliased
from shoal.journal import Journal
from shoal.learn.encoders import Features
from shoal.learn.learner import Learner
from shoal.learn.pictures import chosen_encoder
from shoal.learn.policy import check_device
from shoal.learn.rollout import Interrupted
from shoal.learn.sizing import check_memory, choose_num_envs, choose_threads, seen_lines
from shoal.report import write_report
from shoal.runs.folder import Run
from shoal.runs.trackers import check_names
from shoal.runs.usage import Clock
from shoal.runs.words import figure
from shoal.stopping import Budget
from shoal.tasks import Spaces, environment, task_or_default
from shoal.tasks.networks import own_network
from shoal.tasks.presets import BUDGETS, auto_scaled, config_for, config_without_preset, without_budget
from shoal.tasks.saved import check_environment, parse_env_kwargs
from shoal.vector.foreign import import_all, modules_of
from shoal.vector.make import make_probe, make_vec, name_of, probed_cost_s


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    run: str
    status: str  # finished or interrupted
    reason: str
    epochs: int
    steps: int
    episodes: int
    mean_return: float | None  # of the last 100 training episodes
    restarts: int  # environments rebuilt after a fault
    cpu_s: float  # of this process and its workers, from building the environments on, without the report
    wall_s: float
    signal: int | None = None
    advice: str | None = None  # where the return did not rise, or no episode ended: what to try

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """For people: why it ended, and how far it came."""
        lines = [
            f"{self.status}: {self.reason}",
            f"{self.steps:,} steps, {self.episodes:,} episodes, mean return of the last 100: "
            f"{figure(self.mean_return)}; {self.wall_s:,.1f} s ({self.cpu_s:,.1f} CPU-s)",
        ]
        if self.restarts:
            lines.append(f"{self.restarts} environments were restarted after faults: see {self.run}/events.jsonl")
        return lines


def train(
    task: str | None = None,
    *,
    config: TrainConfig | None = None,
    env: Any = None,
    network: nn.Module | str | None = None,
    resume: str | Path | None = None,
    reshard: bool = False,
    imports: Sequence[str] = (),
    stream: TextIO | None = None,
    command: str | None = None,
    **options: Any,
) -> Result:
    """Train PPO and keep everything in a run folder.

    `task` is a Gymnasium id, or `module:id` (default: CartPole-v1). `env` may stand in for it: a function that makes
    one environment, a CompiledEnv or a VectorEnv. Then `task` is only a name, with its preset if it has one; without
    it the run is called after what was given. `options` are the flags of `shoal train` by name (`num_envs=64, seed=1,
    ...`). `imports` are modules to import first, here and in workers. `network` is a module with `policy` and `value`
    (see `shoal.learn.networks.Network`). With `resume` a run goes on to the same bits; only what does not change the
    learning may be changed then, such as the budget.
    """
    try:
        return _train(task, config, env, network, resume, reshard, tuple(imports), stream, command, unaliased(options))
    except ValueError as error:
        if command is None:  # whoever wrote num_envs= knows no --num-envs
            error.args = tuple(in_python_words(part) if isinstance(part, str) else part for part in error.args)
        raise


def _train(
    task: str | None,
    config: TrainConfig | None,
    env: Any,
    network: nn.Module | str | None,
    resume: str | Path | None,
    reshard: bool,
    imports: tuple[str, ...],
    stream: TextIO | None,
    command: str | None,
    options: dict[str, Any],
) -> Result:
    said: list[str] = []
    if config is not None and options:
        raise ValueError(f"expected config= or options, got both ({', '.join(options)}): use config.replace(...)")
    if isinstance(network, str):  # the option of that name: separate or shared
        network, options = None, {**options, "network": network}
    if resume is not None:
        run = Run.open(resume, Path(options.pop("runs_dir", "runs")))
        before: TrainConfig = from_dict(run.config)
        check_environment(before, env, imports, f"shoal train --resume {resume}", "go on with it")
        config = _importing(config or _with(before, options), imports)
        said += _check_changes(before, config, reshard)
        run.lock()
    else:
        config = _importing(_new_config(task, config, env, options), imports)
        env = None if isinstance(env, str) else env
        if network is not None:
            config = config.replace(encoder="flat")  # a network of the user's sees rows of numbers
        config = _settle(config, env, said.append)
        command = command or "python: shoal.train, " + shlex.join(sys.argv)
        run = Run.create(Path(config.run.runs_dir), config.run.name, to_dict(config), command, config.task)
    with run:
        try:
            return _run(config, run, env, network, resume is not None, reshard, said, stream or sys.stderr)
        except BaseException as error:
            if resume is None and not run.has_begun():
                run.remove()  # a start that was refused, or stopped before the first epoch, leaves nothing behind
            with contextlib.suppress(OSError, ValueError):  # the error itself is what the caller must hear of
                if run.status == "running":  # a resume that was refused has not gone on: it is what it was
                    run.set_status("failed", f"{type(error).__name__}: {error}"[:2000])
            raise


def _new_config(task: str | None, config: TrainConfig | None, env: Any, options: dict[str, Any]) -> TrainConfig:
    """The settings of a new run. One whose environment is given is never the default task, and says that it was."""
    if isinstance(env, str):
        if task is not None or config is not None:
            raise ValueError(f"expected one environment by its id, got env={env!r} beside a task")
        task, env = env, None
    if env is None:
        return config or config_for(task or TrainConfig.task, **options)
    name = name_of(env)
    if config is None:
        config = config_without_preset(name, **options) if task is None else config_for(task, **options)
    elif task is not None or config.task == TrainConfig.task:
        config = config.replace(task=task or name)
    return config.replace(given=FromPython(name))


def _importing(config: TrainConfig, imports: tuple[str, ...]) -> TrainConfig:
    import_all(imports)
    known = modules_of(config.task, config.imports, config.wrappers)
    return config.replace(imports=(*config.imports, *(name for name in imports if name not in known)))


def _run(
    config: TrainConfig,
    run: Run,
    env: Any,
    network: nn.Module | None,
    resuming: bool,
    reshard: bool,
    said: list[str],
    stream: TextIO,
) -> Result:
    threads_before = torch.get_num_threads()
    torch.set_num_threads(choose_threads(config.ppo))
    budget = Budget.of(config)
    clock = Clock()
    journal = Journal(run, config, budget, stream)
    envs: VectorEnv[Any, Any, Any] | None = None
    status = "finished"
    reason: str | None = None

    def leave() -> None:
        if envs is not None:
            parts_of(envs).kill()
        journal.last_words()

    try:
        about = f"task {config.task}, {config.vector.num_envs:,} environments"
        journal.console.header([f"run {run.shown}", about, *budget.header(), *said])
        envs = make_envs(config, env, journal.console.message)
        own = own_network(config.task, parse_env_kwargs(config.env_kwargs)) if env is None else None
        for line in seen_lines(config.ppo, envs.single_observation_space, network is not None or own is not None):
            journal.console.message(line)
        if env is None:
            task = task_or_default(config.task)
            journal.console.add_rows(task.console_rows(task.options(parse_env_kwargs(config.env_kwargs))))
        with signals.catching(noted=journal.say_stopping, leave=leave):
            learner = Learner(
                _as_saved(config) if resuming else config,
                envs,
                network=network,
                own_network=own,
                interrupted=lambda: signals.received() is not None,
            )
            if resuming:
                journal.restore(learner, reshard=reshard)
                run.set_config(to_dict(config))
                for line in said:
                    if line.startswith("changed "):
                        journal.note({"event": "changed", "text": line})
            else:
                learner.start()
            journal.open(learner)
            try:
                journal.save_if_due(learner)
                while not (reason := budget.reached(learner)):
                    rollout = learner.collect()
                    batch = learner.estimate(rollout)
                    metrics = learner.update(batch, budget.progress(learner))
                    journal.record(learner, metrics)
                    journal.save_if_due(learner)
                    stop_if_asked()
            except Interrupted:
                status, reason = "interrupted", f"stopped by {signals.name()}"
            journal.save(learner, last=True)
            advice = journal.remark() if status == "finished" else None
            if status == "interrupted":
                reason = f"{reason}, checkpoint of epoch {journal.saved_epoch} written"
            journal.finish(status, reason or "", learner)
    finally:
        try:
            if envs is not None:
                envs.close()
        except EnvFault as fault:  # all is saved by now: a bad farewell is noted, not a failed run
            journal.tell(f"closing the environments failed: {fault}", event="close failed")
        journal.close()
        torch.set_num_threads(threads_before)
    returns = learner.tracker.recent_returns
    result = Result(
        run=str(run.path),
        status=status,
        reason=reason or "",
        epochs=learner.epoch,
        steps=learner.steps,
        episodes=learner.tracker.completed,
        mean_return=sum(returns) / len(returns) if returns else None,
        restarts=len(parts_of(envs).faults),
        cpu_s=clock.cpu_s(),
        wall_s=clock.wall_s(),
        signal=signals.received() if status == "interrupted" else None,
        advice=advice,
    )
    journal.console.header(result.lines())
    try:
        write_report(run)
    except (OSError, ValueError) as error:  # the run itself is done and saved
        journal.tell(f"the report could not be written: {error}", event="report failed")
    return result


def stop_if_asked() -> None:
    """A signal that came during the update: the epoch is whole, so stop here."""
    if signals.received() is not None:
        raise Interrupted


def make_envs(config: TrainConfig, env: Any, say: Callable[[str], None]) -> VectorEnv[Any, Any, Any]:
    """The run's environments."""
    vector = config.vector
    assert vector.num_envs != "auto"  # settled before
    return make_vec(
        **_made_of(config, env),
        num_envs=vector.num_envs,
        workers=vector.workers,
        env_threads=vector.env_threads,
        slices=vector.slices,
        say=say,
    )


def _made_of(config: TrainConfig, env: Any) -> dict[str, Any]:
    """What a batch and a probe have in common: the environment and how it is run."""
    vector = config.vector
    made, kwargs = (env, {}) if env is not None else environment(config.task, parse_env_kwargs(config.env_kwargs))
    return {
        "env": made,
        "env_kwargs": kwargs,
        "imports": config.imports if env is None else (),
        "wrappers": config.wrappers,
        "backend": vector.backend,
        "start_method": vector.start_method,
        "step_timeout_s": vector.step_timeout,
        "build_timeout_s": vector.build_timeout,
        "on_fault": vector.on_fault,
        "max_restarts": vector.max_restarts,
        "restart_window": vector.restart_window,
    }


# What a resumed run may change. Of these only the budget alters the learning: the schedules follow it.
_CHANGEABLE = {
    *("steps", "epochs", "episodes", "target_return", "runs_dir", "save_interval", "keep", "log_interval", "track"),
    *("on_save_error", "backend", "workers", "env_threads", "start_method", "step_timeout", "on_fault", "max_restarts"),
    *("restart_window", "memory_budget_gb", "build_timeout", "imports"),
    *("wandb_project", "wandb_entity", "wandb_group", "wandb_tags"),
}


def _as_saved(config: TrainConfig) -> TrainConfig:
    """A run that names no encoder has no pictures, or is older than encoders."""
    return config.replace(encoder="flat") if config.ppo.encoder == "auto" else config


def _with(config: TrainConfig, options: dict[str, Any]) -> TrainConfig:
    budget_given = any(options.get(name) is not None for name in BUDGETS)
    return (without_budget(config) if budget_given else config).replace(**options)


def _check_changes(before: TrainConfig, after: TrainConfig, reshard: bool) -> list[str]:
    """What differs from the run being resumed, as lines; refuses what would make it another run."""
    lines = []
    for group in ("vector", "ppo", "run", ""):
        old, new = (to_dict(getattr(config, group) if group else config) for config in (before, after))
        for name in {**old, **new}:
            if name in ("vector", "ppo", "run") or old.get(name) == new.get(name):
                continue
            if name not in _CHANGEABLE and not (name == "num_envs" and reshard):
                cure = "add --reshard" if name == "num_envs" else "start a new run for that"
                flag = "--" + name.replace("_", "-")
                raise ValueError(
                    f"{flag} is {old.get(name)} in the run to resume, {new.get(name)} was asked for: {cure}"
                )
            lines.append(f"changed {name}: {old.get(name)} -> {new.get(name)}")
    return lines


def _settle(config: TrainConfig, env: Any, say: Callable[[str], None]) -> TrainConfig:
    """Before anything is written down or started: `auto` becomes a number, and what cannot fit is refused."""
    check_names(config.run.track)
    check_device(config.ppo.device)
    if hasattr(env, "num_envs"):
        config = _for_spaces(
            config.replace(num_envs=env.num_envs), env.single_observation_space, env.single_action_space
        )
        return _with_threads(config, env.single_observation_space)
    first = env[:1] if isinstance(env, list | tuple) else env
    known = _known_spaces(config) if env is None else None
    if known is not None:
        spaces = known
        config = _for_spaces(config, *spaces)
    else:
        with closing(make_probe(**_made_of(config, first))) as probe:
            spaces = probe.single_observation_space, probe.single_action_space
            config = _for_spaces(config, *spaces)
            if config.vector.num_envs == "auto":
                config = config.replace(num_envs=choose_num_envs(config, probed_cost_s(probe), *spaces, say))
    if config.ppo.auto_scale:
        config, lines = auto_scaled(config)
        for line in lines:
            say(line)
    say(check_memory(config, *spaces))
    return _with_threads(config, spaces[0])


def _known_spaces(config: TrainConfig) -> Spaces | None:
    """What a task says of its spaces: then no environment is built here, where one that breaks ends the training."""
    if config.vector.num_envs == "auto" or config.wrappers:
        return None
    task = task_or_default(config.task)
    return task.spaces(task.options(parse_env_kwargs(config.env_kwargs)))


def _with_threads(config: TrainConfig, observation_space: Space[Any]) -> TrainConfig:
    """With the learner's threads written down: another number gives other bits, so a resumed run keeps it."""
    features = Features(observation_space, config.ppo.encoder)
    return config.replace(torch_threads=choose_threads(config.ppo, features.size, sees=bool(features.pictures)))


def _for_spaces(config: TrainConfig, observation_space: Space[Any], action_space: Space[Any]) -> TrainConfig:
    """The options that depend on the spaces, as values that config.json can show."""
    config = config.replace(encoder=chosen_encoder(config.ppo.encoder, observation_space))
    return dataclasses.replace(config, ppo=config.ppo.for_actions(isinstance(action_space, Box)))
