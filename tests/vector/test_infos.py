"""Infos of many environments as one: Gymnasium's form, and nothing cut or broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.vector.infos import add_info

VALUES = {
    "int": st.integers(-(2**62), 2**62),
    "float": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "text": st.text(max_size=3),
    "number": st.integers(-100, 100).map(np.int16),
    "array": st.lists(st.integers(0, 9), min_size=2, max_size=2).map(np.array),
    "dict": st.integers(0, 9).map(lambda n: {"n": n}),
}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.fixed_dictionaries({}, optional=VALUES)), max_size=8))
def test_equals_gymnasium_where_values_go_together(entries: list[tuple[int, dict[str, Any]]]) -> None:
    """With one type per key the result is Gymnasium's, array by array."""
    theirs = VectorEnv()
    theirs.num_envs = 4
    expected: dict[str, Any] = {}
    got: dict[str, Any] = {}
    for index, info in entries:
        expected = theirs._add_info(expected, info, index)
        got = add_info(got, info, index, 4)
    _assert_same(got, expected)


def _assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert got.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            _assert_same(got[key], value)
        else:
            assert np.array_equal(got[key], value)
            assert got[key].dtype == value.dtype


@pytest.mark.parametrize(
    "values",
    [(1, 2.5), (1, "a"), (2**100, 1), (1, 2**100), (np.zeros(2), np.zeros(3)), (np.zeros(3), np.zeros(1)),
     (np.array(["a"]), np.array(["abc"])), (np.float32(1), 1.5), (1, True), (1, {"a": 1})],
    ids=str,
)  # fmt: skip
def test_values_that_do_not_go_together_are_kept_whole(values: tuple[Any, Any]) -> None:
    """Nothing is truncated, broadcast or refused: the column becomes one of objects."""
    merged = add_info(add_info({}, {"x": values[0]}, 0, 3), {"x": values[1]}, 2, 3)
    assert merged["x"].dtype == object
    assert merged["x"][1] is None
    assert merged["_x"].tolist() == [True, False, True]
    for index, value in zip((0, 2), values, strict=True):
        assert np.array_equal(merged["x"][index], value)


def test_a_number_where_a_dict_was() -> None:
    """Both are kept as they came, nested dicts too: what is said on the side must not end a run."""
    first = {"x": {"a": 1, "b": {"c": 2.5}}}
    merged = add_info(add_info(add_info({}, first, 0, 4), {"x": {"a": 7}}, 1, 4), {"x": "text"}, 3, 4)
    assert merged["x"].tolist() == [first["x"], {"a": 7}, None, "text"]
    assert merged["_x"].tolist() == [True, True, False, True]
