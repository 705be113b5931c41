"""`make_vec`: N environments as one, by name, by factory or as given."""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from shoal.config import Backend
from shoal.core.errors import EnvRaised
from shoal.core.machine import usable_cores
from shoal.core.own import parse_autoreset
from shoal.core.protocols import Batched, parts_of
from shoal.core.seeds import Stream
from shoal.extras import require
from shoal.vector.choose import Measured, choose, step_cost_s
from shoal.vector.environments import EnvFactory
from shoal.vector.foreign import Maker, Wrap, around, find_spec, import_all, is_compiled, load_wrapper, module_of
from shoal.vector.preprocess import Preprocess, Unfit
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.workers.launch import processes_work
from shoal.vector.workers.process import ProcessVectorEnv
from shoal.vector.workers.split import SplitVectorEnv


def make_vec(
    env: str | EnvFactory | Sequence[EnvFactory] | VectorEnv[Any, Any, Any] | Any,
    num_envs: int = 1,
    *,
    backend: str = "auto",
    workers: int | None = None,
    env_threads: int | Literal["auto"] = 1,
    slices: str = "lockstep",
    start_method: str | None = None,
    step_timeout_s: float = 300.0,
    build_timeout_s: float = 120.0,
    on_fault: str = "fail",
    max_restarts: int = 10,
    restart_window: int = 10_000,
    ray_address: str | None = None,
    min_envs: int | None = None,
    stream: Stream = Stream.TRAIN,
    env_kwargs: dict[str, Any] | None = None,
    imports: Sequence[str] = (),
    wrappers: Sequence[Wrap] = (),
    autoreset_mode: str | AutoresetMode = "same_step",
    say: Callable[[str], None] = lambda text: None,
    **more_env_kwargs: Any,
) -> VectorEnv[Any, Any, Any]:
    """N environments behind one Gymnasium VectorEnv.

    `env` is a Gymnasium id (or `module:id`), a function that makes one environment (sent to workers with cloudpickle),
    a list of such functions, a CompiledEnv, or a VectorEnv, which is passed through as it is. With an id, `imports`
    are modules to import first, here and in workers. `wrappers` go around each environment, innermost first: functions
    that take one, or with an id `module:Class`. Arguments of the environment are given as in Gymnasium's own `make_vec`
    (`render_mode="rgb_array"`), or as `env_kwargs` where a name is taken here.
    With autoreset_mode "same_step" an episode that has ended begins anew at once (its last observation is in
    `infos["final_obs"]`), with "next_step" in the step after, as Gymnasium's observation wrappers ask for. Workers have
    `step_timeout_s` for a step and `build_timeout_s` to build one environment. `say` hears what was chosen and why.

    >>> envs = make_vec("CartPole-v1", 4, backend="serial")
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape
    (4, 4)
    >>> envs.close()
    """
    if backend not in get_args(Backend):
        raise ValueError(f"expected a backend of {', '.join(get_args(Backend))}, got {backend!r}")
    if num_envs < 1:
        raise ValueError(f"expected at least 1 environment, got {num_envs}")
    if backend == "ray":
        require("ray", "--backend ray")
    mode, env_kwargs = parse_autoreset(autoreset_mode), {**(env_kwargs or {}), **more_env_kwargs}
    _check_wrappers(env, wrappers)
    _check_arguments(env, more_env_kwargs)
    import_all(imports)
    if isinstance(env, VectorEnv):
        say(f"the environment is a {type(env).__name__} already: it is used as it is")
        return env
    if isinstance(env, Batched):  # steps all environments in one call of its own
        if backend not in ("auto", "compiled"):
            raise ValueError(
                f"{name_of(env)} steps all its environments at once: expected --backend auto, got {backend}"
            )
        _check_compiled(name_of(env), on_fault, slices)
        if mode != AutoresetMode.SAME_STEP:
            raise ValueError(f"{name_of(env)} counts every step, also those that only reset: it has same_step only")
        batched = env.make_vector(num_envs, threads=_count(env_threads), stream=stream)
        say(f"backend compiled: all {num_envs} environments step in one call, {_count(env_threads)} thread(s)")
        return batched
    if is_compiled(env):
        if backend not in ("auto", "compiled"):
            name = name_of(env)
            raise ValueError(f"{name} is a compiled environment: expected --backend compiled or auto, got {backend}")
        _check_compiled(name_of(env), on_fault, slices)
        say(f"backend compiled: {name_of(env)} is a compiled environment, {env_threads} thread(s)")
        with _in_plain_words(env, env_kwargs):
            return _make_compiled(env, num_envs, env_threads, stream, mode, env_kwargs)
    if backend == "compiled":
        raise ValueError(
            f"{name_of(env)} is not a compiled environment. Use --backend auto, serial, process or split, or write it "
            "as a CompiledEnv (examples/compiled_env.py)"
        )
    factories = _factories(env, num_envs, env_kwargs or {}, imports, wrappers)
    common: dict[str, Any] = {
        "stream": stream,
        "on_fault": on_fault,
        "max_restarts": max_restarts,
        "restart_window": restart_window,
        "autoreset_mode": mode,
    }

    def serial() -> VectorEnv[Any, Any, Any]:
        return SerialVectorEnv(factories, slices=2 if slices == "double" and len(factories) > 1 else 1, **common)

    limits = {"step_timeout_s": step_timeout_s, "start_timeout_s": build_timeout_s}
    apart = {"start_method": start_method, **limits, **common}

    def process() -> VectorEnv[Any, Any, Any]:
        return ProcessVectorEnv(factories, workers=workers, slices=slices, **apart)

    def split() -> VectorEnv[Any, Any, Any]:
        return SplitVectorEnv(factories, workers=workers and workers - 1, **apart)

    def ray() -> VectorEnv[Any, Any, Any]:
        from shoal.vector.workers.ray import RayVectorEnv

        if slices != "lockstep":
            raise ValueError(f"--backend ray steps all together: expected --slices lockstep, got {slices}")
        cluster = {"address": ray_address, "min_envs": min_envs, **limits, **common}
        envs = RayVectorEnv(factories, workers=workers, **cluster)
        say(f"backend ray: {envs.about}")
        return envs

    def one() -> VectorEnv[Any, Any, Any]:
        return SerialVectorEnv(factories[:1], **common)

    if backend == "serial" and slices == "ready":
        raise ValueError("--backend serial steps one after the other: expected --slices lockstep or double, got ready")
    if backend == "split":
        if slices != "lockstep":
            raise ValueError(f"--backend split steps all together: expected --slices lockstep, got {slices}")
        if workers is not None and workers < 2:
            raise ValueError(f"--backend split: expected --workers of at least 2 (this process is one), got {workers}")
    with _in_plain_words(env, env_kwargs):
        if backend != "auto":
            return {"serial": serial, "process": process, "split": split, "ray": ray}[backend]()
        if not processes_work():
            say("backend serial: this system has no worker processes (Linux and macOS have)")
            return serial()
        chosen = choose(one, len(factories), serial, process, split if slices == "lockstep" else None, workers, say)
        if slices == "ready" and not parts_of(chosen).by_readiness:
            say("--slices ready is without effect in this process: the batch steps in lockstep")
        return chosen


