"""shoal's compiled environments under Gymnasium ids: gym.make("shoal/CartPole-v1"), gym.make_vec(...).

`import shoal` calls `register`, so nothing heavy is imported here before an environment is made.
"""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from shoal.compiled.vector import CompiledEnv
    from shoal.core.protocols import Batched
    from shoal.core.seeds import Stream

GROUP = "shoal.environments"
# id -> class, or a function that makes one; a new compiled environment is one row. What applications bring is found by
# the entry points "shoal.environments", whose names are ids.
COMPILED = {
    "shoal/CartPole-v1": "shoal.environments.cartpole:CartPole",
    "shoal/GridWorld-v0": "shoal.environments.gridworld:GridWorld",
}


def register() -> None:
    """Make the ids known to Gymnasium; calling it again changes nothing."""
    import gymnasium as gym

    brought = {point.name: point.value for point in entry_points(group=GROUP)}  # nothing of them is imported
    for env_id, place in {**COMPILED, **brought}.items():
        if env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point="shoal.tasks.registration:make_single",
                vector_entry_point="shoal.tasks.registration:make_vector",
                kwargs={"place": place},
            )


def environment(place: str, **options: Any) -> CompiledEnv | Batched:
    """The environment at "module:Class", with its options."""
    module, _, name = place.partition(":")
    maker = getattr(importlib.import_module(module), name)
    try:
        made: CompiledEnv | Batched = maker(**options)
    except TypeError as error:  # Gymnasium knows only the arguments of `make_single`
        parameters = inspect.signature(maker).parameters.values()
        known = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
        if len(known) < len(parameters) or set(options) <= set(known):
            raise
        raise TypeError(f"{name} takes the params {known}, got {sorted(options)}") from error
    return made


def make_single(place: str, render_mode: str | None = None, **options: Any) -> Env[Any, Any]:
    """One environment, for gym.make."""
    from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv
    from shoal.core.single import SingleEnv

    env = environment(place, **options)
    return SingleEnv(CompiledVectorEnv(env, num_envs=1)) if isinstance(env, CompiledEnv) else env.make_single()


def make_vector(
    place: str,
    num_envs: int = 1,
    threads: int | Literal["auto"] = 1,
    stream: Stream | None = None,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    autoreset_mode: Any = "same_step",
    **options: Any,
) -> VectorEnv[Any, Any, Any]:
    """Many environments, for gym.make_vec."""
    from gymnasium.vector import AutoresetMode

    from shoal.compiled.vector import CompiledVectorEnv
    from shoal.core.own import parse_autoreset
    from shoal.core.protocols import Batched
    from shoal.core.seeds import Stream

    env = environment(place, **options)
    if isinstance(env, Batched):
        if parse_autoreset(autoreset_mode) != AutoresetMode.SAME_STEP:
            raise ValueError(f"{place} steps in a batch of its own: it has same_step only, got {autoreset_mode!r}")
        return env.make_vector(num_envs, threads, stream or Stream.TRAIN)
    if max_episode_steps is not None:
        env.max_episode_steps = max_episode_steps
    return CompiledVectorEnv(
        env, num_envs, threads=threads, stream=stream or Stream.TRAIN, autoreset_mode=autoreset_mode
    )
