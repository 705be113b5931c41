"""A compiled grid world whose reward depends on the order of visits: the second domain of `shoal search`.

30 x 30 cells with a region in each corner. An episode ends when all four regions have been visited, or after 500 steps.
Every pair of visits pays when it comes in the order of a hidden best one and costs when it does not, so the world's own
reward falls with Kendall's distance from that order. A policy is told an order to keep to; how well it does is counted
beside the reward.
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np

from shoal.compiled.random import below, chance
from shoal.compiled.vector import CompiledEnv

SIZE = 30
REGION = 4  # cells along a side of a region
REGIONS = ("north-west", "north-east", "south-west", "south-east")
CORNERS = ((0, 0), (0, SIZE - REGION), (SIZE - REGION, 0), (SIZE - REGION, SIZE - REGION))  # first row and column
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left
ORDERS = tuple(itertools.permutations(range(4)))

STEP_REWARD, VISIT_REWARD, PAIR_REWARD = -0.01, 1.0, 1.0
NUM_FEATURES = 2 + 4 + 4 + 6 + 2  # place, visited, next, pairs of the order, visits in and out of order


def region_at(row: Any, column: Any) -> Any:
    """The region of a cell, or -1."""
    for region in range(4):
        if (
            CORNERS[region][0] <= row < CORNERS[region][0] + REGION
            and CORNERS[region][1] <= column < CORNERS[region][1] + REGION
        ):
            return region
    return -1


# int64[30, 30]: the region of each cell, or -1.
_REGION_OF = np.array([[region_at(row, column) for column in range(SIZE)] for row in range(SIZE)])


def distance_to(region: Any, row: Any, column: Any) -> Any:
    """Moves from a cell to the nearest cell of a region."""
    top, left = CORNERS[region][0], CORNERS[region][1]
    down = max(top - row, 0, row - (top + REGION - 1))
    across = max(left - column, 0, column - (left + REGION - 1))
    return down + across


def next_region(visited: Any, rank: Any) -> Any:
    """The region not visited yet that comes first in an order; -1 when all have been."""
    best, place = -1, 4
    for region in range(4):
        if visited >> region & 1 == 0 and rank[region] < place:
            best, place = region, rank[region]
    return best


class Visiting(CompiledEnv):
    """Visit the four corner regions; `order` is the one to keep to, `hidden` the one that pays best.

    -0.01 a step, +1 for each region, and for each pair of visits +1 if `hidden` has them in that order, else -1: at
    best 10 minus the way. With probability `slip` a move goes in a random direction. `align` is a training aid, 0 in
    evaluation: that much for each visit in the order given, minus that much for one out of order, and a fiftieth of it
    for each step towards the next region of the order.

    The observation: place, the regions visited, the next one of the order, the order as 6 pairwise bits, and the visits
    so far in and out of order, over 4.
    """

    state = np.dtype([("row", "i8"), ("column", "i8"), ("visited", "i8"), ("compliant", "i8"), ("violations", "i8")])
    params = np.dtype([("rank", "i8", (4,)), ("hidden", "i8", (4,)), ("slip", "f8"), ("align", "f8")])
    observation_space = gym.spaces.Box(0.0, 1.0, (NUM_FEATURES,), np.float32)
    action_space = gym.spaces.Discrete(4)
    max_episode_steps = 500

    def __init__(self, order: int = 0, hidden: int = 0, slip: float = 0.05, align: float = 0.0) -> None:
        for name, number in (("order", order), ("hidden", hidden)):
            if not 0 <= number < len(ORDERS):
                raise ValueError(f"{name}: expected a number from 0 to {len(ORDERS) - 1}, got {number}")
        if not 0.0 <= slip <= 1.0:
            raise ValueError(f"slip: expected a probability, got {slip}")
        super().__init__(rank=ranks_of(order), hidden=ranks_of(hidden), slip=slip, align=align)

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        inner = SIZE - 2 * REGION  # begin where no region is
        state.row, state.column = REGION + below(rng, inner), REGION + below(rng, inner)

    @staticmethod
    def step(state: Any, rng: Any, action: Any, params: Any) -> Any:
        goal = next_region(state.visited, params.rank)
        before = distance_to(goal, state.row, state.column)
        if chance(rng, params.slip):
            action = below(rng, 4)
        state.row = min(max(state.row + MOVES[action][0], 0), SIZE - 1)
        state.column = min(max(state.column + MOVES[action][1], 0), SIZE - 1)
        reward = STEP_REWARD + params.align / 50.0 * (before - distance_to(goal, state.row, state.column))
        region = region_at(state.row, state.column)
        if region >= 0 and state.visited >> region & 1 == 0:
            reward += VISIT_REWARD
            for other in range(4):
                if state.visited >> other & 1:
                    reward += PAIR_REWARD if params.hidden[other] < params.hidden[region] else -PAIR_REWARD
            if region == goal:
                state.compliant += 1
                reward += params.align
            else:
                state.violations += 1
                reward -= params.align
            state.visited |= 1 << region
        return reward, state.visited == 15

    @staticmethod
    def observe(state: Any, out: Any, params: Any) -> None:
        out[0], out[1] = state.row / (SIZE - 1), state.column / (SIZE - 1)
        goal = next_region(state.visited, params.rank)
        pair = 10
        for region in range(4):
            out[2 + region] = state.visited >> region & 1
            out[6 + region] = goal == region
            for other in range(region + 1, 4):
                out[pair] = params.rank[region] < params.rank[other]
                pair += 1
        out[16], out[17] = state.compliant / 4, state.violations / 4


def ranks_of(order: int) -> np.ndarray:
    """int64[4]: the place of each region in an order."""
    return np.argsort(np.array(ORDERS[order]))


def name_of(order: int) -> str:
    """An order in words.

    >>> name_of(0)
    'north-west, north-east, south-west, south-east'
    """
    return ", ".join(REGIONS[region] for region in ORDERS[order])


def conduct(final_observations: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visits in order, out of order, and regions visited, each int64[episode], from episodes' last observations."""
    counts = np.rint(4 * final_observations[:, 16:18]).astype(np.int64)
    return counts[:, 0], counts[:, 1], counts.sum(1)


