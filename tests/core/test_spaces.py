"""Spaces as plain data: whatever order and kind their keys have, they come back as they were."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from shoal.core.arrays import Layout
from shoal.core.errors import Unsupported
from shoal.core.spaces import space_from_data, space_to_data

ONE, TWO = spaces.Box(-1, 1, (1,)), spaces.Box(0, 5, (2,))
SPACES: list[spaces.Space[Any]] = [
    spaces.Dict(velocity=ONE, goal=TWO),
    spaces.Dict(OrderedDict([("b", ONE), ("a", spaces.Dict([("z", TWO), ("y", ONE)]))])),
    spaces.Dict([("obs", TWO), ("action_mask", spaces.MultiBinary(2))]),
    spaces.Dict([(1, ONE), (0, TWO)]),  # type: ignore[list-item]
    spaces.Dict([(np.int64(3), ONE), ("x", TWO)]),  # type: ignore[list-item]
    spaces.Tuple([spaces.Dict(b=ONE, a=ONE), spaces.Discrete(3, start=-1)]),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_space_comes_back_in_its_own_order(space: spaces.Space[Any]) -> None:
    """Through JSON: equal, with its keys of their kind and its leaves where they were (C1)."""
    again = space_from_data(json.loads(json.dumps(space_to_data(space))))
    assert again == space
    assert Layout(again).leaves == Layout(space).leaves


def test_another_order_is_other_data() -> None:
    """What a resume compares: equal parts in another order are not the same observations."""
    one, other = (space_to_data(spaces.Dict([(key, ONE) for key in keys])) for keys in ("ab", "ba"))
    assert json.dumps(one) != json.dumps(other)


def test_a_key_that_json_cannot_hold_is_refused() -> None:
    """A tuple as a key would come back as something else."""
    with pytest.raises(Unsupported, match=r"text or whole numbers, got \(1, 2\) \(tuple\)"):
        space_to_data(spaces.Dict([((1, 2), ONE)]))  # type: ignore[list-item]
