"""Where an environment does not speak Gymnasium's API: errors that say so, and how it is meant."""

from __future__ import annotations

import inspect
from typing import Any

import gymnasium as gym

from shoal.core.arrays import describe
from shoal.core.errors import ShapeError, Unsupported

_OLD = "(that is the API of the old Gym; wrap the environment with shimmy, or change it)"


def check_is_env(env: Any) -> None:
    """What a factory made is an environment that has its spaces."""
    if not hasattr(env, "reset") or not hasattr(env, "step"):
        raise Unsupported(f"expected the factory to return an environment (a gymnasium.Env), got {describe(env)}")
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, gym.Space):
            got = "it has none" if space is None else f"got {describe(space)}"
            raise Unsupported(
                f"expected {name} of {_name(env)} to be a space of gymnasium.spaces, {got}: set self.{name} in its "
                "__init__"
            )


def reset(env: gym.Env[Any, Any], seed: int, options: dict[str, Any] | None) -> tuple[Any, Any]:
    """`env.reset(...)`, or what is wrong with it."""
    try:
        answer = env.reset(seed=seed, options=options)
    except TypeError as error:
        inner = getattr(env, "unwrapped", env)
        missing = [name for name in ("seed", "options") if not _takes(inner.reset, name)]
        if not missing:
            raise
        raise Unsupported(
            f"reset() of {_name(inner)} takes no {' and no '.join(missing)}: expected "
            f"def reset(self, *, seed=None, options=None), which begins with super().reset(seed=seed)"
        ) from error
    if type(answer) is not tuple or len(answer) != 2:
        raise ShapeError(f"expected (observation, info) from reset(), got {describe(answer)} {_OLD}")
    return answer


def blame(error: BaseException, answer: Any) -> BaseException:
    """An exception of `observation, reward, terminated, truncated, info = answer`, in words; any other as it is."""
    trace = error.__traceback__
    ours = trace is not None and trace.tb_next is None  # not raised inside the environment
    if not ours or type(error) not in (TypeError, ValueError) or (isinstance(answer, tuple) and len(answer) == 5):
        return error
    got = f"{len(answer)} values" if isinstance(answer, tuple) else describe(answer)
    old = f" {_OLD}" if isinstance(answer, tuple) and len(answer) == 4 else ""
    return ShapeError(f"expected (observation, reward, terminated, truncated, info) from step(), got {got}{old}")


def _takes(function: Any, name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of a built-in: nobody knows
        return True
    return name in parameters or any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())


def _name(env: Any) -> str:
    return type(getattr(env, "unwrapped", env)).__name__
