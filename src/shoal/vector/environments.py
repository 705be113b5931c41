"""The environments of a chunk: built, looked into, called and closed. Whatever one throws becomes an EnvFault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from shoal.core.errors import EnvFault, as_fault
from shoal.vector import api
from shoal.vector.memory import Block

EnvFactory = Callable[[], gym.Env[Any, Any]]
_LOCAL_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)
# An environment that calls sys.exit() is a broken environment, not a wish of the user's.
ANY_ERROR = (Exception, SystemExit)


class Environments:
    """Environments `first .. first + len(factories)` of a batch, in this process. None is built yet."""

    def __init__(self, factories: Sequence[EnvFactory], first: int, block: Block, worker: int) -> None:
        self.factories, self.first, self.block, self.worker = factories, first, block, worker
        self.envs: list[gym.Env[Any, Any]] = []
        self.steppers: list[Callable[[Any], Any]] = []  # bound step methods: one look-up less per step
        self.limits: list[int] = []
        self.elapsed = [0] * len(factories)
        self._attributes: list[dict[str, Any]] = [{} for _ in factories]  # set by the caller: a rebuilt one gets them

    def _build_all(self, first_env: gym.Env[Any, Any] | None) -> None:
        """`first_env` is the first one if it is built already."""
        try:
            for local in range(len(self.factories)):
                ready = first_env if local == 0 else None
                self.envs.append(self._build(local, "while being built") if ready is None else ready)
                inner, limit = strip(self.envs[local])
                self.steppers.append(inner.step)
                self.limits.append(limit)
        except EnvFault as fault:
            self._close_after(fault)
            raise
        self.block.current[self.worker] = -1

    def call(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """`getattr(env, name)` of every environment, called if it can be called."""
        values = []
        for local, env in enumerate(self.envs):
            try:
                value = env.get_wrapper_attr(name)
                values.append(value(*args, **kwargs) if callable(value) else value)
            except ANY_ERROR as error:
                raise self._fault(local, error, f"in call({name!r})") from error
        return values

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of every environment, as `Env.set_wrapper_attr` does; also after it has been rebuilt."""
        for local, (env, value) in enumerate(zip(self.envs, values, strict=True)):
            try:
                env.set_wrapper_attr(name, value)
            except ANY_ERROR as error:
                raise self._fault(local, error, f"in set_attr({name!r})") from error
            self._attributes[local][name] = value
            self._look_inside(local)

    def close(self) -> EnvFault | None:
        """Close every environment; returns what went wrong first, when all have been closed."""
        fault: EnvFault | None = None
        for local, env in enumerate(self.envs):
            self.block.current[self.worker] = self.first + local
            try:
                env.close()
            except ANY_ERROR as error:
                fault = fault or self._fault(local, error, "in close")
        self.envs, self.steppers = [], []
        self.block.current[self.worker] = -1
        return fault

    def _fault(self, local: int, error: BaseException, where: str) -> EnvFault:
        """Any exception as an EnvFault that names environment, process, seed and step."""
        index = self.first + local
        seed = int(self.block.seeds[index])
        begun = seed >= 0
        return as_fault(error, where, index, seed if begun else None, self.elapsed[local] if begun else None)

    def _build(self, local: int, where: str) -> gym.Env[Any, Any]:
        self.block.current[self.worker] = self.first + local
        try:
            env = self.factories[local]()
            api.check_is_env(env)
            self._check_spaces(env)
            for name, value in self._attributes[local].items():
                env.set_wrapper_attr(name, value)
        except ANY_ERROR as error:
            raise self._fault(local, error, where) from error
        return env

    def _look_inside(self, local: int) -> None:
        """How this environment is stepped, and for how long: a rebuilt one, or one of which something was set."""
        inner, self.limits[local] = strip(self.envs[local])
        self.steppers[local] = inner.step

    def _close_after(self, fault: EnvFault) -> None:
        """An environment could not be built: those before it must not linger."""
        also = self.close()
        if also is not None:
            fault.aftermath = f"closing the others failed too: {also.message}"

    def _check_spaces(self, env: gym.Env[Any, Any]) -> None:
        wanted = self.block.observation_layout.space, self.block.action_layout.space
        got = env.observation_space, env.action_space
        if got != wanted:
            raise ValueError(
                f"every environment of a batch needs the same spaces. Expected {wanted[0]} and {wanted[1]} "
                f"(the first one built), got {got[0]} and {got[1]}"
            )


def first_environment(factory: EnvFactory, index: int = 0) -> gym.Env[Any, Any]:
    """An environment built before there is a block, because its spaces decide what the block looks like."""
    try:
        env = factory()
        api.check_is_env(env)
        return env
    except ANY_ERROR as error:
        raise as_fault(error, "while being built", index, None, None) from error


def strip(env: gym.Env[Any, Any]) -> tuple[gym.Env[Any, Any], int]:
    """Take off the outermost wrappers whose work a chunk does itself: the environment to step, and its time limit (a
    very large number if it has none)."""
    limit = 2**62
    while isinstance(env, gym.Wrapper) and type(env) in _LOCAL_WRAPPERS:
        if type(env) is TimeLimit:
            limit = min(limit, env._max_episode_steps)
        env = env.env
    return env, limit
