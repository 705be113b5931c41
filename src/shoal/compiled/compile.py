"""Build the kernels of an environment: lay out its memory, link its functions, compile them once.

Machine code is kept in `$SHOAL_CACHE_DIR` (default ~/.cache/shoal), in a file named after a hash of all it
depends on, so a changed function, constant, dtype or Numba version is compiled anew and never confused with
the old one. A folder that cannot be written costs the compilation at every start, nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import pickle
import platform
import tempfile
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from shoal.compiled import kernels
from shoal.compiled.env import CompiledEnv, Layout, layout
from shoal.compiled.link import Linker

# No fastmath: bits would differ between machines. error_model="numpy": x / 0 is inf, as on the GPU, and is
# reported. _nrt=False: no reference counts (atomic, 100 ns a step) and no arrays made in a step, as on the
# GPU.
_CPU_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}

_NAMES = ("reset", "step", "observe")


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
class Kernels:
    """Compiled kernels, and what it took to get them."""

    step: Any
    reset: Any
    fingerprint: str
    compile_s: float = 0.0
    cached: bool = False  # the machine code was read from disk


_INLINED = __name__.rpartition(".")[0] + "."  # functions of this package become part of their callers

_built: dict[str, Kernels] = {}  # of this process, by fingerprint


def build(
    env: CompiledEnv,
    target: Literal["cpu", "cuda", "python"] = "cpu",
    on_compile: Callable[[str], None] | None = None,
) -> Kernels:
    """The kernels of `env` for a target. "python" does not compile: slow, but a debugger can step through it.

    `on_compile` is called with a sentence for the user before a compilation that takes seconds.
    """
    numba: Any = importlib.import_module("numba")  # not at the top: importing it takes half a second
    plan = layout(env)
    records = [plan.slot, plan.config.dtype]
    if target == "python":  # NumPy gives attributes (state.x) to records of this type only
        records = [np.dtype((np.record, dtype)) for dtype in records]
    replace: dict[Any, Any] = dict(zip((kernels.SLOT, kernels.CONFIG), records, strict=True))
    three = [getattr(env, name) for name in _NAMES]
    for name, function in zip(_NAMES, three, strict=True):
        adapter = _ADAPTERS[name, plan.masked and name == "observe", env.params is not None]
        names = {"__name__": __name__, "user": function}
        replace[getattr(kernels, f"env_{name}")] = types.FunctionType(adapter.__code__, names, name)
    if target == "cuda":
        return _build_cuda(plan, replace)

    def jit(rebuilt: Any, original: Any) -> Any:
        # Without forced inlining a CartPole step takes twice as long: a call would pass ten arrays. Only for
        # this package's own small functions and the environment's three; the compiler judges those they call.
        small = (original.__module__ or "").startswith(_INLINED) or original in three
        return numba.njit(rebuilt, forceinline=small, **_CPU_OPTIONS)

    linker = Linker(jit if target == "cpu" else _as_is, replace)
    step, reset = linker.link(kernels.step_range, _as_is), linker.link(kernels.reset_range, _as_is)
    if target == "python":
        return Kernels(step, reset, linker.fingerprint)
    fingerprint = fingerprint_of(
        linker.fingerprint, plan.obs_dtype, len(plan.obs_shape), plan.action_dtype, len(plan.action_shape),
        len(plan.mask_shape), _CPU_OPTIONS, _INLINED,
    )  # fmt: skip
    if fingerprint not in _built:
        _built[fingerprint] = _build_cpu(env, plan, step, reset, fingerprint, on_compile)
    return _built[fingerprint]


def _as_is(rebuilt: Any, original: Any) -> Any:
    return rebuilt


def _build_cpu(
    env: CompiledEnv,
    plan: Layout,
    step: Any,
    reset: Any,
    fingerprint: str,
    on_compile: Callable[[str], None] | None,
) -> Kernels:
    started = time.perf_counter()
    file = cache_file(env.name, fingerprint)
    cached = file is not None and any(file.parent.glob(f"__pycache__/{file.stem}.*.nbi"))
    if on_compile is not None and not cached:
        on_compile(f"compiling {env.name}: a few seconds, once")
    slots, config = plan.slots(1).view(np.uint8), plan.config.view(np.uint8)
    (obs, mask), flags = plan.observations(1), np.empty(1, np.bool_)
    actions, rewards = np.empty((1, *plan.action_shape), plan.action_dtype), np.empty(1, np.float32)
    step_arguments = (slots, actions, obs, mask, obs, mask, rewards, flags, flags, config, 0, 1)
    reset_arguments = (slots, flags, obs, mask, config)
    typeof: Any = importlib.import_module("numba").typeof
    step_code, has_step = machine_code(step, tuple(map(typeof, step_arguments)), file, _CPU_OPTIONS)
    reset_code, has_reset = machine_code(reset, tuple(map(typeof, reset_arguments)), file, _CPU_OPTIONS)
    cached = cached and has_step and has_reset
    return Kernels(step_code, reset_code, fingerprint, time.perf_counter() - started, cached)


def fingerprint_of(*parts: Any) -> str:
    """Of all that machine code depends on: these parts, and the versions that make it."""
    numba: Any = importlib.import_module("numba")
    versions = numba.__version__, np.__version__, platform.python_version(), numba.config.BOUNDSCHECK, numba.config.OPT
    return hashlib.sha256(repr((*parts, *versions)).encode()).hexdigest()


def machine_code(kernel: Any, types: tuple[Any, ...], file: Path | None, options: dict[str, Any]) -> tuple[Any, bool]:
    """A linked function as machine code for exactly these types: any other is then an error, not seconds of silent
    compilation. With a `file` of the cache it is read from disk or kept there; False: what is there cannot be read."""
    numba: Any = importlib.import_module("numba")

    def compiled(cache: bool) -> Any:
        code = numba.njit(kernel, cache=cache, **options)
        code.compile(types)
        code.disable_compile()
        return code

    if file is None:
        return compiled(False), True
    # Numba keeps machine code beside the file a function says it comes from.
    kernel.__code__ = kernel.__code__.replace(co_filename=str(file))
    try:
        return compiled(True), True
    except UNREADABLE:
        for damaged in file.parent.glob(f"__pycache__/{file.stem}.*"):
            damaged.unlink(missing_ok=True)  # or every later start would trip over it too
        return compiled(False), False


# A full disk, a folder that is gone, a damaged file, machine code of a version of shoal whose modules had other names.
UNREADABLE = (OSError, RuntimeError, EOFError, pickle.UnpicklingError, ImportError, AttributeError)


def cache_file(name: str, fingerprint: str) -> Path | None:
    """The file that stands for these kernels in the cache folder, or None where that cannot be written."""
    folder = Path(os.environ.get("SHOAL_CACHE_DIR") or Path.home() / ".cache" / "shoal") / "kernels"
    file = folder / f"{name}_{fingerprint[:40]}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not file.exists():
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as temporary:
                temporary.write(
                    f"# Stands for the compiled kernels of {name}; see shoal.compiled.compile. Safe to delete.\n"
                )
            os.replace(temporary.name, file)
        if not os.access(folder, os.W_OK):
            return None
    except OSError:
        return None
    return file


def _build_cuda(plan: Layout, replace: dict[Any, Any]) -> Kernels:
    """The same functions as CUDA kernels; without fused multiply-add, which rounds once and changes bits."""
    numba: Any = importlib.import_module("numba")
    cuda: Any = importlib.import_module("numba.cuda")
    nvvm: Any = importlib.import_module("numba.cuda.cudadrv.nvvm")
    started = time.perf_counter()
    replace[kernels.CUDA_GRID] = cuda.grid
    # lto=False: with link-time optimisation the machine code is made later, where the option below does not
    # reach. Called with the function, because numba-cuda 0.30 drops lto from cuda.jit(lto=False)(function).
    linker = Linker(lambda rebuilt, _: cuda.jit(rebuilt, lto=False, device=True), replace)
    step, reset = (
        linker.link(kernel, lambda rebuilt, _: cuda.jit(rebuilt, lto=False))
        for kernel in (kernels.cuda_step, kernels.cuda_reset)
    )
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
