"""Observations as the network sees them, and masks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from shoal.learn.encoders import Features, check_masks


def encode(space, *observations) -> list[list[float]]:
    features = Features(space)
    rows = features.layout.allocate(len(observations))
    for index, observation in enumerate(observations):
        features.layout.write(observation, rows, index)
    encoded = features.encode([torch.from_numpy(row) for row in rows])
    assert encoded.dtype == torch.float32
    assert encoded.shape == (len(observations), features.size)
    return encoded.tolist()


def test_discrete_is_one_hot_from_its_start() -> None:
    """Discrete(3, start=5): 5 is the first column."""
    assert encode(spaces.Discrete(3, start=5), 5, 7) == [[1, 0, 0], [0, 0, 1]]


def test_multi_discrete_is_one_hot_per_part() -> None:
    """[2, 3] takes five columns."""
    encoded = encode(spaces.MultiDiscrete([2, 3]), np.array([1, 0]), np.array([0, 2]))
    assert encoded == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]


def test_bytes_are_scaled_to_one() -> None:
    """An image of bytes becomes numbers from 0 to 1, flat."""
    image = np.array([[[0], [51]], [[255], [102]]], np.uint8)
    assert encode(spaces.Box(0, 255, (2, 2, 1), np.uint8), image)[0] == pytest.approx([0, 0.2, 1, 0.4])


def test_small_bytes_stay_as_they_are() -> None:
    """A byte with a bound of 3 is a number, not a pixel."""
    assert encode(spaces.Box(0, 3, (2,), np.uint8), np.array([3, 1], np.uint8)) == [[3, 1]]


def test_a_number_without_a_shape_is_one_column() -> None:
    """Box(shape=()) alone and inside a Dict."""
    assert encode(spaces.Box(-9, 9, ()), np.float32(2.5), np.float32(-1)) == [[2.5], [-1.0]]
    space = spaces.Dict(a=spaces.Box(-9, 9, ()), b=spaces.MultiBinary(2))
    assert encode(space, {"a": np.float32(2.5), "b": np.array([0, 1], np.int8)}) == [[2.5, 0, 1]]


def test_the_mask_is_not_seen() -> None:
    """A Dict's parts stand side by side in the order of the space, without action_mask."""
    space = spaces.Dict(z=spaces.Box(-1, 1, (2,)), action_mask=spaces.MultiBinary(3), k=spaces.Discrete(2))
    row = {"z": np.array([0.5, -0.5], np.float32), "action_mask": np.array([1, 0, 1], np.int8), "k": 1}
    assert encode(space, row) == [[0.5, -0.5, 0.0, 1.0]]
    features = Features(space)
    rows = features.layout.allocate(1)
    features.layout.write(row, rows, 0)
    assert features.masks([torch.from_numpy(leaf) for leaf in rows]).tolist() == [[True, False, True]]


def test_no_mask_without_the_key() -> None:
    """A plain observation has no mask."""
    assert Features(spaces.Box(-1, 1, (2,))).masks([torch.zeros(1, 2)]) is None


def test_an_observation_of_nothing_but_a_mask_is_refused() -> None:
    """There would be nothing to learn from."""
    with pytest.raises(TypeError, match="something to see"):
        Features(spaces.Dict(action_mask=spaces.MultiBinary(3)))


def test_no_rows_encode_to_no_rows() -> None:
    """A rollout whose truncated episodes all terminated too has no final observation to value."""
    space = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(0, 255, (2, 2), np.uint8))
    features = Features(space)
    assert features.encode([torch.from_numpy(row) for row in features.layout.allocate(0)]).shape == (0, 7)


def test_a_row_without_a_legal_action_names_its_environment() -> None:
    """By its index in the whole batch, not in its slice (FAULTS row 21)."""
    mask = np.array([[1, 0], [0, 1], [0, 0]], np.int8)
    check_masks(mask[:2], [2], first=4)
    with pytest.raises(ValueError, match=r"environment 6 allows no action at all: every entry of its action_mask"):
        check_masks(mask, [2], first=4)


def test_each_part_of_a_multi_discrete_mask_needs_a_legal_entry() -> None:
    """Legal entries for one part do not make up for none in another."""
    check_masks(np.array([[1, 0, 0, 0, 1]]), [2, 3])
    with pytest.raises(ValueError, match=r"environment 0 .* part 1 of the action"):
        check_masks(np.array([[1, 1, 0, 0, 0]]), [2, 3])


def test_a_final_observation_may_allow_nothing() -> None:
    """Nobody acts in a final state; the other rows are checked all the same."""
    check_masks(np.zeros((1, 2)), [2], final=np.array([True]))
    with pytest.raises(ValueError, match="environment 1"):
        check_masks(np.zeros((2, 2)), [2], final=np.array([True, False]))


def test_many_components_stand_side_by_side() -> None:
    """Starts and lengths of every component, a two-dimensional MultiDiscrete included."""
    space = spaces.Dict(
        a=spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [-1, 5]]), b=spaces.Discrete(3, start=-1)
    )
    row = {"a": np.array([[1, 3], [-1, 6]]), "b": 1}
    assert encode(space, row) == [[0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 1]]


def test_a_choice_out_of_range_is_named() -> None:
    """With its row and the values there are; it does not fall into its neighbour's columns."""
    features = Features(spaces.MultiDiscrete([2, 3]))
    with pytest.raises(ValueError, match=r"expected the observation in 0 to 1, got 2 in row 1"):
        features.encode([torch.tensor([[1, 2], [2, 0]])])


def test_parts_come_back_by_name() -> None:
    """What `encode` made of each part, in its shape, as views; the mask is none of them."""
    space = spaces.Dict(
        z=spaces.Box(-1, 1, (2, 3)), action_mask=spaces.MultiBinary(3), k=spaces.Discrete(2),
        more=spaces.Dict(x=spaces.Box(-9, 9, ())),
    )  # fmt: skip
    features = Features(space)
    rows = features.layout.allocate(4)
    for index in range(4):
        features.layout.write(space.sample(), rows, index)
    leaves = [torch.from_numpy(leaf) for leaf in rows]
    encoded = features.encode(leaves)
    named = features.layout.named(encoded)
    assert {name: tuple(part.shape) for name, part in named.items()} == {"k": (4, 2), "more/x": (4, 1), "z": (4, 2, 3)}
    by_path = {path: leaf for (path, _, _), leaf in zip(features.layout.leaves, leaves, strict=True)}
    assert torch.equal(named["z"], by_path["z",])
    assert torch.equal(named["k"].argmax(1), by_path["k",])
    named["z"].zero_()
    assert torch.equal(features.layout.named(encoded)["z"], torch.zeros(4, 2, 3))
