"""Scalar functions of this package as machine code, outside a vector environment."""

from __future__ import annotations

import functools
from typing import Any

from shoal.vector.link import Linker


@functools.cache
def _linker() -> Linker:
    """One for the process: what two kernels share is compiled once."""
    import numba

    return Linker(lambda rebuilt, _: numba.njit(rebuilt, nogil=True, error_model="numpy"))


@functools.cache
def compiled(function: Any) -> Any:
    """A plain scalar function and all it calls, compiled at its first call."""
    return _linker().link(function)
