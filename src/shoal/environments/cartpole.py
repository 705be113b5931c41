"""CartPole as a compiled environment: `shoal/CartPole-v1`.

The dynamics of Gymnasium's CartPole-v1 (Barto, Sutton & Anderson 1983; Euler steps), equal to it step for
step from equal states up to the last bits of sin and cos. Its random numbers are shoal's, so seeds mean
other episodes.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np

from shoal.compiled.portable import cos, sin
from shoal.compiled.random import uniform
from shoal.compiled.vector import CompiledEnv

GRAVITY = 9.8  # m/s^2
CART_MASS, POLE_MASS = 1.0, 0.1  # kg
TOTAL_MASS = POLE_MASS + CART_MASS
HALF_LENGTH = 0.5  # m, half the pole
POLE_MASS_LENGTH = POLE_MASS * HALF_LENGTH
FORCE = 10.0  # N
STEP_S = 0.02
MAX_X = 2.4  # m
MAX_ANGLE = 12 * 2 * math.pi / 360  # rad

_HIGH = np.array([2 * MAX_X, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)  # float32[4]


class CartPole(CompiledEnv):
    """Push a cart left (0) or right (1) so that the pole on it stays up; reward 1 a step."""

    state = np.dtype([("x", "f8"), ("x_dot", "f8"), ("angle", "f8"), ("angle_dot", "f8")])
    observation_space = gym.spaces.Box(-_HIGH, _HIGH, dtype=np.float32)
    action_space = gym.spaces.Discrete(2)
    max_episode_steps = 500

    @staticmethod
    def reset(state: Any, rng: Any) -> None:
        state.x = 0.1 * uniform(rng) - 0.05
        state.x_dot = 0.1 * uniform(rng) - 0.05
        state.angle = 0.1 * uniform(rng) - 0.05
        state.angle_dot = 0.1 * uniform(rng) - 0.05

    @staticmethod
    def step(state: Any, rng: Any, action: Any) -> Any:
        force = FORCE if action == 1 else -FORCE
        cosine, sine = cos(state.angle), sin(state.angle)
        push = (force + POLE_MASS_LENGTH * (state.angle_dot * state.angle_dot) * sine) / TOTAL_MASS
        angle_acceleration = (GRAVITY * sine - cosine * push) / (
            HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * (cosine * cosine) / TOTAL_MASS)
        )
        acceleration = push - POLE_MASS_LENGTH * angle_acceleration * cosine / TOTAL_MASS
        state.x += STEP_S * state.x_dot
        state.x_dot += STEP_S * acceleration
        state.angle += STEP_S * state.angle_dot
        state.angle_dot += STEP_S * angle_acceleration
        upright = -MAX_X <= state.x <= MAX_X and -MAX_ANGLE <= state.angle <= MAX_ANGLE
        return 1.0, not upright

    @staticmethod
    def observe(state: Any, out: Any) -> None:
        out[0], out[1], out[2], out[3] = state.x, state.x_dot, state.angle, state.angle_dot
