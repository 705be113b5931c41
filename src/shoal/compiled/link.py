"""Plain Python functions in, jitted functions out: the whole closure of what they call, and its fingerprint.

Numba compiles a function only if everything it calls is jitted too, and its cache does not notice when a
callee or a constant in another file changes. So `Linker` walks from a function through every function it
names, rebuilds each with globals that point at the jitted versions, and hashes all that the machine code
depends on (bytecode, constants, values of globals). The originals stay plain Python: they can be called,
tested and debugged as they are.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_LIBRARIES = ("numpy", "math", "cmath", "operator", "numba", "builtins")


class LinkError(TypeError):
    """An environment's function uses something that cannot be compiled."""


class Placeholder:
    """A global whose value is known only when a kernel is linked."""


class Linker:
    """Rebuilds functions for one target; `jit(rebuilt, original)` compiles one of them.

    `replace` maps functions and placeholders to what to use in their stead.
    """

    def __init__(self, jit: Callable[[Any, Any], Any], replace: dict[Any, Any] | None = None) -> None:
        self._jit = jit
        self._replace = replace or {}
        self._linked: dict[types.FunctionType, Any] = {}
        self._hash = hashlib.sha256()

    @property
    def fingerprint(self) -> str:
        """sha256 of everything linked so far, in the order it was reached."""
        return self._hash.hexdigest()

    def link(self, function: Any, jit: Callable[[Any, Any], Any] | None = None) -> Any:
        """The compiled version of `function` and of all it calls."""
        function = self._replace.get(function, function)
        function = getattr(function, "py_func", function)  # an @njit function is rebuilt from its source
        if function in self._linked:
            return self._linked[function]
        # Numba imports a function's module when it reads machine code from disk; the user's may be a script.
        names: dict[str, Any] = {"__name__": __name__}
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        rebuilt = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells or None)
        rebuilt.__qualname__ = function.__qualname__
        # Entered before its callees, so that functions may call each other in a circle.
        self._linked[function] = linked = (jit or self._jit)(rebuilt, function)
        self._add("function", function.__name__, function.__defaults__)
        self._add_code(function.__code__)
        for name in sorted(set(_global_names(function.__code__))):
            if name in function.__globals__:
                names[name] = self._value(function, name, function.__globals__[name])
        for cell, name, old in zip(cells, function.__code__.co_freevars, function.__closure__ or (), strict=True):
            cell.cell_contents = self._value(function, name, old.cell_contents)
        return linked

    def _value(self, function: types.FunctionType, name: str, value: Any) -> Any:
        """What a global or a closed-over variable becomes: functions are linked, constants are hashed."""
        self._add(name)
        if isinstance(value, Placeholder):
            value = self._replace[value]
        if isinstance(value, types.FunctionType) or hasattr(value, "py_func"):
            return self.link(value)
        if isinstance(value, types.ModuleType):
            if value.__name__.partition(".")[0] not in _LIBRARIES:
                raise LinkError(
                    f"{function.__qualname__} reaches through the module {value.__name__!r}, which cannot be "
                    f"compiled; import what it needs by name: from {value.__name__} import ..."
                )
            if value is np.random or (value is np and _draws_from_numpy(function.__code__)):
                raise LinkError(
                    f"{function.__qualname__} draws from np.random, which no seed and no checkpoint knows: "
                    "expected uniform(rng), below(rng, n) or chance(rng, p) of shoal.compiled.random"
                )
            self._add(value.__name__)
        elif isinstance(value, type) and issubclass(value, enum.IntEnum):
            self._add([(member.name, int(member)) for member in value])
        elif (getattr(value, "__module__", None) or "").partition(".")[0] in _LIBRARIES and hasattr(
            value, "__qualname__"
        ):
            self._add(value.__module__, value.__qualname__)  # np.float64, math.sqrt
        else:
            self._add_constant(function, name, value)
        return value

    def _add_constant(self, function: types.FunctionType, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._add(str(value.dtype.descr), value.shape, value.tobytes())
        elif isinstance(value, tuple):
            self._add("tuple", len(value))
            for item in value:
                self._add_constant(function, name, item)
        elif isinstance(value, np.dtype):
            self._add(repr(value))
        elif isinstance(value, bool | int | float | complex | str | bytes | np.generic | None):
            self._add(type(value).__name__, value)
        else:
            raise LinkError(
                f"{function.__qualname__} uses {name}, a {type(value).__name__}, which cannot be compiled; "
                "expected a function, a number, a tuple of numbers, a NumPy array or an IntEnum"
            )

    def _add_code(self, code: types.CodeType) -> None:
        self._add(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant)
            elif isinstance(constant, frozenset):  # in an order of its own in every process
                self._add("frozenset", sorted(map(repr, constant)))
            else:
                self._add(type(constant).__name__, constant)

    def _add(self, *parts: Any) -> None:
        for part in parts:
            self._hash.update(part if isinstance(part, bytes) else repr(part).encode())
            self._hash.update(b"\0")


def _draws_from_numpy(code: types.CodeType) -> bool:
    """Whether `code` itself reads `random` of a global."""
    pairs = itertools.pairwise(dis.get_instructions(code))
    return any(one.opname == "LOAD_GLOBAL" and two.argval == "random" for one, two in pairs)


def _global_names(code: types.CodeType) -> Iterator[str]:
    """The names `code` reads from its module. Not co_names: that holds attribute names too."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)