def follow(observations: np.ndarray) -> np.ndarray:
    """A scripted follower: the shortest way to the next region of its order, around the others; int64[N].

    Regions lie in corners and an episode starts in the middle, so going straight for the next region leads through
    another one only along an edge: there it first moves inwards.
    """
    place = np.rint(observations[:, :2] * (SIZE - 1)).astype(np.int64)
    goal = np.array(CORNERS)[observations[:, 6:10].argmax(1)]  # first cell
    away = np.clip(place, goal, goal + REGION - 1) - place  # what is left to go, down and across
    # A region that is neither visited nor next is a wall: leave and enter its side of the grid through the middle.
    middle = np.where(place < REGION, 1, np.where(place >= SIZE - REGION, -1, 0))  # the way inwards
    action = np.where(np.abs(away[:, 0]) >= np.abs(away[:, 1]), *_towards(away))
    corner_ahead = _would_trespass(place, action, observations)
    inwards = np.where(np.isin(action, (1, 3)), np.where(middle[:, 0] > 0, 2, 0), np.where(middle[:, 1] > 0, 1, 3))
    return np.where(corner_ahead, inwards, action)


def _towards(away: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.where(away[:, 0] > 0, 2, 0), np.where(away[:, 1] > 0, 1, 3)


def _would_trespass(place: np.ndarray, action: np.ndarray, observations: np.ndarray) -> np.ndarray:
    after = np.clip(place + np.array(MOVES)[action], 0, SIZE - 1)
    barred = (observations[:, 2:6] == 0) & (observations[:, 6:10] == 0)  # neither visited nor next: bool[N, 4]
    regions = _REGION_OF[after[:, 0], after[:, 1]]
    return np.asarray((regions >= 0) & barred[np.arange(len(after)), np.maximum(regions, 0)])
