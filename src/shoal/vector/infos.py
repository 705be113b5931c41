"""Infos of many environments as one, in Gymnasium's form: infos[key][i] where infos["_key"][i].

Like `VectorEnv._add_info`, except that values which do not go together (an integer here and a fraction there, arrays
of unequal shapes, a number beyond 64 bits) become an object array instead of being cut, broadcast or refused: what an
environment says on the side must not end a run, nor change on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.core.arrays import Array, Layout

Numbers = dict[str, tuple[Array, Array]]  # by name: bool[k] where, float64[k] what
_NO_NUMBERS = ("final_obs", "final_info")
_DTYPES = {kind: np.dtype(kind) for kind in (bool, int, float)}


def add_info(merged: dict[str, Any], info: dict[str, Any], index: int, num_envs: int) -> dict[str, Any]:
    """Add the info of environment `index` to `merged`.

    >>> infos = add_info({}, {"fuel": 3}, 1, num_envs=2)
    >>> infos["fuel"].tolist(), infos["_fuel"].tolist()
    ([0, 3], [False, True])
    """
    for key, value in info.items():
        old, mask = merged.get(key), merged.get(f"_{key}")
        if mask is None:
            mask = merged[f"_{key}"] = np.zeros(num_envs, np.bool_)
        if isinstance(value, dict) and (old is None or isinstance(old, dict)):
            merged[key] = add_info(old or {}, value, index, num_envs)
        else:
            if isinstance(old, dict):  # here a dict, there none
                old = _dicts(old, mask)
            array = _fresh(value, num_envs) if old is None else old
            if not _fits(value, array):
                array = _as_objects(array, mask)
            array[index] = value
            merged[key] = array
        mask[index] = True
    return merged


def merge_infos(infos: Sequence[tuple[int, dict[str, Any], dict[str, Any] | None]], num_envs: int) -> dict[str, Any]:
    """One step's infos: of each environment that has any its number, its info, and that of an episode that ended."""
    merged: dict[str, Any] = {}
    for index, info, final_info in infos:
        add_info(merged, info, index, num_envs)
        if final_info is not None:
            add_info(merged, {"final_info": final_info}, index, num_envs)
    return merged


def each_info(merged: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """The inverse: the infos of each environment alone.

    >>> each_info(add_info({}, {"fuel": 3}, 1, num_envs=2), 2)
    [{}, {'fuel': np.int64(3)}]
    """
    if not len(merged):
        return [{} for _ in range(num_envs)]
    return list(_dicts(dict(merged.items()), np.ones(num_envs, np.bool_)))


def final_infos(
    layout: Layout, observations: Sequence[Array], rows: slice, ended: Array, final_info: dict[str, Any]
) -> dict[str, Any]:
    """Final observations (per leaf [N, *shape]) as Gymnasium's infos have them: an array of objects, and where it is
    filled. `ended` is bool[n], of the environments `rows`."""
    num_envs = len(observations[0])
    final, mask = np.full(num_envs, None, object), np.zeros(num_envs, np.bool_)
    mask[rows] = ended
    leaves = [array[mask] for array in observations]
    for place, index in enumerate(np.flatnonzero(mask).tolist()):
        final[index] = layout.assemble([leaf[place] for leaf in leaves])
    return {"final_obs": final, "_final_obs": mask, "final_info": final_info, "_final_info": mask.copy()}


def last_numbers(infos: Any, rows: Array, *, of_step: bool) -> Numbers:
    """The numbers in the last infos of the environments `rows` (int64[k]), whose episodes have just ended: by name,
    where (bool[k]) and what (float64[k]). `of_step`: the infos of the step are theirs, else those in `final_info` are.
    A number within a dict is called `outer.inner`. What is no number (text, an array, None) is there as NaN.

    >>> infos = add_info({}, {"final_info": {"won": True, "by": {"points": 3}}}, 1, num_envs=2)
    >>> {name: values.tolist() for name, (_, values) in last_numbers(infos, np.array([1]), of_step=False).items()}
    {'won': [1.0], 'by.points': [3.0]}
    """
    if not of_step:
        infos = infos.get("final_info") if isinstance(infos, dict) else infos
    if isinstance(infos, list | tuple) or (isinstance(infos, np.ndarray) and infos.dtype == object):
        merged: dict[str, Any] = {}  # one dict for each environment, as older vector environments have it
        for place, row in enumerate(rows.tolist()):
            if isinstance(info := infos[row], dict):
                add_info(merged, info.get("final_info", info) if not of_step else info, place, len(rows))
        infos, rows = merged, np.arange(len(rows))
    found: Numbers = {}
    if isinstance(infos, dict):
        _gather(infos, rows, "", found)
    return found


def _gather(infos: dict[str, Any], rows: Array, prefix: str, found: Numbers) -> None:
    for name, values in infos.items():
        if not isinstance(name, str) or (name.startswith("_") and name[1:] in infos) or name in _NO_NUMBERS:
            continue
        mask = infos.get(f"_{name}")
        if isinstance(values, dict):
            _gather(values, rows, f"{prefix}{name}.", found)
        elif isinstance(values, np.ndarray) and values.ndim and len(values) > rows.max():
            there = np.ones(len(rows), np.bool_) if mask is None else np.asarray(mask, np.bool_)[rows]
            picked = values[rows]
            if picked.dtype.kind not in "biuf" or picked.ndim > 1:
                picked = np.array([number_of(value) for value in picked], np.float64)
            found[prefix + name] = there, picked.astype(np.float64)


def number_of(value: Any) -> float:
    """A number as float; NaN of what is none."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if not isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        return float("nan")
    try:
        return float(value)
    except OverflowError:
        return float("nan")


def _fresh(value: Any, num_envs: int) -> Array:
    if type(value) in _DTYPES or isinstance(value, np.number):
        return np.zeros(num_envs, type(value))
    if isinstance(value, np.ndarray):
        return np.zeros((num_envs, *value.shape), value.dtype)
    return np.full(num_envs, None, object)


def _dicts(merged: dict[str, Any], mask: Array) -> Array:
    """Merged dicts as those of each environment again."""
    objects = np.full(len(mask), None, object)
    for index in np.flatnonzero(mask):
        objects[index] = {
            key: _dicts(value, merged[f"_{key}"])[index] if isinstance(value, dict) else value[index]
            for key, value in merged.items()
            if f"_{key}" in merged and merged[f"_{key}"][index]
        }
    return objects


def _fits(value: Any, array: Array) -> bool:
    """Whether the value can be stored in a row of the array without any change."""
    if array.dtype == object:
        return True
    if isinstance(value, np.ndarray | np.number):
        return value.dtype == array.dtype and value.shape == array.shape[1:]
    return array.ndim == 1 and _DTYPES.get(type(value)) == array.dtype and (
        type(value) is not int or -(2**63) <= value < 2**63
    )  # fmt: skip


def _as_objects(array: Array, mask: Array) -> Array:
    objects = np.full(len(array), None, object)
    for index in np.flatnonzero(mask):
        objects[index] = array[index]
    return objects
