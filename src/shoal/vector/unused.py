"""Options of a run that are without effect where its environments step: said, with what to do, never ignored."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorEnv

from shoal.config import VectorConfig
from shoal.core.protocols import Batched
from shoal.vector.foreign import is_compiled

_CARE = ("start_method", "step_timeout", "build_timeout")  # how processes are looked after: no more than a precaution
_OF_PROCESSES = ("workers", *_CARE)


def steps_at_once(env: Any) -> bool:
    """Whether one call steps all environments: where and in what processes they step is no question then."""
    return isinstance(env, VectorEnv | Batched) or is_compiled(env)


def slices_used(vector: VectorConfig, at_once: bool) -> str:
    """How the batch is cut: a run that goes on elsewhere keeps its option, which may mean nothing there.

    >>> slices_used(VectorConfig(backend="serial", slices="ready"), at_once=False)
    'lockstep'
    """
    return "lockstep" if "slices" in unused(vector, at_once, "") else vector.slices


def unused(vector: VectorConfig, at_once: bool, name: str) -> dict[str, str]:
    """The options that mean nothing beside the others: why, and what to do. `name` is the environment's.

    >>> sorted(unused(VectorConfig(backend="serial"), False, "CartPole-v1"))[:2]
    ['env_threads', 'max_restarts']
    """
    found: dict[str, str] = {}
    if at_once:
        here = f"is for environments in worker processes, and {name} steps all of its own in one call"
        found |= dict.fromkeys(_OF_PROCESSES, f"{here}: leave it out (--env-threads takes more cores)")
        found["slices"] = f"cuts a batch that steps in parts, and {name} steps in one call: leave it out"
    else:
        found["env_threads"] = (
            f"is for compiled environments, and {name} is none: leave it out (--backend process and --workers take "
            "more cores)"
        )
    if vector.backend == "serial" and not at_once:
        found["workers"] = (
            "is for environments in worker processes, and with --backend serial they step in this one: leave it out, "
            "or take --backend process"
        )
        if vector.slices == "ready":
            found["slices"] = (
                "acts for each worker as soon as it is done, and --backend serial has none: leave it out, or take "
                "--backend process"
            )
    if vector.backend == "ray":
        found["start_method"] = "is for worker processes, and Ray starts its actors in its own way: leave it out"
    else:
        found |= dict.fromkeys(("ray_address", "min_envs"), "is for --backend ray: add that, or leave it out")
    if vector.on_fault != "restart":
        counted = "is for --on-fault restart, without which the first fault ends the run: add that, or leave it out"
        found |= dict.fromkeys(("max_restarts", "restart_window"), counted)
    return found


def needless(vector: VectorConfig, at_once: bool) -> dict[str, str]:
    """The options that mean nothing either and do no harm, such as a limit that nothing is held to: why.

    >>> sorted(needless(VectorConfig(backend="serial"), at_once=False))
    ['build_timeout', 'start_method', 'step_timeout']
    """
    why = "is without effect: with --backend serial environments step in this process"
    return dict.fromkeys(_CARE, why) if vector.backend == "serial" and not at_once else {}
