"""What a run starts with: its settings, every one of them a number by then, and its environments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing
from typing import Any

from gymnasium import Space
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv

from shoal.callbacks import own_trackers
from shoal.config import FromPython, RunConfig, TrainConfig, group_of, to_dict
from shoal.core.machine import ranked, ranks_here
from shoal.core.protocols import TrainingEnv, parts_of
from shoal.core.spaces import is_numbered
from shoal.held_out_curve import HeldOutCurve
from shoal.learn.encoders import Features
from shoal.learn.pictures import chosen_encoder
from shoal.learn.policy import check_device
from shoal.learn.sizing import check_memory, choose_num_envs, choose_threads
from shoal.learn.team import ALONE, Team
from shoal.runs.trackers import check_names, own_places, tracked
from shoal.tasks import Spaces, environment, task_or_default
from shoal.tasks.presets import BUDGETS, auto_scaled, config_for, config_without_preset, own_settings, without_budget
from shoal.tasks.saved import parse_env_kwargs
from shoal.vector.foreign import import_all, modules_of
from shoal.vector.make import make_probe, make_vec, name_of, probed_cost_s
from shoal.vector.preprocess import wrappers_of
from shoal.vector.unused import needless, slices_used, steps_at_once, unused


def new_config(task: str | None, config: TrainConfig | None, env: Any, options: dict[str, Any]) -> TrainConfig:
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


def check_new(config: TrainConfig) -> None:
    """Refuse what would be without effect in a new run."""
    episodes, default = config.run.evaluate_episodes, TrainConfig().run.evaluate_episodes
    if config.run.evaluate_every is None and episodes != default:
        raise ValueError(
            f"--evaluate-episodes {episodes} is for evaluations during training: add --evaluate-every EPOCHS (after "
            f"training: shoal evaluate RUN --episodes {episodes})"
        )
    _check_wandb(config.run, [name for name in _WANDB if getattr(config.run, name)])


def _check_wandb(run: RunConfig, given: list[str]) -> None:
    """Refuse flags of Weights & Biases where nothing goes there. A tracker of the user's own may read them."""
    if given and not own_places(run.track) and "wandb" not in tracked(run.track):
        flag = "--" + given[0].replace("_", "-")
        track = ",".join((*tracked(run.track), "wandb"))
        raise ValueError(f"{flag} {getattr(run, given[0])} is for runs that W&B records: add --track {track}")


def check_used(config: TrainConfig, env: Any = None, before: TrainConfig | None = None) -> list[str]:
    """Refuse an option that was asked for and would be without effect; lines for those that do no harm. What a resumed
    run had `before` was not asked for."""
    refused, told = _unused(config, env, before)
    for line in refused.values():
        raise ValueError(line)
    return list(told.values())


def without_unused(config: TrainConfig) -> tuple[TrainConfig, list[str]]:
    """Of a run that shares its options with others, to some of which they may mean something: without those that mean
    nothing to it, and lines that say so."""
    refused, told = _unused(config, None, None)
    own, found = own_settings(config), refused | told
    as_own = {name: getattr(getattr(own, group_of(name)), name) for name in found}
    return config.replace(**as_own), list(found.values())


def _unused(config: TrainConfig, env: Any, before: TrainConfig | None) -> tuple[dict[str, str], dict[str, str]]:
    """Options that were asked for and mean nothing: those to refuse, and those to speak of."""
    known = [before] if before is not None else [TrainConfig(), own_settings(config)]

    def asked(found: dict[str, str]) -> dict[str, str]:
        lines = {}
        for name, why in found.items():
            value, *others = (getattr(getattr(one, group_of(name)), name) for one in (config, *known))
            if value not in others:
                lines[name] = f"--{name.replace('_', '-')} {value} {why}"
        return lines

    alone = "is for several ranks, and this is one process: leave it out, or use torchrun"
    refused = {} if ranked() else asked({"rank_timeout": alone})
    if asked(dict.fromkeys((one.name for one in dataclasses.fields(config.vector)), "")):
        at_once = steps_at_once(_made_of(config, env)["env"])
        refused |= asked(unused(config.vector, at_once, config.task))
        return refused, asked(needless(config.vector, at_once))
    return refused, {}


