"""What crosses between worker and parent comes out as it went in."""

from __future__ import annotations

import math
import socket
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shoal.core import errors
from shoal.vector.workers.protocol import FRAME, fault_from_data, fault_to_data, pack, read_frame, send_frame, unpack

PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
ARRAYS = hnp.arrays(st.sampled_from(["i1", "u8", "f4", "f8", "?", "c8", "U3", "M8[s]"]), hnp.array_shapes(max_side=3))
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=6,
)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@settings(deadline=None)
@given(VALUES)
def test_pack_and_back(value: Any) -> None:
    """Types, shapes, keys and bits survive; nothing is dropped."""
    dropped: set[str] = set()
    left, right = socket.socketpair()
    with left, right:
        send_frame(left, {"value": pack(value, dropped)})
        assert right.recv(1) == FRAME
        assert _same(unpack(read_frame(right)["value"]), value)
    assert not dropped


@pytest.mark.parametrize("value", [object(), np.array([object()]), np.zeros(1, [("a", "i4")]), {1, 2}, [1, object()]])
def test_what_cannot_cross_is_named(value: Any) -> None:
    """Objects, sets and structured arrays are left out under their key, the rest of the dict arrives."""
    dropped: set[str] = set()
    assert unpack(pack({"odd": value, "fine": 1}, dropped)) == {"fine": 1}
    assert len(dropped) == 1
    assert dropped.pop().startswith("odd (")


def test_half_a_frame_is_a_dead_worker() -> None:
    """A frame that breaks off is an end of the connection, not data."""
    left, right = socket.socketpair()
    with right:
        left.sendall(b"\x10\x00\x00\x00abc")
        left.close()
        with pytest.raises(ConnectionResetError):
            read_frame(right)


@pytest.mark.parametrize("name", ["EnvFault", "EnvRaised", "WorkerDied", "EnvTimeout", "NotFinite", "TooManyRestarts"])
def test_faults_cross_as_text(name: str) -> None:
    """A fault keeps its type, place, traceback and aftermath, whatever characters are in it."""
    fault = getattr(errors, name)(
        "100 %d {x} é\udc80", env=1, pid=2, seed=3, step=4, kind="Odd", worker_traceback="tb %s"
    )
    fault.aftermath = "went on"
    back = fault_from_data(fault_to_data(fault))
    assert type(back) is type(fault)
    assert str(back) == str(fault)
    assert str(back).endswith(
        "[environment 1, worker pid 2, seed 3, step 4]; went on\n--- traceback of the worker ---\ntb %s"
    )
    assert back.kind == "Odd"
