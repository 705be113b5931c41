"""A small grid world as a compiled environment: `shoal/GridWorld-v0`.

Walk from a random cell to a random goal around walls. It shows what CartPole does not: a Dict observation
with an action mask, a constant table, helper functions, and an option read at run time (`slip`).
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from shoal.compiled.random import below, chance
from shoal.compiled.vector import CompiledEnv

_MAP = (
    "........",
    ".##..##.",
    ".#....#.",
    "....#...",
    "...#....",
    ".#....#.",
    ".##..##.",
    "........",
)
SIZE = len(_MAP)
WALL = np.array([[cell == "#" for cell in line] for line in _MAP])  # bool[8, 8]
FREE = np.argwhere(~WALL)  # int64[cells, 2]: the rows and columns one can stand on
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left

STEP_REWARD, GOAL_REWARD = -0.01, 1.0


def is_free(row: Any, column: Any) -> Any:
    """Whether one can stand on this cell; off the map one cannot."""
    return 0 <= row < SIZE and 0 <= column < SIZE and not WALL[row, column]


def may_move(state: Any, action: Any) -> Any:
    """Whether a move leads to a free cell."""
    return is_free(state.row + MOVES[action][0], state.column + MOVES[action][1])


class GridWorld(CompiledEnv):
    """Reach the goal: -0.01 a step, +1 at the goal; with probability `slip` a move goes in a random
    direction.

    The observation is (row, column, goal row, goal column) over 7; the mask forbids walking into walls. A
    forbidden move, chosen or slipped into, leaves one where one is.
    """

    state = np.dtype([("row", "i8"), ("column", "i8"), ("goal_row", "i8"), ("goal_column", "i8")])
    params = np.dtype([("slip", "f8")])
    observation_space = gym.spaces.Dict(
        {"obs": gym.spaces.Box(0.0, 1.0, (4,), np.float32), "action_mask": gym.spaces.MultiBinary(4)}
    )
    action_space = gym.spaces.Discrete(4)
    max_episode_steps = 100

    def __init__(self, slip: float = 0.0) -> None:
        if not 0.0 <= slip <= 1.0:
            raise ValueError(f"slip: expected a probability, got {slip}")
        super().__init__(slip=slip)

    @staticmethod
    def reset(state: Any, rng: Any, params: Any) -> None:
        start = below(rng, FREE.shape[0])
        goal = below(rng, FREE.shape[0] - 1)
        goal += goal >= start  # any cell but the start
        state.row, state.column = FREE[start, 0], FREE[start, 1]
        state.goal_row, state.goal_column = FREE[goal, 0], FREE[goal, 1]

    @staticmethod
    def step(state: Any, rng: Any, action: Any, params: Any) -> Any:
        if chance(rng, params.slip):
            action = below(rng, 4)
        if may_move(state, action):
            state.row += MOVES[action][0]
            state.column += MOVES[action][1]
        there = state.row == state.goal_row and state.column == state.goal_column
        return STEP_REWARD + (GOAL_REWARD if there else 0.0), there

    @staticmethod
    def observe(state: Any, out: Any, mask: Any, params: Any) -> None:
        out[0], out[1] = state.row / (SIZE - 1), state.column / (SIZE - 1)
        out[2], out[3] = state.goal_row / (SIZE - 1), state.goal_column / (SIZE - 1)
        for action in range(4):
            mask[action] = may_move(state, action)