def importing(config: TrainConfig, imports: tuple[str, ...]) -> TrainConfig:
    import_all(imports)
    known = modules_of(
        config.task, config.imports, (*config.wrappers, *config.callbacks, *own_places(config.run.track))
    )
    return config.replace(imports=(*config.imports, *(name for name in imports if name not in known)))


def make_envs(
    config: TrainConfig, env: Any, say: Callable[[str], None], team: Team = ALONE
) -> VectorEnv[Any, Any, Any]:
    """The run's environments, those of this rank."""
    vector = config.vector
    assert vector.num_envs != "auto"  # settled before
    own = team.own(vector.num_envs)
    made = _made_of(config, env[own] if isinstance(env, list | tuple) and len(env) > 1 else env)
    return make_vec(
        **made,
        num_envs=own.stop - own.start,
        workers=vector.workers,
        env_threads=vector.env_threads,
        slices=slices_used(vector, steps_at_once(made["env"])),
        say=say,
    )


def make_curve(config: TrainConfig, env: Any, evaluate_env: Any, say: Callable[[str], None]) -> HeldOutCurve | None:
    """What evaluates while the run trains, in environments of its own, if that is asked for."""
    if config.run.evaluate_every is None:
        return None
    played = env if evaluate_env is None else evaluate_env
    made = _made_of(config, played[0] if isinstance(played, list | tuple) else played)
    imports = config.imports if isinstance(made["env"], str) else ()
    return HeldOutCurve(config, (made["env"], made["env_kwargs"]), say, imports=imports, wrappers=made["wrappers"])


def check_evaluable(config: TrainConfig, env: Any, evaluate_env: Any) -> None:
    """Refuse what cannot be evaluated while it trains."""
    if evaluate_env is not None and config.run.evaluate_every is None:
        raise ValueError("evaluate_env= is for --evaluate-every: add evaluate_every=EPOCHS")
    played = env if evaluate_env is None else evaluate_env
    if config.run.evaluate_every is not None and isinstance(played, VectorEnv):
        what = "env=" if evaluate_env is None else "evaluate_env="
        raise ValueError(
            f"--evaluate-every needs environments of its own, and {what} is a VectorEnv, whose seeds are its own: give "
            "evaluate_env=, a function that makes one environment (or its id)"
        )


def _made_of(config: TrainConfig, env: Any) -> dict[str, Any]:
    """What a batch and a probe have in common: the environment and how it is run."""
    vector = config.vector
    made, kwargs = (env, {}) if env is not None else environment(config.task, parse_env_kwargs(config.env_kwargs))
    return {
        "env": made,
        "env_kwargs": kwargs,
        "imports": config.imports if env is None else (),
        "wrappers": wrappers_of(config),
        "backend": vector.backend,
        "start_method": vector.start_method,
        "step_timeout_s": vector.step_timeout,
        "build_timeout_s": vector.build_timeout,
        "on_fault": vector.on_fault,
        "max_restarts": vector.max_restarts,
        "restart_window": vector.restart_window,
        "ray_address": vector.ray_address,
        "min_envs": vector.min_envs,
    }


_WANDB = ("wandb_project", "wandb_entity", "wandb_group", "wandb_tags")
# What a resumed run may change. Of these only the budget alters the learning: the schedules follow it.
_CHANGEABLE = {
    "steps", "epochs", "episodes", "target_return", "runs_dir", "save_interval", "keep", "noise_meter", "log_interval",
    "track", "on_save_error", "rank_timeout", "backend", "workers", "env_threads", "start_method", "step_timeout",
    "on_fault", "max_restarts", "restart_window", "memory_budget_gb", "build_timeout", "imports", "callbacks",
    "ray_address", "min_envs", "evaluate_every", "evaluate_episodes", "evaluate_target", "evaluate_patience",
    "log_info", *_WANDB,
}  # fmt: skip


