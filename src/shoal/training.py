"""THE loop: collect, estimate, update, record, save, stop."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import torch
from gymnasium.vector import VectorEnv
from torch import nn

from shoal import signals
from shoal.callbacks import Callback, Callbacks, Training, load_callback
from shoal.config import TrainConfig, from_dict, to_dict
from shoal.core.errors import EnvFault, RankFailed
from shoal.core.protocols import parts_of
from shoal.core.spelling import in_python_words, unaliased
from shoal.journal import Journal
from shoal.learn.distributed import team_of
from shoal.learn.learner import Learner
from shoal.learn.policy import check_device
from shoal.learn.rollout import Interrupted
from shoal.learn.sizing import choose_threads, seen_lines
from shoal.learn.team import Team
from shoal.origin import begin_with, find_origin
from shoal.report import write_report
from shoal.runs import best
from shoal.runs.folder import Run
from shoal.runs.kinds import open_training
from shoal.runs.manifest import CheckpointError
from shoal.runs.trackers import own_places
from shoal.runs.usage import Clock
from shoal.starting import (
    RESHARD_ALONE,
    as_saved,
    check_changes,
    check_evaluable,
    check_new,
    check_used,
    importing,
    make_curve,
    make_envs,
    new_config,
    settle,
    with_options,
)
from shoal.stopping import Budget, Result
from shoal.tasks import task_or_default
from shoal.tasks.networks import own_network
from shoal.tasks.saved import check_environment, parse_env_kwargs
from shoal.together import Follower, Together
from shoal.vector.foreign import modules_of

__all__ = ["Result", "loop", "make_envs", "train"]


@dataclass(frozen=True)
class _Given:
    """What came from Python, and no run folder can hold."""

    env: Any
    network: nn.Module | None
    callbacks: Callbacks
    evaluate_env: Any
    team: Team


def train(
    task: str | None = None,
    *,
    config: TrainConfig | None = None,
    env: Any = None,
    network: nn.Module | str | None = None,
    callbacks: Sequence[Callback | str] = (),
    evaluate_env: Any = None,
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
    (see `shoal.learn.networks.Network`). `callbacks` are objects of your own classes derived from `shoal.Callback`, or
    `module:Class`, which the run remembers. `evaluate_env` is what `evaluate_every=` plays in, where it is not the
    environment of the training. With `resume` a run goes on to the same bits; only what does not change the
    learning may be changed then, such as the budget.
    """
    try:
        if isinstance(network, str):  # the option of that name: separate or shared
            network, options = None, {**options, "network": network}
        own = tuple(imports), tuple(callbacks), network, evaluate_env
        options |= {name: str(options[name]) for name in ("init_from", "init_checkpoint") if name in options}
        return _train(task, config, env, own, resume, reshard, stream, command, unaliased(options))
    except ValueError as error:
        if command is None:  # whoever wrote num_envs= knows no --num-envs
            error.args = tuple(in_python_words(part) if isinstance(part, str) else part for part in error.args)
        raise


