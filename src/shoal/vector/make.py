"""`make_vec`: N environments as one, by name, by factory or as given."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import VectorEnv

from shoal.vector.choose import choose
from shoal.vector.chunk import EnvFactory
from shoal.vector.launch import processes_work, usable_cores
from shoal.vector.process import ProcessVectorEnv
from shoal.vector.seeding import Stream
from shoal.vector.serial import SerialVectorEnv
from shoal.vector.split import SplitVectorEnv

BACKENDS = ("auto", "serial", "process", "split", "compiled")


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
    on_fault: str = "fail",
    max_restarts: int = 10,
    restart_window: int = 10_000,
    stream: Stream = Stream.TRAIN,
    env_kwargs: dict[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> VectorEnv[Any, Any, Any]:
    """N environments behind one Gymnasium VectorEnv.

    `env` is a Gymnasium id, a function that makes one environment (sent to workers with cloudpickle), a list of
    such functions, a CompiledEnv, or a VectorEnv, which is passed through as it is. `say` hears what was
    chosen and why.

    >>> envs = make_vec("CartPole-v1", 4, backend="serial")
    >>> observations, infos = envs.reset(seed=0)
    >>> observations.shape
    (4, 4)
    >>> envs.close()
    """
    if backend not in BACKENDS:
        raise ValueError(f"expected a backend of {', '.join(BACKENDS)}, got {backend!r}")
    if num_envs < 1:
        raise ValueError(f"expected at least 1 environment, got {num_envs}")
    if isinstance(env, VectorEnv):
        say(f"the environment is a {type(env).__name__} already: it is used as it is")
        return env
    if hasattr(env, "make_vector"):  # steps all environments in one call of its own
        if backend not in ("auto", "compiled"):
            raise ValueError(f"{env} steps all its environments at once: expected --backend auto, got {backend}")
        batched: VectorEnv[Any, Any, Any] = env.make_vector(num_envs, threads=_count(env_threads), stream=stream)
        say(f"backend compiled: all {num_envs} environments step in one call, {_count(env_threads)} thread(s)")
        return batched
    if _is_compiled(env):
        if backend not in ("auto", "compiled"):
            raise ValueError(f"{env} is a compiled environment: expected --backend compiled or auto, got {backend}")
        name = env if isinstance(env, str) else type(env).__name__
        say(f"backend compiled: {name} is a compiled environment, {env_threads} thread(s)")
        return _make_compiled(env, num_envs, env_threads, stream, env_kwargs or {})
    if backend == "compiled":
        raise ValueError(
            f"{env!r} is not a compiled environment. Use --backend auto, serial, process or split, or write it as a "
            "CompiledEnv (examples/compiled_env.py)"
        )
    factories = _factories(env, num_envs, env_kwargs or {})
    common: dict[str, Any] = {
        "stream": stream,
        "on_fault": on_fault,
        "max_restarts": max_restarts,
        "restart_window": restart_window,
    }

    def serial() -> VectorEnv[Any, Any, Any]:
        return SerialVectorEnv(factories, slices=2 if slices == "double" and len(factories) > 1 else 1, **common)

    apart = {"start_method": start_method, "step_timeout_s": step_timeout_s, **common}

    def process() -> VectorEnv[Any, Any, Any]:
        return ProcessVectorEnv(factories, workers=workers, slices=slices, **apart)

    def split() -> VectorEnv[Any, Any, Any]:
        return SplitVectorEnv(factories, workers=workers and workers - 1, **apart)

    def one() -> VectorEnv[Any, Any, Any]:
        return SerialVectorEnv(factories[:1], **common)

    if backend == "serial":
        return serial()
    if backend == "process":
        return process()
    if backend == "split":
        if slices != "lockstep":
            raise ValueError(f"--backend split steps all together: expected --slices lockstep, got {slices}")
        if workers is not None and workers < 2:
            raise ValueError(f"--backend split: expected --workers of at least 2 (this process is one), got {workers}")
        return split()
    if not processes_work():
        say("backend serial: this system has no worker processes (Linux and macOS have)")
        return serial()
    return choose(one, len(factories), serial, process, split if slices == "lockstep" else None, workers, say)


def _count(threads: int | str) -> int:
    return usable_cores() if threads == "auto" else int(threads)


def find_spec(name: str) -> EnvSpec:
    """The registered environment of that id; unknown ones name the nearest."""
    try:
        return gym.spec(name)
    except (gym.error.Error, ImportError) as error:
        import difflib

        near = difflib.get_close_matches(name, list(gym.registry), 3, 0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else " `shoal tasks` lists what there is."
        what = str(error).split(" Did you mean")[0].rstrip(".")  # Gymnasium's guess knows fewer names
        raise ValueError(f"no environment {name!r}: {what}.{hint}") from None


def _factories(env: Any, num_envs: int, kwargs: dict[str, Any]) -> list[EnvFactory]:
    if isinstance(env, str):
        return [_Maker(find_spec(env), kwargs)] * num_envs
    if isinstance(env, gym.Env):
        raise TypeError(
            f"expected a function that makes an environment (each of the {num_envs} is built anew), got the "
            f"environment {env} itself; pass lambda: ... instead"
        )
    if callable(env):
        return [functools.partial(env, **kwargs) if kwargs else env] * num_envs
    factories = list(env)
    if not factories or not all(callable(factory) for factory in factories):
        raise TypeError(f"expected a list of functions that make one environment each, got {env!r}")
    if num_envs not in (1, len(factories)):
        raise ValueError(f"got {len(factories)} factories for {num_envs} environments")
    if kwargs:
        raise ValueError(f"expected no env_kwargs beside a list of factories, got {kwargs}")
    return factories


class _Maker:
    """Makes one environment by its specification, which travels: a worker need not know the id."""

    def __init__(self, spec: EnvSpec, kwargs: dict[str, Any]) -> None:
        self.spec, self.kwargs = copy.copy(spec), kwargs
        if isinstance(spec.entry_point, str) and spec.entry_point.startswith("__main__:"):
            creator: Any = load_env_creator(spec.entry_point)
            self.spec.entry_point = creator  # a worker has another `__main__`

    def __call__(self) -> gym.Env[Any, Any]:
        return gym.make(self.spec, disable_env_checker=True, **self.kwargs)


def _is_compiled(env: Any) -> bool:
    """Is this a CompiledEnv, by object, by class or by id? Looks only; numba is imported when one is made."""
    if isinstance(env, str):
        spec = find_spec(env)
        return spec.namespace == "shoal" and spec.vector_entry_point is not None
    module = sys.modules.get("shoal.vector.environment")  # not imported yet: then nobody can have made one
    if module is None:
        return False
    return isinstance(env, module.CompiledEnv) or (isinstance(env, type) and issubclass(env, module.CompiledEnv))


def _make_compiled(
    env: Any, num_envs: int, threads: int | Literal["auto"], stream: Stream, kwargs: dict[str, Any]
) -> VectorEnv[Any, Any, Any]:
    if isinstance(env, str):
        mode = "vector_entry_point"
        return gym.make_vec(env, num_envs, vectorization_mode=mode, threads=threads, stream=stream, **kwargs)
    from shoal.vector.compiled import CompiledVectorEnv

    one = env(**kwargs) if isinstance(env, type) else env
    return CompiledVectorEnv(one, num_envs, threads=threads, stream=stream)