def as_saved(config: TrainConfig) -> TrainConfig:
    """A run that names no encoder has no pictures, or is older than encoders."""
    return config.replace(encoder="flat") if config.ppo.encoder == "auto" else config


def with_options(config: TrainConfig, options: dict[str, Any]) -> TrainConfig:
    budget_given = any(options.get(name) is not None for name in BUDGETS)
    return (without_budget(config) if budget_given else config).replace(**options)


RESHARD_ALONE = "--reshard is for a run that goes on with another --num-envs: add --resume RUN, or leave it out"


def check_changes(before: TrainConfig, after: TrainConfig, reshard: bool) -> list[str]:
    """What differs from the run being resumed, as lines; refuses what would make it another run."""
    lines = []
    for group in ("vector", "ppo", "run", ""):
        old, new = (to_dict(getattr(config, group) if group else config, full=True) for config in (before, after))
        for name in old:
            if name in ("vector", "ppo", "run") or old[name] == new[name]:
                continue
            if name not in _CHANGEABLE and not (name == "num_envs" and reshard):
                cure = "add --reshard" if name == "num_envs" else "start a new run for that"
                flag = "--" + name.replace("_", "-")
                was = "not given" if old[name] in (None, "", (), []) else old[name]
                raise ValueError(f"{flag} is {was} in the run to resume, {new[name]} was asked for: {cure}")
            lines.append(f"changed {name}: {old[name]} -> {new[name]}")
    now, was = after.run, before.run  # what the run was given once may stay without effect, such as with --track ""
    _check_wandb(now, [name for name in _WANDB if getattr(now, name) not in ("", getattr(was, name))])
    return lines


def settle(config: TrainConfig, env: Any, say: Callable[[str], None], team: Team = ALONE) -> TrainConfig:
    """Before anything is written down or started: `auto` becomes a number, and what cannot fit is refused."""
    check_names(config.run.track, own_trackers(config.run.track))
    check_device(config.ppo.device)
    if isinstance(env, VectorEnv):
        config = _for_spaces(
            config.replace(num_envs=env.num_envs * team.size), env.single_observation_space, env.single_action_space
        )
        return _with_threads(config, env.single_observation_space)
    if config.vector.num_envs != "auto":
        team.own(config.vector.num_envs)  # every rank the same number
    first = env[:1] if isinstance(env, list | tuple) else env
    known = _known_spaces(config) if env is None else None
    own_bytes = TrainingEnv().bytes_needed
    if known is not None:
        spaces = known
        config = _for_spaces(config, *spaces)
    else:
        with closing(make_probe(**_made_of(config, first))) as probe:
            spaces = probe.single_observation_space, probe.single_action_space
            own_bytes = parts_of(probe).bytes_needed
            config = _for_spaces(config, *spaces)
            if config.vector.num_envs == "auto":
                each = choose_num_envs(config, probed_cost_s(probe), *spaces, say, own_bytes)
                config = config.replace(num_envs=each * team.size)
    if config.ppo.auto_scale:
        config, lines = auto_scaled(config)
        for line in lines:
            say(line)
    assert config.vector.num_envs != "auto"
    here = config.replace(num_envs=config.vector.num_envs * ranks_here() // team.size)
    say(check_memory(here, *spaces, own_bytes))
    return _with_threads(config, spaces[0])


def _known_spaces(config: TrainConfig) -> Spaces | None:
    """What a task says of its spaces: then no environment is built here, where one that breaks ends the training."""
    if config.vector.num_envs == "auto" or wrappers_of(config):
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
    ppo = config.ppo.for_spaces(isinstance(action_space, Box), is_numbered(observation_space))
    return dataclasses.replace(config, ppo=ppo)
