"""The infos of a step in which episodes ended, in Gymnasium's form, built only if somebody reads them."""

from __future__ import annotations

from typing import Any

import numpy as np


class FinalInfos(dict[str, Any]):
    """{"final_obs": object[N], "_final_obs": bool[N], "final_info": {}, "_final_info": bool[N]}.

    An object array of rows costs more than stepping 64 environments, and a trainer that reads the dense
    `CompiledVectorEnv.final_obs` never looks at it. The arrays belong to one step, so reading late is safe.
    """

    __slots__ = ("_pending",)

    def __init__(self, final_obs: Any, terminated: np.ndarray, truncated: np.ndarray) -> None:
        self._pending: tuple[Any, np.ndarray, np.ndarray] | None = (final_obs, terminated, truncated)

    def _fill(self) -> None:
        if self._pending is None:
            return
        (final_obs, terminated, truncated), self._pending = self._pending, None
        ended = terminated | truncated  # bool[N]
        rows = np.full(ended.size, None, object)  # object[N]
        for i in np.flatnonzero(ended):
            rows[i] = (
                {name: array[i].copy() for name, array in final_obs.items()}
                if isinstance(final_obs, dict)
                else final_obs[i].copy()
            )
        for name, value in (("final_obs", rows), ("final_info", {})):
            dict.setdefault(self, name, value)
            dict.setdefault(self, f"_{name}", ended.copy())

    def __missing__(self, key: str) -> Any:
        if self._pending is None:
            raise KeyError(key)
        self._fill()
        return self[key]


def _filled(name: str) -> Any:
    method = getattr(dict, name)

    def call(self: FinalInfos, *arguments: Any, **named: Any) -> Any:
        self._fill()
        return method(self, *arguments, **named)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = method.__doc__
    return call


for _name in (
    "__contains__", "__delitem__", "__eq__", "__iter__", "__len__", "__ne__", "__or__", "__repr__",
    "__reversed__", "clear", "copy", "get", "items", "keys", "pop", "popitem", "setdefault", "values",
):  # fmt: skip
    setattr(FinalInfos, _name, _filled(_name))
