"""sin and cos in plain arithmetic, against the C library's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.compiled.portable import cos, sin

ANGLES = st.floats(-1e5, 1e5) | st.floats(-1.0, 1.0)


@given(ANGLES)
def test_sin_and_cos_are_the_c_librarys(x):
    """Within two units in the last place of 1, and of the value itself near zero."""
    for ours, theirs in ((sin(x), math.sin(x)), (cos(x), math.cos(x))):
        assert abs(ours - theirs) <= 2 * math.ulp(theirs) + 1e-22


@given(ANGLES)
def test_symmetry(x):
    """sin is odd and cos is even, to the bit."""
    assert sin(-x) == -sin(x)
    assert cos(-x) == cos(x)


@pytest.mark.parametrize("k", range(-9, 10))
def test_multiples_of_a_quarter_turn(k):
    """Around every border between quadrants."""
    for x in (k * math.pi / 4, math.nextafter(k * math.pi / 4, 100), math.nextafter(k * math.pi / 4, -100)):
        assert sin(x) == pytest.approx(math.sin(x), rel=4e-16, abs=1e-22)
        assert cos(x) == pytest.approx(math.cos(x), rel=4e-16, abs=1e-22)


@pytest.mark.parametrize("x", [1e6, -1e7, math.inf, math.nan])
def test_out_of_reach_is_nan(x):
    """Rather than a wrong number."""
    assert math.isnan(sin(x))
    assert math.isnan(cos(x))