def _train(
    task: str | None,
    config: TrainConfig | None,
    env: Any,
    own: tuple[tuple[str, ...], tuple[Callback | str, ...], nn.Module | None, Any],
    resume: str | Path | None,
    reshard: bool,
    stream: TextIO | None,
    command: str | None,
    options: dict[str, Any],
) -> Result:
    said: list[str] = []
    imports, callbacks, network, evaluate_env = own
    places = tuple(one for one in callbacks if isinstance(one, str))
    if config is not None and options:
        raise ValueError(f"expected config= or options, got both ({', '.join(options)}): use config.replace(...)")
    if resume is not None:
        run = open_training(resume, Path(options.pop("runs_dir", "runs")))
        before: TrainConfig = from_dict(run.config)
        config = config or with_options(before, options)
        config = config.replace(callbacks=places or config.callbacks)
        named = (*imports, *modules_of("", (), (*places, *own_places(options.get("track") or ""))))
        trusted = before.replace(callbacks=config.callbacks, track=config.run.track)
        check_environment(trusted, env, named, f"shoal train --resume {resume}", "go on with it", training=True)
        config = importing(config, imports)
        said += check_changes(before, config, reshard)
        said += check_used(config, env, before)
    else:
        if reshard:
            raise ValueError(RESHARD_ALONE)
        config = new_config(task, config, env, options)
        check_new(config)
        config = importing(config.replace(callbacks=(*config.callbacks, *places)), imports)
        env = None if isinstance(env, str) else env
        said += check_used(config, env)
    check_evaluable(config, env, evaluate_env)
    hooks = Callbacks([*map(load_callback, config.callbacks), *(one for one in callbacks if not isinstance(one, str))])
    if network is not None and resume is None:
        config = config.replace(encoder="flat")  # a network of the user's sees rows of numbers
    command = command or "python: shoal.train, " + shlex.join(sys.argv)
    wanted, opened = config, None if resume is None else run

    def begin() -> tuple[dict[str, Any], Any]:
        """What rank 0 does before any of them trains."""
        nonlocal opened
        settled = wanted
        if opened is not None:
            opened.lock()
        else:
            settled = settle(wanted, env, said.append, team)
            opened = Run.create(Path(settled.run.runs_dir), settled.run.name, to_dict(settled), command, settled.task)
        return {}, {"config": to_dict(settled), "run": str(opened.path)}

    check_device(config.ppo.device)
    team, error = team_of(config.ppo.device, config.run.rank_timeout), None
    try:
        _, begun = team.lead(begin)
        config = from_dict(begun["config"])
        given = _Given(env, network, hooks, evaluate_env, team)
        if not team.leads:
            return _run(config, Run(Path(begun["run"])), given, resume is not None, reshard, said, stream or sys.stderr)
        assert opened is not None
        return _recorded(config, opened, given, resume is not None, reshard, said, stream or sys.stderr)
    except BaseException as raised:
        error = raised
        raise
    finally:
        team.leave(error)


def _recorded(
    config: TrainConfig, run: Run, given: _Given, resuming: bool, reshard: bool, said: list[str], stream: TextIO
) -> Result:
    """`_run`, and what became of it in the run folder."""
    with run:
        try:
            return _run(config, run, given, resuming, reshard, said, stream)
        except BaseException as error:
            if not resuming and not run.has_begun():
                run.remove()  # a start that was refused, or stopped before the first epoch, leaves nothing behind
            with contextlib.suppress(OSError, ValueError):  # the error itself is what the caller must hear of
                if run.status == "running":  # a resume that was refused has not gone on: it is what it was
                    run.set_status("failed", f"{type(error).__name__}: {error}"[:2000])
            raise


def loop(training: Training, *hooks: Callback) -> str:
    """THE loop. `hooks` are called in their order after each stage. Returns why it ended."""
    learner = training.learner
    learner.ppo.terms = [term for hook in hooks for term in hook.terms(training)]
    for hook in hooks:
        hook.on_start(training)
    while not (reason := training.over()):
        rollout = learner.collect()
        for hook in hooks:
            hook.on_rollout(training, rollout)
        batch = learner.estimate(rollout)
        training.progress = training.limit.progress(learner)
        if batch is not None:  # None: of an update that takes several epochs, one is still to come
            for hook in hooks:
                hook.on_batch(training, batch)
        metrics = learner.update(batch, training.progress)
        training.metrics = {**learner.progress_row(), **metrics}
        for hook in hooks:
            hook.on_epoch(training)
    return reason


