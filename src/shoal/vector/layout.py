"""How a Gymnasium space is laid out as plain arrays, and what may be written into them.

A space is a tree; its leaves (Box, Discrete, MultiDiscrete, MultiBinary) are arrays. `Layout` lists the
leaves, allocates `[n, *shape]` arrays for them, and checks every value before it is stored: a wrong shape
is never broadcast, a string never parsed, a float never cut down to an integer, an overflow never
turned into infinity. Widening that loses nothing in kind (bool -> int -> float, float64 -> float32) is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.vector.errors import DtypeError, NotFinite, ShapeError

Array = np.ndarray[Any, np.dtype[Any]]
Path = tuple[Any, ...]


class Layout:
    """The leaves of a space, in a fixed order.

    >>> layout = Layout(spaces.Dict({"obs": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)}))
    >>> [("/".join(path), shape, str(dtype)) for path, shape, dtype in layout.leaves]
    [('action_mask', (3,), 'int8'), ('obs', (2,), 'float32')]
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.leaves: list[tuple[Path, tuple[int, ...], np.dtype[Any]]] = []
        self._collect(space, ())
        self.is_single = isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)

    def _collect(self, space: spaces.Space[Any], path: Path) -> None:
        if isinstance(space, spaces.Dict):
            for key, part in space.spaces.items():
                self._collect(part, (*path, key))
        elif isinstance(space, spaces.Tuple):
            for index, part in enumerate(space.spaces):
                self._collect(part, (*path, index))
        elif isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            self.leaves.append((path, tuple(space.shape or ()), np.dtype(space.dtype)))
        else:
            raise TypeError(
                f"a space of type {type(space).__name__} at {_name(path)} cannot be laid out as arrays. Expected Box, "
                "Discrete, MultiDiscrete, MultiBinary, or Dict/Tuple of them; wrap the environment to flatten it."
            )

    @property
    def row_bytes(self) -> int:
        """Bytes of one environment's row."""
        return sum(int(np.prod(shape)) * dtype.itemsize for _, shape, dtype in self.leaves)

    def allocate(self, *lead: int, fn: Callable[..., Array] = np.zeros) -> list[Array]:
        """One array `[*lead, *shape]` per leaf."""
        return [fn((*lead, *shape), dtype) for _, shape, dtype in self.leaves]

    def assemble(self, arrays: Sequence[Array]) -> Any:
        """Arrays in leaf order -> the structure that Gymnasium gives for this space."""
        iterator = iter(arrays)
        return self._assemble(self.space, iterator)

    def _assemble(self, space: spaces.Space[Any], arrays: Any) -> Any:
        if isinstance(space, spaces.Dict):
            return {key: self._assemble(part, arrays) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(self._assemble(part, arrays) for part in space.spaces)
        return next(arrays)

    def take_apart(self, value: Any) -> list[Any]:
        """The inverse of `assemble`; also takes one environment's observation apart."""
        if self.is_single:
            return [value]
        parts = []
        for path, _, _ in self.leaves:
            part = value
            for key in path:
                try:
                    part = part[key]
                except (KeyError, IndexError, TypeError) as error:
                    raise ShapeError(
                        f"expected an observation with a part {_name(path)}, got {_describe(value)}"
                    ) from error
            parts.append(part)
        return parts

    def write(self, value: Any, rows: Sequence[Array], index: int) -> None:
        """Check one environment's value and store it in row `index` of the leaf arrays."""
        parts = [value] if self.is_single else self.take_apart(value)
        for part, array, (path, shape, dtype) in zip(parts, rows, self.leaves, strict=True):
            if type(part) is not np.ndarray or part.dtype != dtype or part.shape != shape:
                part = _conform(part, path, shape, dtype)
            array[index] = part

    def check_finite(self, rows: Sequence[Array], what: str) -> None:
        """Raise NotFinite, with `.row` set to the first offending row, if any float is NaN or infinite."""
        for array, (path, _, dtype) in zip(rows, self.leaves, strict=True):
            # A sum is one pass without a temporary, and NaN or inf always survives it.
            if dtype.kind != "f" or np.isfinite(array.sum()) or np.isfinite(array).all():
                continue
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            error = NotFinite(f"{what} {_name(path)} is not finite: {_describe(array[row])}")
            error.row = row  # type: ignore[attr-defined]
            raise error


def _conform(part: Any, path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The slow path of a check: convert what may be converted, refuse the rest."""
    if part is None or isinstance(part, str | bytes):
        raise DtypeError(f"expected {_name(path)} of dtype {dtype} and shape {shape}, got {_describe(part)}")
    array = np.asarray(part)
    if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, dtype, "same_kind"):
        raise DtypeError(
            f"expected {_name(path)} of dtype {dtype} and shape {shape}, got {_describe(part)}; "
            f"cast it in the environment if {array.dtype} -> {dtype} is meant"
        )
    if array.shape != shape:
        raise ShapeError(
            f"expected {_name(path)} of shape {shape}, got shape {array.shape} ({_describe(part)}); nothing is broadcast"
        )
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f" and not np.array_equal(np.isfinite(cast), np.isfinite(array)):
        raise DtypeError(f"{_name(path)} overflows {dtype}: {_describe(part)}")
    if dtype.kind in "iu" and not np.array_equal(cast, array):
        raise DtypeError(f"{_name(path)} does not fit {dtype}: {_describe(part)}")
    return cast


def check_scalar(value: Any, what: str) -> float:
    """A reward as a Python float; anything that is not one number is refused."""
    if type(value) is float:
        return value
    if isinstance(value, int | np.bool_ | np.floating | np.integer):
        return float(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "biuf":
        return float(value)
    raise DtypeError(f"expected {what} as one number, got {_describe(value)}")


def check_flag(value: Any, what: str) -> bool:
    """`terminated` or `truncated` as a Python bool."""
    if type(value) is bool:
        return value
    if isinstance(value, np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1)):
        return bool(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind == "b":
        return bool(value)
    raise DtypeError(f"expected {what} as True or False, got {_describe(value)}")


def _name(path: Path) -> str:
    return "the observation" if not path else "the observation part " + "/".join(map(str, path))


def _describe(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
