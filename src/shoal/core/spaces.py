"""Spaces as plain data, so that a run folder says what its policy sees and does without any environment."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.core.checks import shown
from shoal.core.errors import Unsupported


def space_to_data(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as JSON-ready data.

    >>> space_to_data(spaces.Box(-np.inf, np.inf, (2,)))
    {'kind': 'Box', 'shape': [2], 'dtype': 'float32', 'low': '-inf', 'high': 'inf'}
    """
    if isinstance(space, spaces.Dict):
        keys, parts = [_key(key) for key in space.spaces], [space_to_data(part) for part in space.spaces.values()]
        if all(isinstance(key, str) for key in keys):
            return {"kind": "Dict", "parts": dict(zip(keys, parts, strict=True))}
        return {"kind": "Dict", "keys": keys, "parts": parts}  # JSON would make text of the keys of an object
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "parts": [space_to_data(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, spaces.Box):
        return {
            "kind": "Box",
            "shape": list(space.shape),
            "dtype": str(space.dtype),
            "low": _bound(space.low),
            "high": _bound(space.high),
        }
    raise Unsupported(f"a space of type {type(space).__name__} cannot be written down: {space}")


def space_from_data(data: dict[str, Any]) -> spaces.Space[Any]:
    """The inverse of `space_to_data`; what it did not write is refused."""
    try:
        return _from_data(data)
    except (KeyError, TypeError, AttributeError, AssertionError, OverflowError, RecursionError) as error:
        raise ValueError(f"expected a space as shoal writes it, got {shown(data)}: {type(error).__name__}") from None


def _from_data(data: dict[str, Any]) -> spaces.Space[Any]:
    kind = data["kind"]
    if kind == "Dict":
        parts = data["parts"]
        named = zip(data["keys"], parts, strict=True) if "keys" in data else parts.items()
        # Pairs keep their order; of a plain mapping Gymnasium would sort the keys, and the columns with them.
        return spaces.Dict([(key, _from_data(part)) for key, part in named])
    if kind == "Tuple":
        return spaces.Tuple([_from_data(part) for part in data["parts"]])
    if kind == "Discrete":
        return spaces.Discrete(data["n"], start=data["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(data["nvec"]), start=np.array(data["start"]))
    if kind == "MultiBinary":
        shape = data["shape"]
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)  # Gymnasium tells 2 and (2,) apart
    if kind == "Box":
        dtype, size = np.dtype(data["dtype"]), tuple(data["shape"])
        low, high = (_unbound(data[side], size, dtype) for side in ("low", "high"))
        return spaces.Box(low, high, size, dtype)
    raise ValueError(f"unknown space kind {shown(kind)}")


def _key(key: Any) -> str | int:
    """A Dict's key as JSON can hold it."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, Integral):
        return int(key)
    raise Unsupported(
        f"expected the keys of a Dict space as text or whole numbers, got {key!r} ({type(key).__name__}), which cannot "
        "be written down in a checkpoint; rename it in a wrapper"
    )


def _bound(array: np.ndarray[Any, Any]) -> Any:
    """One value where all are equal, else a nested list; infinities as text, since JSON has none."""
    flat = [str(v) if isinstance(v, float) and not np.isfinite(v) else v for v in array.ravel().tolist()]
    return flat[0] if flat and all(v == flat[0] for v in flat) else flat


def _unbound(value: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    values = [float(v) if isinstance(v, str) else v for v in (value if isinstance(value, list) else [value])]
    array = np.array(values, dtype)
    return np.full(shape, array[0], dtype) if len(values) == 1 else array.reshape(shape)


def is_numbered(space: spaces.Space[Any]) -> bool:
    """Whether its values are numbers of states, alone or several together, and no quantities.

    >>> is_numbered(spaces.Discrete(500)), is_numbered(spaces.Box(0, 1))
    (True, False)
    """
    if isinstance(space, spaces.Tuple):
        return all(is_numbered(part) for part in space.spaces)
    if isinstance(space, spaces.Dict):
        return all(is_numbered(part) for part in space.spaces.values())
    return isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
