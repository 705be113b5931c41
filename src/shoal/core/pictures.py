"""Which arrays are pictures, and where their channels are."""

from __future__ import annotations

import math

import numpy as np

LEAST = 1000  # numbers of a picture: fewer are a board or a table, which a perceptron sees well


def is_picture(shape: tuple[int, ...], dtype: np.dtype[np.generic] | type) -> bool:
    """uint8 of rank 3, a stack of such (rank 4), or a matrix that is too large for a board.

    >>> is_picture((84, 84, 3), np.uint8), is_picture((8, 8), np.uint8), is_picture((84, 84, 3), np.float32)
    (True, False, False)
    """
    return dtype == np.uint8 and (len(shape) in (3, 4) or (len(shape) == 2 and math.prod(shape) >= LEAST))


def channels_last(shape: tuple[int, ...]) -> bool:
    """Channels are the shorter of the two axes; where they are alike, the last, as Gymnasium has it.

    >>> channels_last((84, 84, 4)), channels_last((4, 84, 84)), channels_last((4, 84, 84, 3)), channels_last((84, 84))
    (True, False, True, True)
    """
    return len(shape) == 2 or shape[-1] <= shape[-3]
