"""What environments kept step by step, put together of all ranks, and the parts of a state by their first names."""

from __future__ import annotations

import numpy as np

from shoal.core.arrays import Array
from shoal.core.protocols import Ranks


def of_all_ranks(ranks: Ranks, steps: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """What was kept step by step, of all ranks' environments in their order: what is learned from it is the same on
    every rank, and what one process with all of them learns."""
    if ranks.size == 1:
        return steps
    own = {f"{step}.{name}": array for step, kept in enumerate(steps) for name, array in kept.items()}
    every = ranks.gather(own)
    found: list[dict[str, Array]] = []
    for step in range(1 + max((int(key.split(".")[0]) for part in every for key in part), default=-1)):
        parts = [part_of(part, f"{step}.") for part in every]
        there = [part for part in parts if part]
        found.append({name: np.concatenate([part[name] for part in there]) for name in there[0]} if there else {})
    return [kept for kept in found if kept]


def part_of(tensors: dict[str, Array], prefix: str) -> dict[str, Array]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: value for name, value in tensors.items() if name.startswith(prefix)}
