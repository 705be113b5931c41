"""Build the kernels of an environment: lay out its memory, link its functions, compile them once.

Machine code is kept in `$SHOAL_CACHE_DIR` (default ~/.cache/shoal), in a file named after a hash of all it depends
on, so a changed function, constant, dtype or Numba version is compiled anew and never confused with the old one. A
folder that cannot be written costs the compilation at every start, nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import platform
import tempfile
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np

from shoal.vector import kernels
from shoal.vector.link import Linker
from shoal.vector.rng import RNG

if TYPE_CHECKING:
    from shoal.vector.compiled import CompiledEnv

# No fastmath: bits would differ between machines. error_model="numpy": x / 0 is inf, as on the GPU, and is reported.
# _nrt=False: no reference counts (atomic, 100 ns a step) and no arrays made in a step, as on the GPU.
# forceinline: a call would pass ten arrays; without it a CartPole step takes twice as long.
_CPU_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False, "forceinline": True}
_NO_PARAMS = np.dtype([("none", "i8")])


def user(*arguments: Any) -> Any:
    """Placeholder, in the adapters below, of a function as the user wrote it."""


# The kernels know one signature, whether or not an environment declares params or an action mask.
# (function, has a mask, has params) -> adapter
_ADAPTERS: dict[tuple[str, bool, bool], Callable[..., Any]] = {
    ("reset", False, False): lambda state, rng, params: user(state, rng),
    ("reset", False, True): lambda state, rng, params: user(state, rng, params),
    ("step", False, False): lambda state, rng, action, params: user(state, rng, action),
    ("step", False, True): lambda state, rng, action, params: user(state, rng, action, params),
    ("observe", False, False): lambda state, out, mask, params: user(state, out),
    ("observe", False, True): lambda state, out, mask, params: user(state, out, params),
    ("observe", True, False): lambda state, out, mask, params: user(state, out, mask),
    ("observe", True, True): lambda state, out, mask, params: user(state, out, mask, params),
}


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
    obs_space, mask_shape, masked = env.observation_space, (0,), False
    if isinstance(obs_space, gym.spaces.Dict):
        if set(obs_space) != {"obs", "action_mask"} or obs_space["action_mask"].dtype != np.int8:
            raise TypeError(
                f'{env.name}.observation_space: expected a Box, or Dict({{"obs": Box, "action_mask": int8 Box or '
                f"MultiBinary}}), got {obs_space}"
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
        ],
        align=True,
    )
    config_fields: list[Any] = [
        ("blank", slot),
        ("params", _aligned(env.params or _NO_PARAMS)),
        ("limit", "i8"),
        ("check_finite", "?"),
        ("low", low.dtype, (max(low.size, 1),)),
        ("high", high.dtype, (max(high.size, 1),)),
    ]
    config = np.zeros(1, np.dtype(config_fields, align=True))
    config["limit"], config["check_finite"] = env.max_episode_steps or 0, env.check_finite
    config["low"][0], config["high"][0] = low.ravel(), high.ravel()
    for name in env.params.names or () if env.params is not None else ():
        config["params"][name][0] = env.param_values[name]
    return Layout(
        slot, config, obs_space.shape, np.dtype(obs_space.dtype), mask_shape, masked, action_shape, low.dtype
    )


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


@dataclass(frozen=True)
class Kernels:
    """Compiled kernels, and what it took to get them."""

    step: Any
    reset: Any
    fingerprint: str
    compile_s: float = 0.0
    cached: bool = False  # the machine code was read from disk


_built: dict[str, Kernels] = {}  # of this process, by fingerprint


def build(
    env: CompiledEnv,
    target: Literal["cpu", "cuda", "python"] = "cpu",
    on_compile: Callable[[str], None] | None = None,
) -> Kernels:
    """The kernels of `env` for a target. "python" does not compile: slow, but a debugger can step through it.

    `on_compile` is called with a sentence for the user before a compilation that takes seconds.
    """
    import numba

    plan = layout(env)
    replace: dict[Any, Any] = {kernels.SLOT: plan.slot, kernels.CONFIG: plan.config.dtype}
    for name in ("reset", "step", "observe"):
        adapter = _ADAPTERS[name, plan.masked and name == "observe", env.params is not None]
        function = types.FunctionType(adapter.__code__, {"user": getattr(env, name)}, name)
        replace[getattr(kernels, f"env_{name}")] = function
    if target == "cuda":
        return _build_cuda(plan, replace)
    linker = Linker(numba.njit(**_CPU_OPTIONS) if target == "cpu" else _as_is, replace)
    step, reset = linker.link(kernels.step_range, _as_is), linker.link(kernels.reset_range, _as_is)
    if target == "python":
        return Kernels(step, reset, linker.fingerprint)
    depends = (linker.fingerprint, plan.obs_dtype, len(plan.obs_shape), plan.action_dtype,
               len(plan.action_shape), len(plan.mask_shape), _CPU_OPTIONS, numba.__version__, np.__version__,
               platform.python_version(), numba.config.BOUNDSCHECK, numba.config.OPT)  # fmt: skip
    fingerprint = hashlib.sha256(repr(depends).encode()).hexdigest()
    if fingerprint not in _built:
        _built[fingerprint] = _build_cpu(env, plan, step, reset, fingerprint, on_compile)
    return _built[fingerprint]


def _as_is(function: Any) -> Any:
    return function


def _build_cpu(
    env: CompiledEnv,
    plan: Layout,
    step: Any,
    reset: Any,
    fingerprint: str,
    on_compile: Callable[[str], None] | None,
) -> Kernels:
    started = time.perf_counter()
    file = _cache_file(env.name, fingerprint)
    cached = file is not None and any(file.parent.glob(f"__pycache__/{file.stem}.*.nbi"))
    if on_compile is not None and not cached:
        on_compile(f"compiling {env.name}: a few seconds, once")
    slots, config = plan.slots(1).view(np.uint8), plan.config.view(np.uint8)
    (obs, mask), flags = plan.observations(1), np.empty(1, np.bool_)
    actions, rewards = np.empty((1, *plan.action_shape), plan.action_dtype), np.empty(1, np.float32)
    step_arguments = (slots, actions, obs, mask, obs, mask, rewards, flags, flags, config, 0, 1)
    reset_arguments = (slots, flags, obs, mask, config)
    try:
        compiled = _njit(step, step_arguments, file), _njit(reset, reset_arguments, file)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):  # disk full, folder gone, file damaged
        compiled, cached = (_njit(step, step_arguments, None), _njit(reset, reset_arguments, None)), False
    return Kernels(*compiled, fingerprint, time.perf_counter() - started, cached)


def _njit(kernel: Any, arguments: tuple[Any, ...], file: Path | None) -> Any:
    """Compile for exactly these types: any other argument is then an error, not seconds of silent compilation."""
    import numba

    if file is not None:  # Numba keeps machine code beside the file a function says it comes from
        kernel.__code__ = kernel.__code__.replace(co_filename=str(file))
    compiled = numba.njit(kernel, cache=file is not None, **_CPU_OPTIONS)
    compiled.compile(tuple(numba.typeof(argument) for argument in arguments))
    compiled.disable_compile()
    return compiled


def _cache_file(name: str, fingerprint: str) -> Path | None:
    """The file that stands for these kernels in the cache folder, or None where that cannot be written."""
    folder = Path(os.environ.get("SHOAL_CACHE_DIR") or Path.home() / ".cache" / "shoal") / "kernels"
    file = folder / f"{name}_{fingerprint[:40]}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as temporary:
                temporary.write(f"# Stands for the compiled kernels of {name}; see shoal.vector.build. Safe to delete.\n")
            os.replace(temporary.name, file)
        if not os.access(folder, os.W_OK):
            return None
    except OSError:
        return None
    return file


def _build_cuda(plan: Layout, replace: dict[Any, Any]) -> Kernels:
    """The same functions as CUDA kernels; without fused multiply-add, whose single rounding would change bits."""
    import numba
    from numba import cuda
    from numba.cuda.cudadrv import nvvm

    started = time.perf_counter()
    replace[kernels.CUDA_GRID] = cuda.grid
    # lto=False: with link-time optimisation the machine code is made later, where the option below does not reach.
    linker, kernel = Linker(cuda.jit(device=True, lto=False), replace), cuda.jit(lto=False)
    step, reset = linker.link(kernels.cuda_step, kernel), linker.link(kernels.cuda_reset, kernel)
    slots, (obs, mask), flags = plan.slots(1), plan.observations(1), np.empty(1, np.bool_)
    actions, rewards = np.empty((1, *plan.action_shape), plan.action_dtype), np.empty(1, np.float32)
    step_arguments = (slots, actions, obs, mask, obs, mask, rewards, flags, flags, plan.config, flags)
    compile_ir = nvvm.compile_ir
    nvvm.compile_ir = functools.partial(compile_ir, fma=0)  # cuda.jit has no option for it
    try:
        step.compile(tuple(numba.typeof(argument) for argument in step_arguments))
        reset.compile(tuple(numba.typeof(argument) for argument in (slots, flags, obs, mask, plan.config)))
    finally:
        nvvm.compile_ir = compile_ir
    return Kernels(step, reset, linker.fingerprint, time.perf_counter() - started)
