"""Elementary functions whose results have equal bits on every machine.

The C library, Numba's and CUDA's libdevice round sin and cos differently in the last bit, and one bit grows
into another trajectory. These use only +, - and * on float64, which IEEE 754 fixes exactly (fused
multiply-add is off on the CPU, and switched off for CUDA in `kernels`). Division and math.sqrt are exact
everywhere and need no stand-in.

Taylor polynomials on [-pi/4, pi/4]: the first term left out is below 1e-18, so the error is rounding, about
one unit in the last place. Larger arguments are reduced by multiples of pi/2 held in three parts of 33, 33
and 53 bits (Cody & Waite 1980), exact while |x| < 1e6; beyond, the result is NaN, which the vector
environment reports.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_QUARTER_PI = 0.7853981633974483
_TWO_OVER_PI = 0.6366197723675814
_LIMIT = 1e6
_HALF_PI_1 = 1.5707963267341256  # the first 33 bits of pi/2: times an integer below 2**20, exact
_HALF_PI_2 = 6.077100506303966e-11  # the next 33
_HALF_PI_3 = 2.0222662487959506e-21  # the rest

_S3, _S5, _S7, _S9 = -1 / 6, 1 / 120, -1 / 5040, 1 / 362880
_S11, _S13, _S15, _S17 = -1 / 39916800, 1 / 6227020800, -1 / 1307674368000, 1 / 355687428096000
_C2, _C4, _C6, _C8 = -1 / 2, 1 / 24, -1 / 720, 1 / 40320
_C10, _C12, _C14, _C16 = -1 / 3628800, 1 / 479001600, -1 / 87178291200, 1 / 20922789888000


def _sin_near_zero(x: Any) -> Any:
    """sin(x) for |x| <= pi/4. Pairs of terms, not one chain: half the wait for the processor."""
    z = x * x
    w = z * z
    even = _S3 + w * (_S7 + w * (_S11 + w * _S15))
    odd = _S5 + w * (_S9 + w * (_S13 + w * _S17))
    return x + x * z * (even + z * odd)


def _cos_near_zero(x: Any) -> Any:
    """cos(x) for |x| <= pi/4."""
    z = x * x
    w = z * z
    even = _C4 + w * (_C8 + w * (_C12 + w * _C16))
    odd = _C6 + w * (_C10 + w * _C14)
    return 1.0 + (_C2 * z + w * (even + z * odd))


def _quadrant(x: Any) -> Any:
    """(k mod 4, x - k pi/2) with k the nearest integer to x / (pi/2)."""
    turns = x * _TWO_OVER_PI
    k = np.int64(turns + 0.5) if turns >= 0.0 else np.int64(turns - 0.5)
    return k & 3, ((x - k * _HALF_PI_1) - k * _HALF_PI_2) - k * _HALF_PI_3


def sin(x: Any) -> Any:
    """The sine of x radians.

    >>> sin(0.5) == 0.479425538604203
    True
    """
    if -_QUARTER_PI <= x <= _QUARTER_PI:
        return _sin_near_zero(x)
    if not -_LIMIT < x < _LIMIT:
        return np.nan
    k, r = _quadrant(x)
    value = _sin_near_zero(r) if k & 1 == 0 else _cos_near_zero(r)
    return value if k < 2 else -value


def cos(x: Any) -> Any:
    """The cosine of x radians.

    >>> cos(0.0)
    1.0
    """
    if -_QUARTER_PI <= x <= _QUARTER_PI:
        return _cos_near_zero(x)
    if not -_LIMIT < x < _LIMIT:
        return np.nan
    k, r = _quadrant(x)
    value = _cos_near_zero(r) if k & 1 == 0 else _sin_near_zero(r)
    return value if k == 0 or k == 3 else -value
