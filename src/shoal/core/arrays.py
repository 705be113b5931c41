"""How a Gymnasium space is laid out as plain arrays, and what may be written into them.

A space is a tree; its leaves (Box, Discrete, MultiDiscrete, MultiBinary) are arrays. `Layout` lists the
leaves, allocates `[n, *shape]` arrays for them, and checks every value before it is stored: a wrong shape
is never broadcast, a string never parsed, a float never cut down to an integer, an overflow never
turned into infinity. What loses nothing in kind is converted: bool -> int -> float, float64 -> float32, and
integers of any width as long as the values fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.core.errors import DtypeError, EnvFault, NotFinite, OutOfRange, ShapeError, Unsupported

Array = np.ndarray[Any, np.dtype[Any]]
Path = tuple[Any, ...]
_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
FLOAT32_MAX = 3.4028234663852886e38  # a learner keeps float32: beyond this a reward would become infinite there


class Layout:
    """The leaves of a space, in a fixed order.

    >>> layout = Layout(spaces.Dict({"obs": spaces.Box(-1, 1, (2,)), "action_mask": spaces.MultiBinary(3)}))
    >>> [("/".join(path), shape, str(dtype)) for path, shape, dtype in layout.leaves]
    [('action_mask', (3,), 'int8'), ('obs', (2,), 'float32')]
    """

    def __init__(self, space: spaces.Space[Any], what: str = "observation") -> None:
        self.space, self.what = space, what
        self.leaves: list[tuple[Path, tuple[int, ...], np.dtype[Any]]] = []
        self._choices: list[tuple[int, Array, Array]] = []  # leaves that are choices: (leaf, lowest, highest)
        self._collect(space, ())
        self.is_single = isinstance(space, _LEAVES)

    def _collect(self, space: spaces.Space[Any], path: Path) -> None:
        if isinstance(space, spaces.Dict):
            for key, part in space.spaces.items():
                self._collect(part, (*path, key))
        elif isinstance(space, spaces.Tuple):
            for index, part in enumerate(space.spaces):
                self._collect(part, (*path, index))
        elif isinstance(space, _LEAVES):
            # By its name: a dtype that was pickled equals NumPy's own but is not that object, and `is` is faster.
            self.leaves.append((path, tuple(space.shape or ()), np.dtype(np.dtype(space.dtype).str)))
            if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
                low, count = np.asarray(space.start), space.n if isinstance(space, spaces.Discrete) else space.nvec
                self._choices.append((len(self.leaves) - 1, low, low + (np.asarray(count) - 1).astype(low.dtype)))
        else:
            raise Unsupported(
                f"a space of type {type(space).__name__} at {self._name(path)} cannot be laid out as arrays. Expected "
                "Box, Discrete, MultiDiscrete, MultiBinary, or Dict/Tuple of them; wrap the environment to flatten it"
                + (f", or add --leave-out {path[0]}" if len(path) == 1 and isinstance(path[0], str) else "")
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
        return self._assemble(self.space, iter(arrays))

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
                    raise ShapeError(f"expected {self._name(path)}, got {describe(value)}") from error
            parts.append(part)
        return parts

    def write(self, value: Any, rows: Sequence[Array], index: int) -> None:
        """Check one environment's value and store it in row `index` of the leaf arrays."""
        parts = [value] if self.is_single else self.take_apart(value)
        for part, array, (path, shape, dtype) in zip(parts, rows, self.leaves, strict=True):
            if type(part) is not np.ndarray or part.dtype != dtype or part.shape != shape:
                part = conform(part, self._name(path), shape, dtype)
            array[index] = part

    def check_finite(self, rows: Sequence[Array], what: str) -> None:
        """Raise NotFinite or OutOfRange, with `.row` set to the first offending row, where a float is NaN, infinite or
        beyond float32 (a learner's type), or a choice is none of its space's."""
        for array, (path, _, dtype) in zip(rows, self.leaves, strict=True):
            if dtype.kind != "f" or all_finite(array):
                continue
            wide = dtype.itemsize > 4
            row = int(np.argwhere(~(np.abs(array) <= FLOAT32_MAX if wide else np.isfinite(array)))[0][0])
            finite = "finite as float32" if np.isfinite(array[row]).all() else "finite"
            raise _of_row(NotFinite(f"{what} {self._name(path)} is not {finite}: {describe(array[row])}"), row)
        for leaf, low, high in self._choices:
            array = rows[leaf]
            wrong = (array < low) | (array > high)
            if wrong.any():
                row = int(np.argwhere(wrong)[0][0])
                raise _of_row(
                    OutOfRange(
                        f"{what} {self._name(self.leaves[leaf][0])} is none of its space: expected "
                        f"{low.tolist()} to {high.tolist()}, got {array[row].tolist()}"
                    ),
                    row,
                )

    def named(self, features: Any) -> dict[str, Any]:
        """The parts of rows of features [B, F] by their names, as views: `[B, *shape]` of numbers, `[B, choices]` of a
        Discrete part; none for `action_mask`, which is no feature. For networks that take sets or tables apart.

        >>> layout = Layout(spaces.Dict(speed=spaces.Box(-1, 1, (2,)), table=spaces.Box(-1, 1, (3, 4))))
        >>> {name: part.shape for name, part in layout.named(np.zeros((8, 14))).items()}
        {'speed': (8, 2), 'table': (8, 3, 4)}
        """
        choices = {leaf: int((high.astype(int) - low + 1).sum()) for leaf, low, high in self._choices}
        found, at = dict[str, Any](), 0
        for leaf, (path, shape, _) in enumerate(self.leaves):
            if path != ("action_mask",):
                size = choices.get(leaf, int(np.prod(shape)))
                part = features[:, at : at + size]
                found["/".join(map(str, path))] = part if leaf in choices or not shape else part.reshape(-1, *shape)
                at += size
        return found

    def _name(self, path: Path) -> str:
        return f"the {self.what} part " + "/".join(map(str, path)) if path else f"the {self.what}"


