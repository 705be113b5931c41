"""THE loop: collect, estimate, update, record, save, stop."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from torch import nn

from shoal import _make_callable, signals
from shoal.budget import Budget
from shoal.config import TrainConfig, from_dict, to_dict
from shoal.journal import Journal
from shoal.learn.agent import check_device
from shoal.learn.learner import Learner
from shoal.learn.rollout import Interrupted
from shoal.learn.sizing import check_memory, choose_num_envs, choose_threads
from shoal.report import write_report
from shoal.runs.store import Run
from shoal.runs.tracking import check_names
from shoal.runs.usage import Clock
from shoal.runs.words import figure
from shoal.tasks import environment
from shoal.tasks.presets import BUDGETS, auto_scaled, config_for, without_budget
from shoal.vector.choose import step_cost_s
from shoal.vector.errors import EnvFault
from shoal.vector.make import make_vec


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
    task: str = "CartPole-v1",
    *,
    config: TrainConfig | None = None,
    env: Any = None,
    network: nn.Module | str | None = None,
    resume: str | Path | None = None,
    reshard: bool = False,
    stream: TextIO | None = None,
    command: str | None = None,
    **options: Any,
) -> Result:
    """Train PPO and keep everything in a run folder.

    `options` are the flags of `shoal train` by name (`num_envs=64, seed=1, ...`). `env` may stand in for the task's
    id: a function that makes one environment, a CompiledEnv or a VectorEnv. `network` is a module with `policy` and
    `value` (see `shoal.learn.network.Network`). With `resume` a run goes on to the same bits; only what does not
    change the learning may be changed then, such as the budget.
    """
    said: list[str] = []
    if config is not None and options:
        raise ValueError(f"expected config= or options, got both ({', '.join(options)}): use config.replace(...)")
    if isinstance(network, str):  # the option of that name: separate or shared
        network, options = None, {**options, "network": network}
    if resume is not None:
        run = Run.open(resume, Path(options.pop("runs_dir", "runs")))
        before: TrainConfig = from_dict(run.config)
        config = config or _with(before, options)
        said += _check_changes(before, config, reshard)
        run.lock()
    else:
        config = _settle(config or config_for(task, **options), env, said.append)
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
    envs: Any = None
    status = "finished"
    reason: str | None = None

    def leave() -> None:
        getattr(envs, "kill", lambda: None)()
        journal.last_words()

    try:
        about = f"task {config.task}, {config.vector.num_envs:,} environments"
        journal.console.header([f"run {run.shown}", about, *budget.header(), *said])
        envs = make_envs(config, env, journal.console.message)
        journal.console.add_rows(getattr(envs, "console_rows", ()))
        with signals.catching(noted=journal.say_stopping, leave=leave):
            learner = Learner(config, envs, network=network, interrupted=lambda: signals.received() is not None)
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
        restarts=len(getattr(envs, "faults", [])),
        cpu_s=clock.cpu_s(),
        wall_s=clock.wall_s(),
        signal=signals.received() if status == "interrupted" else None,
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


def make_envs(config: TrainConfig, env: Any, say: Callable[[str], None]) -> Any:
    """The run's environments."""
    vector = config.vector
    assert vector.num_envs != "auto"  # settled before
    made, kwargs = (env, {}) if env is not None else environment(config.task, parse_env_kwargs(config.env_kwargs))
    return make_vec(
        made,
        vector.num_envs,
        backend=vector.backend,
        workers=vector.workers,
        env_threads=vector.env_threads,
        slices=vector.slices,
        start_method=vector.start_method,
        step_timeout_s=vector.step_timeout,
        on_fault=vector.on_fault,
        max_restarts=vector.max_restarts,
        restart_window=vector.restart_window,
        env_kwargs=kwargs,
        say=say,
    )


def parse_env_kwargs(text: str) -> dict[str, Any]:
    """`--env-kwargs` as a dict."""
    try:
        kwargs = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"expected --env-kwargs as a JSON object like '{{\"g\": 9.81}}', got {text!r}: {error}"
        ) from None
    if not isinstance(kwargs, dict):
        raise ValueError(f"expected --env-kwargs as a JSON object, got {text!r}")
    return kwargs


# What a resumed run may change. Of these only the budget alters the learning: the schedules follow it.
_CHANGEABLE = {
    *("steps", "epochs", "episodes", "target_return", "runs_dir", "save_interval", "keep", "log_interval", "track"),
    *("on_save_error", "backend", "workers", "env_threads", "start_method", "step_timeout", "on_fault", "max_restarts"),
    *("restart_window", "memory_budget_gb", "wandb_project", "wandb_entity", "wandb_group", "wandb_tags"),
}


def _with(config: TrainConfig, options: dict[str, Any]) -> TrainConfig:
    budget_given = any(options.get(name) is not None for name in BUDGETS)
    return (without_budget(config) if budget_given else config).replace(**options)


def _check_changes(before: TrainConfig, after: TrainConfig, reshard: bool) -> list[str]:
    """What differs from the run being resumed, as lines; refuses what would make it another run."""
    lines = []
    for group in ("vector", "ppo", "run", ""):
        old, new = (to_dict(getattr(config, group) if group else config) for config in (before, after))
        for name in old:
            if name in ("vector", "ppo", "run") or old[name] == new[name]:
                continue
            if name not in _CHANGEABLE and not (name == "num_envs" and reshard):
                cure = "add --reshard" if name == "num_envs" else "start a new run for that"
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag} is {old[name]} in the run to resume, {new[name]} was asked for: {cure}")
            lines.append(f"changed {name}: {old[name]} -> {new[name]}")
    return lines


def _settle(config: TrainConfig, env: Any, say: Callable[[str], None]) -> TrainConfig:
    """Before anything is written down or started: `auto` becomes a number, and what cannot fit is refused."""
    check_names(config.run.track)
    check_device(config.ppo.device)
    if hasattr(env, "num_envs"):
        return config.replace(num_envs=env.num_envs)
    first = env[:1] if isinstance(env, list | tuple) else env
    probe = make_envs(config.replace(num_envs=1, backend="auto", slices="lockstep"), first, lambda text: None)
    try:
        spaces = probe.single_observation_space, probe.single_action_space
        if config.vector.num_envs == "auto":
            config = config.replace(num_envs=choose_num_envs(config, step_cost_s(probe), *spaces, say))
        if config.ppo.auto_scale:
            config, lines = auto_scaled(config)
            for line in lines:
                say(line)
        say(check_memory(config, *spaces))
    finally:
        probe.close()
    return config


_make_callable(__name__)  # so that shoal.train(...) works beside `from shoal.train import ...`
