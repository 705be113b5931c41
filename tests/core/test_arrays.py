"""What may be written into the arrays of a batch, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shoal.core.arrays import Layout, all_finite, check_flag, check_info, check_scalar, conform
from shoal.core.errors import DtypeError, NotFinite, OutOfRange, ShapeError

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def _leaf() -> st.SearchStrategy[spaces.Space[Any]]:
    return st.one_of(
        st.builds(lambda n: spaces.Discrete(n), st.integers(1, 9)),
        st.builds(lambda n: spaces.MultiBinary(n), st.integers(1, 4)),
        st.builds(lambda n: spaces.MultiDiscrete(n), st.lists(st.integers(1, 5), min_size=1, max_size=3)),
        st.builds(
            lambda shape, dtype: spaces.Box(0, 9, shape, dtype),
            st.sampled_from([(), (2,), (2, 3)]),
            st.sampled_from(["f4", "u1", "i8"]),
        ),
    )


SPACES = st.recursive(
    _leaf(),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=5,
)


@settings(max_examples=40, deadline=None)
@given(SPACES)
def test_any_sample_is_stored_and_read_back(space: spaces.Space[Any]) -> None:
    """A sample of any space survives being taken apart, stored in a row and put together again."""
    layout, sample = Layout(space), space.sample()
    rows = layout.allocate(3)
    layout.write(sample, rows, 1)
    back = layout.assemble([array[1] for array in rows])
    for part, original in zip(layout.take_apart(back), layout.take_apart(sample), strict=True):
        assert np.array_equal(part, original)
    assert all(not array[[0, 2]].any() for array in rows)  # neighbours untouched


def test_a_dtype_that_travelled_is_numpys_own() -> None:
    """A space that was pickled has another dtype object; a chunk asks for the object, which is faster than asking for
    equality."""
    travelled = pickle.loads(pickle.dumps(BOX))
    assert travelled.dtype is not np.dtype(np.float32)
    assert Layout(travelled).leaves[0][2] is np.dtype(np.float32)


def test_row_bytes_by_hand() -> None:
    """A Dict of float32[2] and int8[3] takes 11 bytes."""
    assert Layout(spaces.Dict({"a": BOX, "b": spaces.MultiBinary(3)})).row_bytes == 11


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (np.zeros(3, np.float32), ShapeError, r"shape \(2,\), got shape \(3,\)"),
        (np.zeros(1, np.float32), ShapeError, "nothing is broadcast"),
        (np.float32(1), ShapeError, r"got shape \(\)"),
        ([[1.0], [1.0, 2.0]], ShapeError, "inhomogeneous"),
        (None, DtypeError, "got NoneType None"),
        ("12", DtypeError, "got str '12'"),
        (np.array(["1", "2"]), DtypeError, "cast it"),
        (np.array([None, 1.0]), DtypeError, "object"),
        (np.array([1j, 2j]), DtypeError, "complex"),
        (np.full(2, 1e300), DtypeError, "overflows float32"),
        ([10**400, 0], DtypeError, "object"),
    ],
)
def test_refused_for_a_float_box(value: Any, error: type[Exception], message: str) -> None:
    """Wrong shapes are never broadcast, strings never parsed, overflow never made infinite."""
    layout = Layout(BOX)
    rows = layout.allocate(1)
    with pytest.raises(error, match=message):
        layout.write(value, rows, 0)
    assert not rows[0].any()


@pytest.mark.parametrize(
    "value", [[1, 0], (True, False), np.array([1, 0]), np.array([1.0, 0.0]), np.array([1, 0], np.uint8)]
)
def test_widened_for_a_float_box(value: Any) -> None:
    """Bools, integers and float64 that fit become float32."""
    layout = Layout(BOX)
    rows = layout.allocate(1)
    layout.write(value, rows, 0)
    assert rows[0].tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize(("value", "fits"), [(255, True), (0, True), (256, False), (-1, False), (2**70, False)])
def test_whole_numbers_are_checked_by_value(value: int, fits: bool) -> None:
    """An int64 that fits uint8 is stored; one that does not is refused, not wrapped."""
    if fits:
        assert conform([value], "x", (1,), np.dtype(np.uint8)).tolist() == [value]
    else:
        with pytest.raises(DtypeError):
            conform([value], "x", (1,), np.dtype(np.uint8))


def test_float_is_no_integer() -> None:
    """A float is refused where an integer belongs, even a whole one."""
    with pytest.raises(DtypeError, match="float64 -> int64"):
        conform(np.array([1.0]), "x", (1,), np.dtype(np.int64))


def test_what_is_right_is_not_printed() -> None:
    """Words for an error take longer than a policy: 5 ms for a batch of observations."""

    class Silent(np.ndarray):
        def __repr__(self) -> str:
            raise AssertionError("printed")

    assert conform(np.zeros(3).view(Silent), "x", (3,), np.dtype(np.float32)).tolist() == [0, 0, 0]


def test_missing_part_is_named() -> None:
    """A Dict observation without one of its parts says which."""
    layout = Layout(spaces.Dict({"a": BOX, "b": BOX}))
    with pytest.raises(ShapeError, match="the observation part b"):
        layout.write({"a": np.zeros(2, np.float32)}, layout.allocate(1), 0)


def test_unsupported_space_is_named() -> None:
    """A space that is no array says what to do."""
    with pytest.raises(TypeError, match=r"Text at the observation part t .*wrap the environment"):
        Layout(spaces.Dict({"t": spaces.Text(3)}))


@given(hnp.arrays(np.float32, (3, 2), elements=st.floats(width=32)))
@settings(max_examples=200, deadline=None)
def test_all_finite_equals_numpy(array: Any) -> None:
    """The fast check agrees with the plain one on every float32, extremes included."""
    assert all_finite(array) == bool(np.isfinite(array).all())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_that_is_not_finite_passes(dtype: Any, value: float) -> None:
    """Whatever the width; the largest numbers of the narrow types do pass."""
    array = np.full((3, 2), np.finfo(dtype).max if dtype is not np.float64 else 1e38, dtype)
    assert all_finite(array)
    array[1, 1] = value
    assert not all_finite(array)


@pytest.mark.parametrize("value", [1e39, -1e39, 1.7e308])
def test_what_float32_cannot_hold_is_refused(value: float) -> None:
    """A learner would make infinity of it: the row and its part are in the error (m4)."""
    layout = Layout(spaces.Box(-np.inf, np.inf, (2,), np.float64))
    rows = layout.allocate(3)
    rows[0][:] = 3e38
    layout.check_finite(rows, "now,")
    rows[0][1, 0] = value
    with pytest.raises(NotFinite, match="now, the observation is not finite as float32") as caught:
        layout.check_finite(rows, "now,")
    assert caught.value.row == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Discrete(3), [0, 2], 3),
        (spaces.Discrete(3, start=-1), [-1, 1], 2),
        (spaces.Discrete(3, start=5), [5, 7], 4),
        (spaces.Discrete(255, start=1, dtype=np.uint8), [1, 255], None),
        (spaces.MultiDiscrete([2, 5]), [[0, 4], [1, 0]], [2, 0]),
        (spaces.MultiDiscrete([2, 5], start=[3, 0]), [[3, 4], [4, 0]], [2, 0]),
    ],
    ids=str,
)
def test_a_choice_out_of_range_is_refused(space: Any, good: list[Any], bad: Any) -> None:
    """The row, the part and the range are in the error (m22)."""
    layout = Layout(spaces.Dict({"c": space}))
    rows = layout.allocate(2)
    rows[0][:] = good
    layout.check_finite(rows, "in step,")
    if bad is None:
        return
    rows[0][1] = bad
    with pytest.raises(OutOfRange, match="in step, the observation part c is none of its space: expected") as caught:
        layout.check_finite(rows, "in step,")
    assert caught.value.row == 1  # type: ignore[attr-defined]


def test_check_finite_names_the_row() -> None:
    """The first bad row and its part are in the error."""
    layout = Layout(spaces.Dict({"a": BOX, "n": spaces.Discrete(3)}))
    rows = layout.allocate(4)
    layout.check_finite(rows, "now,")
    rows[0][2, 1] = np.inf
    with pytest.raises(NotFinite, match="now, the observation part a is not finite") as caught:
        layout.check_finite(rows, "now,")
    assert caught.value.row == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [1, True, np.float32(1), np.int8(1), np.bool_(True), np.array(1.0)])
def test_numbers_are_rewards(value: Any) -> None:
    """Anything that is one number is a reward."""
    reward = check_scalar(value, "r")
    assert type(reward) is float
    assert reward == 1.0


@pytest.mark.parametrize("value", ["x", None, [1.0], np.zeros(1), np.array("1"), 1j, 10**400])
def test_others_are_not(value: Any) -> None:
    """Nothing else is."""
    with pytest.raises((DtypeError, ShapeError), match=r"expected r|r overflows"):
        check_scalar(value, "r")


@pytest.mark.parametrize("value", [None, "True", 2, 0.0, np.zeros(1, bool), [True]])
def test_bad_flags(value: Any) -> None:
    """A flag is True or False (or 0 or 1), nothing that merely looks so."""
    with pytest.raises(DtypeError, match="as True or False"):
        check_flag(value, "terminated")


@pytest.mark.parametrize("value", [True, 1, np.True_, np.array(True)])
def test_good_flags(value: Any) -> None:
    """NumPy's bools and 1 count as True."""
    assert check_flag(value, "terminated") is True


def test_info_must_be_a_mapping() -> None:
    """A list where the info belongs is refused."""
    assert check_info({"a": 1}) == {"a": 1}
    with pytest.raises(DtypeError, match="info as a dict"):
        check_info([1])
