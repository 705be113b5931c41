"""What a compiled environment declares (`CompiledEnv`), and the memory that follows from it (`Layout`)."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

from shoal.compiled.random import RNG

_NO_PARAMS = np.dtype([("none", "i8")])


class CompiledEnv:
    """One environment, written as scalar functions. Subclass it, declare the data, write the three functions.

    - `state`: the state of ONE environment, a NumPy structured dtype; arrays and records may nest in it.
    - `observation_space`: a Box, or Dict({"obs": Box, "action_mask": int8 Box or MultiBinary}).
    - `action_space`: Discrete (the action is an int), MultiDiscrete or Box (a one-dimensional array).
    - `max_episode_steps`: truncate an episode here; None or 0 for never. An instance may set its own.
    - `reset(state, rng)`: begin an episode. The state arrives zeroed.
    - `step(state, rng, action)`: change the state in place, return (reward, terminated).
    - `observe(state, out)`: write every number of one observation; with a mask, `observe(state, out, mask)`.

    The functions may call plain functions and read constants (numbers, tuples, NumPy arrays, IntEnums) of
    any module by name; nothing is decorated. Randomness comes from `shoal.compiled.random` (`uniform(rng)`,
    `below(rng, n)`, `chance(rng, p)`); sin and cos from `shoal.compiled.portable` where CPU and GPU must
    agree to the bit.

    Options: declare `params`, a structured dtype, and every function gets a record of it as its last
    argument. The values are given to `__init__` and read at run time, so another value compiles nothing:

        class Slippery(CompiledEnv):
            params = np.dtype([("slip", "f8")])
            def __init__(self, slip: float = 0.1) -> None:
                super().__init__(slip=slip)
            @staticmethod
            def step(state, rng, action, params):
                if chance(rng, params.slip): ...
    """

    state: ClassVar[np.dtype[Any]]
    params: ClassVar[np.dtype[Any] | None] = None
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    max_episode_steps: int | None = None
    features: str | None = None  # a version of what the observations mean; checkpoints of another are refused
    check_finite: bool = True  # NaN or infinity in a reward or observation raises NotFinite

    # Any, so that a subclass may declare its own arguments (see `params`).
    reset: ClassVar[Callable[..., Any]]
    step: ClassVar[Callable[..., Any]]
    observe: ClassVar[Callable[..., Any]]

    def __init__(self, **params: Any) -> None:
        names = set(self.params.names or ()) if self.params is not None else set()
        if set(params) != names:
            raise TypeError(f"{self.name} takes the params {sorted(names)}, got {sorted(params)}")
        self.param_values = params

    @property
    def name(self) -> str:
        """The class's name, for messages and file names."""
        return type(self).__name__


@dataclass(frozen=True)
class Layout:
    """The memory of one environment, as its class declares it."""

    slot: np.dtype[Any]  # state and bookkeeping of one environment
    config: np.ndarray  # config[1]: what all environments share; read by the kernels, so changing it recompiles nothing
    obs_shape: tuple[int, ...]
    obs_dtype: np.dtype[Any]
    mask_shape: tuple[int, ...]  # (0,) without an action mask: the kernels always get an array
    masked: bool
    action_shape: tuple[int, ...]
    action_dtype: np.dtype[Any]

    def slots(self, n: int) -> np.ndarray:
        """slot[n], zeroed, padding included, so that equal states have equal bytes."""
        return np.zeros(n, self.slot)

    def observations(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """obs_dtype[n, *obs_shape] and int8[n, *mask_shape], not initialised."""
        return np.empty((n, *self.obs_shape), self.obs_dtype), np.empty((n, *self.mask_shape), np.int8)


def layout(env: CompiledEnv) -> Layout:
    """Read an environment's declarations; TypeError where they do not fit together."""
    if not isinstance(env.state, np.dtype) or env.state.names is None:
        raise TypeError(f"{env.name}.state: expected a NumPy structured dtype, got {env.state!r}")
    for name in ("reset", "step", "observe"):
        function = getattr(env, name, None)
        if not callable(function) or isinstance(function, types.MethodType):
            raise TypeError(f"{env.name}.{name}: expected a function under @staticmethod")
    obs_space, masked = env.observation_space, False
    mask_shape: tuple[int, ...] = (0,)
    if isinstance(obs_space, gym.spaces.Dict):
        if set(obs_space) != {"obs", "action_mask"} or obs_space["action_mask"].dtype != np.int8:
            raise TypeError(
                f'{env.name}.observation_space: expected a Box, or Dict({{"obs": Box, "action_mask": int8 '
                f"Box or MultiBinary}}), got {obs_space}"
            )
        mask_shape, masked = obs_space["action_mask"].shape or (), True
        obs_space = obs_space["obs"]
    if not isinstance(obs_space, gym.spaces.Box):
        raise TypeError(f"{env.name}.observation_space: expected a Box of observations, got {obs_space}")
    action_shape, low, high = _action_bounds(env)
    slot = np.dtype(
        [
            ("state", _aligned(env.state)),
            ("rng", RNG),
            ("key", "u8"),  # the environment's own; with `episode` it gives rng.key
            ("episode", "u8"),  # episodes begun
            ("clock", "i8"),  # steps of the current episode
            ("stepping", "?"),
            ("over", "?"),  # the episode has ended: the next step only resets (NEXT_STEP)
        ],
        align=True,
    )
    config_fields: list[Any] = [
        ("blank", slot),
        ("params", _aligned(env.params or _NO_PARAMS)),
        ("limit", "i8"),
        ("check_finite", "?"),
        ("next_step", "?"),
        ("low", low.dtype, (max(low.size, 1),)),
        ("high", high.dtype, (max(high.size, 1),)),
    ]
    config = np.zeros(1, np.dtype(config_fields, align=True))
    config["limit"], config["check_finite"] = env.max_episode_steps or 0, env.check_finite
    config["low"][0], config["high"][0] = low.ravel(), high.ravel()
    for name in env.params.names or () if env.params is not None else ():
        config["params"][name][0] = env.param_values[name]
    return Layout(slot, config, obs_space.shape, np.dtype(obs_space.dtype), mask_shape, masked, action_shape, low.dtype)


def _action_bounds(env: CompiledEnv) -> tuple[tuple[int, ...], np.ndarray, np.ndarray]:
    """(shape of one action, lowest, highest); scalar int64 for Discrete."""
    space = env.action_space
    if isinstance(space, gym.spaces.Discrete):
        return (), np.array(space.start, np.int64), np.array(space.start + space.n - 1, np.int64)
    if isinstance(space, gym.spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return space.nvec.shape, space.start.astype(np.int64), (space.start + space.nvec - 1).astype(np.int64)
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
        return space.shape, space.low, space.high
    raise TypeError(f"{env.name}.action_space: expected Discrete, MultiDiscrete or Box of one dimension, got {space}")


def _aligned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same fields at aligned offsets: a GPU cannot load a float64 from an odd address in one go."""
    if dtype.names is None or dtype.fields is None:
        return dtype
    fields: list[Any] = []
    for name in dtype.names:
        field = dtype.fields[name][0]
        fields.append((name, _aligned(field.base), field.shape))
    return np.dtype(fields, align=True)