def all_finite(array: Array) -> bool:
    """Whether a float array holds neither NaN nor infinity nor what float32 would make infinity of."""
    # The sum of squares is one fast pass without a temporary, and NaN or infinity always survives it. That it is large
    # or overflows only means a second look.
    flat = array.reshape(-1)
    if array.dtype.itemsize <= 4:
        return bool(np.isfinite(np.vdot(flat, flat)) or np.isfinite(flat).all())
    return bool(np.vdot(flat, flat) <= 1e76 or (np.abs(flat) <= FLOAT32_MAX).all())


def _of_row(error: EnvFault, row: int) -> EnvFault:
    error.row = row
    return error


def conform(part: Any, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The slow path of a check: convert what may be converted, refuse the rest."""

    def expected() -> str:  # only of what is refused: printing a batch takes longer than a policy
        return f"expected {name} of dtype {dtype} and shape {shape}, got {describe(part)}"

    if part is None or isinstance(part, str | bytes):
        raise DtypeError(expected())
    try:
        array = np.asarray(part)
    except ValueError as error:  # a list of lists of unequal lengths
        raise ShapeError(f"{expected()}: {error}") from error
    whole_numbers = array.dtype.kind in "biu" and dtype.kind in "iu"  # checked by value below
    if not whole_numbers and (array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, dtype, "same_kind")):
        raise DtypeError(f"{expected()}; cast it in the environment if {array.dtype} -> {dtype} is meant")
    if array.shape != shape:
        raise ShapeError(
            f"expected {name} of shape {shape}, got shape {array.shape} ({describe(part)}); nothing is broadcast"
        )
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f" and not np.array_equal(np.isfinite(cast), np.isfinite(array)):
        raise DtypeError(f"{name} overflows {dtype}: {describe(part)}")
    if dtype.kind in "iu" and not np.array_equal(cast, array):
        raise DtypeError(f"{name} does not fit {dtype}: {describe(part)}")
    return cast


def check_scalar(value: Any, what: str) -> float:
    """A reward as a Python float; anything that is not one number is refused."""
    if type(value) is float:
        return value
    number = isinstance(value, int | np.bool_ | np.floating | np.integer)
    if number or (isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "biuf"):
        try:
            return float(value)
        except OverflowError:
            raise DtypeError(f"{what} overflows float64: {describe(value)}") from None
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        raise ShapeError(f"expected {what} as one number, got shape {value.shape} ({describe(value)})")
    raise DtypeError(f"expected {what} as one number, got {describe(value)}")


def check_flag(value: Any, what: str) -> bool:
    """`terminated` or `truncated` as a Python bool."""
    if type(value) is bool:
        return value
    if isinstance(value, np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1)):
        return bool(value)
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind == "b":
        return bool(value)
    raise DtypeError(f"expected {what} as True or False, got {describe(value)}")


def check_info(value: Any) -> dict[str, Any]:
    """An info as a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise DtypeError(f"expected the info as a dict, got {describe(value)}")


def describe(value: Any) -> str:
    """A value for an error message: its type, and a little of it."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
