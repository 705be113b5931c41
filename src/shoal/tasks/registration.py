"""shoal's compiled environments under Gymnasium ids: gym.make("shoal/CartPole-v1"), gym.make_vec(...).

`import shoal` calls `register`, so nothing heavy is imported here before an environment is made.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from shoal.compiled.single import CompiledSingleEnv
    from shoal.compiled.vector import CompiledEnv, CompiledVectorEnv
    from shoal.core.seeds import Stream

# id -> class, or a function that makes one; a new compiled environment is one row
COMPILED = {
    "shoal/CartPole-v1": "shoal.environments.cartpole:CartPole",
    "shoal/GridWorld-v0": "shoal.environments.gridworld:GridWorld",
    "shoal/Cage2-v0": "shoal.cage2.simulator.env:make",
}


def register() -> None:
    """Make the ids known to Gymnasium; calling it again changes nothing."""
    import gymnasium as gym

    for env_id, place in COMPILED.items():
        if env_id not in gym.registry:
            gym.register(
                env_id,
                entry_point="shoal.tasks.registration:make_single",
                vector_entry_point="shoal.tasks.registration:make_vector",
                kwargs={"place": place},
            )

    if "shoal/Rides-v0" not in gym.registry:  # batched by nature: no scalar function to compile
        gym.register(
            "shoal/Rides-v0",
            entry_point="shoal.rides.single:RidesEnv",
            vector_entry_point="shoal.rides.single:make_vector",
        )


def environment(place: str, **options: Any) -> CompiledEnv:
    """The environment at "module:Class", with its options."""
    module, _, name = place.partition(":")
    env: CompiledEnv = getattr(importlib.import_module(module), name)(**options)
    return env


def make_single(place: str, render_mode: str | None = None, **options: Any) -> CompiledSingleEnv:
    """One environment, for gym.make."""
    from shoal.compiled.single import CompiledSingleEnv

    return CompiledSingleEnv(environment(place, **options))


def make_vector(
    place: str,
    num_envs: int = 1,
    threads: int | Literal["auto"] = 1,
    stream: Stream | None = None,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    autoreset_mode: Any = "same_step",
    **options: Any,
) -> CompiledVectorEnv:
    """Many environments, for gym.make_vec."""
    from gymnasium.vector import AutoresetMode

    from shoal.compiled.vector import CompiledVectorEnv
    from shoal.core.own import parse_autoreset
    from shoal.core.seeds import Stream

    env = environment(place, **options)
    if hasattr(env, "make_vector"):  # one that counts while it steps: cage2 under an order
        if parse_autoreset(autoreset_mode) != AutoresetMode.SAME_STEP:
            raise ValueError(f"{place} counts every step, also those that only reset: it has same_step only")
        counting: CompiledVectorEnv = env.make_vector(num_envs, threads, stream or Stream.TRAIN)
        return counting
    if max_episode_steps is not None:
        env.max_episode_steps = max_episode_steps
    return CompiledVectorEnv(
        env, num_envs, threads=threads, stream=stream or Stream.TRAIN, autoreset_mode=autoreset_mode
    )
