"""The routing kernels as machine code, kept on disk: plain functions in, compiled kernels out."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from typing import Any

from shoal.compiled.compile import cache_file, fingerprint_of, machine_code
from shoal.compiled.link import Linker, Placeholder

BARE: Any = Placeholder()  # BARE(array): the same array, uncounted; see schedule.borrow
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_built: dict[Any, Any] = {}  # of this process, by function and types
_lock = threading.Lock()


def compiled(function: Any, arguments: tuple[Any, ...]) -> Any:
    """The machine code of a kernel for arguments of these types; made at the first request, or read from disk.

    Everything that the kernel calls is inlined: a call would pass dozens of array fields.
    """
    typeof: Any = importlib.import_module("numba").typeof  # not at the top: importing it takes half a second
    key = (function, *(typeof(argument) for argument in arguments))
    with _lock:
        if key not in _built:
            _built[key] = _build(function, key[1:])
    return _built[key]


def kernel(function: Any) -> Callable[..., Any]:
    """`function` as machine code, compiled at its first call."""

    def call(*arguments: Any) -> Any:
        return compiled(function, arguments)(*arguments)

    return call


@functools.cache
def _linker() -> Linker:
    """One for all kernels of this process, so that what two of them call is compiled once."""
    numba: Any = importlib.import_module("numba")
    return Linker(lambda rebuilt, _: numba.njit(rebuilt, forceinline=True, **_OPTIONS), {BARE: _bare()})


def _build(function: Any, types: tuple[Any, ...]) -> Any:
    alone = Linker(lambda rebuilt, _: rebuilt, {BARE: _bare()})  # its fingerprint is of this kernel and nothing else
    alone.link(function)
    file = cache_file(f"rides_{function.__name__}", fingerprint_of(alone.fingerprint, types, _OPTIONS))
    return machine_code(_linker().link(function, lambda rebuilt, _: rebuilt), types, file, _OPTIONS)[0]


@functools.cache
def _bare() -> Any:
    """An array that is not counted, made from one that is."""
    extending: Any = importlib.import_module("numba.extending")

    def bare(typing: Any, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.return_type)(context, builder, arguments[0])
            view.meminfo = view.meminfo.type(None)  # what Numba would count with: a null pointer is left alone
            return view._getvalue()

        return array(array), generate

    bare.__module__ = "numba"  # the linker leaves alone what is Numba's own
    return extending.intrinsic(bare)