def make_probe(
    env: Any,
    *,
    backend: str = "auto",
    start_method: str | None = None,
    step_timeout_s: float = 300.0,
    build_timeout_s: float = 120.0,
    env_kwargs: dict[str, Any] | None = None,
    imports: Sequence[str] = (),
    wrappers: Sequence[Wrap] = (),
    ray_address: str | None = None,
    min_envs: int | None = None,
    **common: Any,
) -> VectorEnv[Any, Any, Any]:
    """One environment, to learn its spaces and what a step costs. With `backend` process or ray it lives in a worker
    of its own: this process builds none, so none can break it."""
    if backend == "ray":  # before any work
        require("ray", "--backend ray")
    named: dict[str, Any] = {"env_kwargs": env_kwargs, "imports": imports, "wrappers": wrappers}
    steps_all = isinstance(env, VectorEnv | Batched) or is_compiled(env)
    if backend not in ("process", "ray") or steps_all or (wrappers and not isinstance(env, str)):
        return make_vec(env, 1, backend=backend if steps_all or backend == "compiled" else "serial", **named, **common)
    import_all(imports)
    (factory,) = _factories(env, 1, env_kwargs or {}, imports, wrappers)
    limits: dict[str, Any] = {"step_timeout_s": step_timeout_s, "start_timeout_s": build_timeout_s}
    with _in_plain_words(env, env_kwargs):
        return ProcessVectorEnv([lambda: Measured(factory())], workers=1, start_method=start_method, **limits, **common)