def _run(
    config: TrainConfig, run: Run, given: _Given, resuming: bool, reshard: bool, said: list[str], stream: TextIO
) -> Result:
    threads_before = torch.get_num_threads()
    torch.set_num_threads(choose_threads(config.ppo))
    env, network, callbacks, team = given.env, given.network, given.callbacks, given.team
    budget = Budget.of(config)
    clock = Clock()
    origin = None if resuming else find_origin(config)
    if team.leads:
        curve = make_curve(config, env, given.evaluate_env, lambda text: journal.console.message(text))
        journal = Journal(run, config, budget, stream, callbacks, curve)
    else:
        curve, journal = None, Follower(run, config, budget, callbacks)
    together = Together(journal)
    envs: VectorEnv[Any, Any, Any] | None = None
    status = "finished"

    def leave() -> None:
        if envs is not None:
            parts_of(envs).kill()
        if curve is not None:
            curve.kill()
        journal.last_words()

    try:
        about = f"task {config.task}, {config.vector.num_envs:,} environments"
        about += f", {team.size} ranks" if team.size > 1 else ""
        more = [] if curve is None else [curve.header()]
        journal.console.header([f"run {run.shown}", about, *budget.header(), *more, *said])
        envs = make_envs(config, env, journal.console.message, team)
        own = own_network(config.task, parse_env_kwargs(config.env_kwargs)) if env is None else None
        for line in seen_lines(config.ppo, envs.single_observation_space, network is not None or own is not None):
            journal.console.message(line)
        if env is None:
            task = task_or_default(config.task)
            journal.console.add_rows(task.console_rows(task.options(parse_env_kwargs(config.env_kwargs))))
        journal.console.add_rows(callbacks.console_rows)
        if config.run.noise_meter and envs.num_envs > 1:
            count = f"noise scale (of {envs.num_envs:,} environments)"
            journal.console.add_rows([(count, "noise/scale", ",.3g")], lines=False)
        with signals.catching(noted=journal.say_stopping, leave=leave):
            learner = Learner(
                as_saved(config) if resuming else config,
                envs,
                network=network,
                own_network=own,
                interrupted=lambda: signals.received() is not None,
                team=team,
            )
            training = Training(learner, budget, lambda text: journal.tell(text, event="callback"), run.path)
            if resuming:
                journal.restore(training, reshard=reshard)
                if team.leads:
                    run.set_config(to_dict(config))
                for line in said:
                    if line.startswith("changed "):
                        journal.note({"event": "changed", "text": line})
            else:
                if origin is not None:
                    journal.tell_all(begin_with(learner, origin, own_module=network is not None))
                learner.start()
            journal.open(learner)
            try:
                reason = loop(training, *([] if curve is None else [curve]), callbacks, journal, together)
            except Interrupted:
                status, reason = "interrupted", f"stopped by {signals.name()}"
            except (EnvFault, RankFailed) as error:
                team.ends(error)
                with contextlib.suppress(CheckpointError):  # why the run ends is what the caller must hear of
                    journal.save(learner)
                raise
            journal.save(learner, last=True)
            callbacks.on_end(training)
            advice = journal.remark() if status == "finished" else None
            if status == "interrupted":
                reason = f"{reason}, checkpoint of epoch {journal.saved_epoch} written"
            journal.finish(status, reason, learner)
    finally:
        try:
            if envs is not None:
                envs.close()
            if curve is not None:
                curve.close()
        except EnvFault as fault:  # all is saved by now: a bad farewell is noted, not a failed run
            journal.tell(f"closing the environments failed: {fault}", event="close failed")
        journal.close()
        torch.set_num_threads(threads_before)
    returns, kept = learner.tracker.recent_returns, best.read(run) if team.leads else None
    result = Result(
        run=str(run.path),
        status=status,
        reason=reason,
        epochs=learner.epoch,
        steps=learner.steps,
        episodes=learner.tracker.completed,
        mean_return=sum(returns) / len(returns) if returns else None,
        restarts=len(parts_of(envs).faults) + together.restarts,
        lost_steps=learner.tracker.lost,
        cpu_s=clock.cpu_s(),
        wall_s=clock.wall_s(),
        signal=signals.received() if status == "interrupted" else None,
        best=None if kept is None else asdict(kept),
        advice=advice,
    )
    journal.console.header(result.lines())
    if not team.leads:
        return result
    try:
        write_report(run)
    except (OSError, ValueError) as error:  # the run itself is done and saved
        journal.tell(f"the report could not be written: {error}", event="report failed")
    return result
