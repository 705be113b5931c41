"""The grid world: masks, walls, goals, slipping."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from shoal.compiled.vector import CompiledVectorEnv
from shoal.environments.gridworld import FREE, MOVES, SIZE, WALL, GridWorld, is_free
from shoal.tasks.registration import register

N = 64


@pytest.fixture
def envs():
    """64 grid worlds, reset."""
    envs = CompiledVectorEnv(GridWorld, num_envs=N)
    envs.reset(seed=0)
    return envs


def test_every_cell_can_be_reached():
    """The free cells are one piece, so every goal can be reached."""
    seen, border = {tuple(FREE[0])}, [tuple(FREE[0])]
    while border:
        row, column = border.pop()
        for down, right in MOVES:
            cell = (row + down, column + right)
            if is_free(*cell) and cell not in seen:
                seen.add(cell)
                border.append(cell)
    assert len(seen) == len(FREE) == SIZE * SIZE - WALL.sum()


@pytest.mark.parametrize(
    ("cell", "mask"),
    [((0, 0), [0, 1, 1, 0]), ((7, 7), [1, 0, 0, 1]), ((1, 3), [1, 1, 1, 0]), ((3, 3), [1, 0, 0, 1])],
)
def test_masks_by_hand(envs, cell, mask):
    """Corners, beside a wall, between two walls: up, right, down, left."""
    envs.state["row"], envs.state["column"] = cell
    envs.state["goal_row"], envs.state["goal_column"] = (0, 7) if cell != (0, 7) else (7, 0)
    forbidden = mask.index(0)
    obs, rewards, terminated, _, _ = envs.step(np.full(N, forbidden))  # stays where it is
    assert obs["action_mask"].dtype == np.int8
    assert (obs["action_mask"] == mask).all()
    assert (obs["obs"][:, :2] == np.array(cell, np.float32) / np.float32(7)).all()
    assert not terminated.any()
    assert np.allclose(rewards, -0.01)


def test_a_walk_to_the_goal(envs):
    """Two steps right: -0.01, then 0.99 and terminated, with the goal in the final observation."""
    envs.state["row"], envs.state["column"], envs.state["goal_row"], envs.state["goal_column"] = 0, 0, 0, 2
    _, rewards, terminated, truncated, infos = envs.step(np.ones(N, int))
    assert not terminated.any()
    assert infos == {}
    _, rewards, terminated, truncated, infos = envs.step(np.ones(N, int))
    assert terminated.all()
    assert not truncated.any()
    assert np.allclose(rewards, 0.99)
    assert np.allclose(infos["final_obs"][5]["obs"], [0, 2 / 7, 0, 2 / 7])
    assert infos["final_obs"][5]["action_mask"].tolist() == [0, 1, 0, 1]  # a wall below


def test_masked_random_walks():
    """Under the mask one always moves, never into a wall; starts differ from goals; 100 steps truncate."""
    envs = CompiledVectorEnv(GridWorld, num_envs=N)
    obs, _ = envs.reset(seed=2)
    random = np.random.default_rng(0)
    ends = np.zeros(2, int)
    for _ in range(300):
        before = envs.state[["row", "column"]].copy()
        actions = (random.random((N, 4)) * obs["action_mask"]).argmax(1)
        obs, _, terminated, truncated, _ = envs.step(actions)
        state = envs.state
        assert not WALL[state["row"], state["column"]].any()
        assert ((state["row"] != state["goal_row"]) | (state["column"] != state["goal_column"])).all()
        going = ~(terminated | truncated)
        assert (state[["row", "column"]] != before)[going].all()
        ends += terminated.sum(), truncated.sum()
    assert ends.min() > 10


def test_slip():
    """With slip 1 the chosen direction does not matter; the option compiles nothing anew."""
    sure, slippery = (CompiledVectorEnv(GridWorld(slip=slip), num_envs=2000) for slip in (0.0, 1.0))
    assert sure.kernels is slippery.kernels
    shares = []
    for envs in (sure, slippery):
        envs.reset(seed=0)
        envs.state["row"], envs.state["column"] = 3, 1
        envs.state["goal_row"], envs.state["goal_column"] = 0, 7
        envs.step(np.ones(2000, int))
        shares.append((envs.state["column"] == 2).mean())
    assert shares[0] == 1.0
    assert abs(shares[1] - 0.25) < 0.05


def test_bad_options():
    """A slip that is no probability, a param that does not exist."""
    with pytest.raises(ValueError, match="slip: expected a probability, got 2"):
        GridWorld(slip=2.0)
    with pytest.raises(TypeError):
        GridWorld(slop=0.1)


def test_ids():
    """gym.make and gym.make_vec with an option."""
    register()
    check_env(gym.make("shoal/GridWorld-v0").unwrapped, skip_render_check=True)
    envs = gym.make_vec("shoal/GridWorld-v0", num_envs=4, slip=0.5)
    obs, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(obs)
    assert envs.unwrapped.env.param_values == {"slip": 0.5}