def probed_cost_s(probe: VectorEnv[Any, Any, Any]) -> float:
    """Seconds of a step of a probe's environment, where it lives."""
    return float(probe.call("step_cost_s")[0]) if isinstance(probe, ProcessVectorEnv) else step_cost_s(probe)


def name_of(env: Any) -> str:
    """What an environment is called: no `object at 0x7f9a45316750`.

    >>> name_of("CartPole-v1"), name_of([functools.partial(dict)]), name_of(lambda: None), name_of(3.5)
    ('CartPole-v1', 'dict', 'own-environment', 'float')
    """
    if isinstance(env, str):
        return env
    if isinstance(env, list | tuple) and env:
        return name_of(env[0])
    if isinstance(env, functools.partial):
        return name_of(env.func)
    name = str(getattr(env, "__name__", type(env).__name__))
    return name if name.isidentifier() else "own-environment"


def _count(threads: int | str) -> int:
    return usable_cores() if threads == "auto" else int(threads)


@contextlib.contextmanager
def _in_plain_words(env: Any, kwargs: dict[str, Any] | None) -> Iterator[None]:
    """A package that is not installed and an argument that does not exist are told in one line, without the traceback
    of whichever process met them."""
    try:
        yield
    except (EnvRaised, TypeError) as error:
        kind = error.kind if isinstance(error, EnvRaised) else type(error).__name__
        text = error.message.partition(": ")[2] if isinstance(error, EnvRaised) else str(error)
        text = text.partition(" was raised from the environment creator")[0]
        if kind == Unfit.__name__:
            raise ValueError(text) from None
        if not isinstance(env, str):
            raise
        if kind in ("DependencyNotInstalled", "ModuleNotFoundError", "ImportError"):
            raise ImportError(f"{env} cannot be made: {text}") from None
        if kind == "TypeError" and kwargs and "unexpected keyword argument" in text:
            raise ValueError(f"--env-kwargs: {text}. {_arguments_of(env)}") from None
        if kind == "TypeError" and kwargs and "takes the params" in text:  # a CompiledEnv knows which
            raise ValueError(f"--env-kwargs: {text}") from None
        raise


