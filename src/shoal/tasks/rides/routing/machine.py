"""The routing kernels as machine code, kept on disk: plain functions in, compiled kernels out."""

from __future__ import annotations

import functools
import hashlib
import importlib
import pickle
import platform
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.vector.build import cache_file
from shoal.vector.link import Linker

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@functools.cache
def kernel(function: Any, apart: tuple[Any, ...] = ()) -> Callable[..., Any]:
    """`function` and all it calls, compiled at its first call for the types of its arguments.

    Everything it calls is inlined (a call would pass dozens of array fields), but for the functions in `apart`:
    large ones with several callers, which would be compiled many times over.
    """
    built: dict[Any, Any] = {}

    def call(*arguments: Any) -> Any:
        typeof: Any = importlib.import_module("numba").typeof
        types = tuple(typeof(argument) for argument in arguments)
        if types not in built:
            built[types] = _build(function, apart, types)
        return built[types](*arguments)

    return call


def _build(function: Any, apart: tuple[Any, ...], types: tuple[Any, ...]) -> Any:
    """Machine code for one tuple of types, from disk where it was made before."""
    numba: Any = importlib.import_module("numba")  # not at the top: importing it takes half a second

    def jit(rebuilt: Any, original: Any) -> Any:
        return numba.njit(rebuilt, forceinline=original not in apart, **_OPTIONS)

    linker = Linker(jit)
    linked = linker.link(function, lambda rebuilt, _: rebuilt)
    depends = (linker.fingerprint, [each.__name__ for each in apart], types, _OPTIONS, numba.__version__,
               np.__version__, platform.python_version(), numba.config.BOUNDSCHECK, numba.config.OPT)  # fmt: skip
    file = cache_file(f"rides_{function.__name__}", hashlib.sha256(repr(depends).encode()).hexdigest())
    if file is not None:
        # Numba keeps machine code beside the file a function says it comes from.
        linked.__code__ = linked.__code__.replace(co_filename=str(file))
        try:
            return _compile(numba, linked, types, cache=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):  # disk full, file damaged
            for damaged in file.parent.glob(f"__pycache__/{file.stem}.*"):
                damaged.unlink(missing_ok=True)
    return _compile(numba, linked, types, cache=False)


def _compile(numba: Any, linked: Any, types: tuple[Any, ...], cache: bool) -> Any:
    machine_code = numba.njit(linked, cache=cache, **_OPTIONS)
    machine_code.compile(types)
    machine_code.disable_compile()
    return machine_code
