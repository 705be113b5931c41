"""Scalar functions of this package as machine code, outside a vector environment. Kept on disk as kernels are."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

from shoal.compiled.compile import cache_file, fingerprint_of, machine_code
from shoal.compiled.link import Linker

_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


@functools.cache
def compiled(function: Any) -> Callable[..., Any]:
    """A plain scalar function and all it calls, compiled for the types of its arguments at its first call."""
    built: dict[Any, Any] = {}

    def call(*arguments: Any) -> Any:
        typeof: Any = importlib.import_module("numba").typeof
        types = tuple(typeof(argument) for argument in arguments)
        if types not in built:
            built[types] = _build(function, types)
        return built[types](*arguments)

    return call


def specialised(function: Any, *examples: Any) -> Callable[..., Any]:
    """Machine code for arguments of these very types: `compiled` without the types being asked at every call,
    which takes a millisecond for arrays of large records."""
    typeof: Any = importlib.import_module("numba").typeof
    code: Callable[..., Any] = _build(function, tuple(typeof(example) for example in examples))
    return code


def _build(function: Any, types: tuple[Any, ...]) -> Any:
    """Machine code for one tuple of types, from disk where it was made before."""
    numba: Any = importlib.import_module("numba")
    linker = Linker(lambda rebuilt, _: numba.njit(rebuilt, **_OPTIONS))
    kernel = linker.link(function, lambda rebuilt, _: rebuilt)
    return machine_code(kernel, types, cache_file(function.__name__, fingerprint_of(linker.fingerprint)), _OPTIONS)[0]