def _arguments_of(env_id: str) -> str:
    spec = find_spec(env_id)
    point = spec.entry_point or spec.vector_entry_point
    creator = load_env_creator(point) if isinstance(point, str) else point
    try:
        parameters = inspect.signature(creator).parameters.values() if creator is not None else ()
    except (TypeError, ValueError):  # of a creator written in C, say
        return ""
    names = [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return f"{env_id} takes {', '.join(names)}" if names else f"{env_id} takes no arguments"


def _factories(
    env: Any, num_envs: int, kwargs: dict[str, Any], imports: Sequence[str] = (), wrappers: Sequence[Wrap] = ()
) -> list[EnvFactory]:
    if isinstance(env, str):
        module = module_of(env)
        for one in wrappers:
            if isinstance(one, str):
                load_wrapper(one)  # a misspelt one is told here, not by a worker
        registering = [*imports, *([module] if module is not None else [])]
        return [Maker(find_spec(env), kwargs, registering, wrappers)] * num_envs
    if isinstance(env, gym.Env):
        raise TypeError(
            f"expected a function that makes an environment (each of the {num_envs} is built anew), got the "
            f"environment {env} itself; pass lambda: ... instead"
        )
    if callable(env):
        return [around(functools.partial(env, **kwargs) if kwargs else env, wrappers)] * num_envs
    factories = list(env)
    if not factories or not all(callable(factory) for factory in factories):
        raise TypeError(f"expected a list of functions that make one environment each, got {env!r}")
    if num_envs not in (1, len(factories)):
        raise ValueError(f"got {len(factories)} factories for {num_envs} environments")
    if kwargs:
        raise ValueError(f"expected no env_kwargs beside a list of factories, got {kwargs}")
    return [around(one, wrappers) for one in factories]


def _check_wrappers(env: Any, wrappers: Sequence[Wrap]) -> None:
    """Refuse to wrap what steps all its environments at once, and a place by name around what is no id."""
    if not wrappers:
        return
    wrong = next((one for one in wrappers if not isinstance(one, str) and not callable(one)), None)
    if wrong is not None:
        raise TypeError(f"expected wrappers as functions of an environment or module:Class, got {wrong!r}")
    whole = isinstance(env, VectorEnv | Batched) or is_compiled(env)
    if whole or (not isinstance(env, str) and any(isinstance(one, str) for one in wrappers)):
        what = "steps all its environments at once" if whole else "is no id: wrap inside the function"
        flag = str(wrappers[-1]) if isinstance(wrappers[-1], Preprocess) else "--wrapper"
        raise ValueError(f"{flag} goes around each environment of a Gymnasium id; {name_of(env)} {what}")


def _check_arguments(env: Any, given: dict[str, Any]) -> None:
    """A misspelt option of `make_vec` must not end up as an argument of the environment that it never knew."""
    if not given:
        return
    if isinstance(env, VectorEnv | Batched | list | tuple):
        raise ValueError(f"expected no arguments of the environment beside {name_of(env)}, got {', '.join(given)}")
    own = [name for name, one in inspect.signature(make_vec).parameters.items() if one.kind is one.KEYWORD_ONLY]
    for name in given:
        near = difflib.get_close_matches(name, own, 1, 0.8)
        if near or name in ("vectorization_mode", "vector_kwargs"):
            other = "backend" if name == "vectorization_mode" else "the options of make_vec itself"
            option = near[0] if near else other
            raise TypeError(
                f"make_vec has no option {name}: did you mean {option}? An argument of the environment with that name "
                "goes into env_kwargs"
            )


def _check_compiled(env: Any, on_fault: str, slices: str) -> None:
    """Options that mean nothing where one call steps all are refused, not ignored."""
    if on_fault != "fail":
        raise ValueError(f"{env} is compiled, none of its environments can be rebuilt: expected --on-fault fail")
    if slices != "lockstep":
        raise ValueError(f"{env} is compiled, it steps in one call: expected --slices lockstep, got {slices}")


def _make_compiled(
    env: Any,
    num_envs: int,
    threads: int | Literal["auto"],
    stream: Stream,
    mode: AutoresetMode,
    kwargs: dict[str, Any],
) -> VectorEnv[Any, Any, Any]:
    if isinstance(env, str):
        if mode != AutoresetMode.SAME_STEP:
            entry_point: Any = find_spec(env).vector_entry_point
            maker = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
            if "autoreset_mode" not in inspect.signature(maker).parameters:
                raise ValueError(f"{env} has autoreset_mode same_step only")
            kwargs = {**kwargs, "autoreset_mode": mode}
        batch = gym.make_vec(
            env, num_envs, vectorization_mode="vector_entry_point", threads=threads, stream=stream, **kwargs
        )
        return batch
    from shoal.compiled.vector import CompiledVectorEnv

    one = env(**kwargs) if isinstance(env, type) else env
    return CompiledVectorEnv(one, num_envs, threads=threads, stream=stream, autoreset_mode=mode)
