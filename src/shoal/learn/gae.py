"""Generalised advantage estimation (Schulman et al. 2016), per environment, never across."""

from __future__ import annotations

import numpy as np

from shoal.core.arrays import Array


def next_values(values: Array, terminated: Array, truncated: Array, final_values: Array) -> Array:
    """The value of the state that each transition led to, float32[T, N].

    `values` is [T + 1, N]. After a transition that terminated the episode it is 0: there is no future. After one
    that was truncated it is the value of the true final observation (`final_values` [T, N]), not of the next
    episode's first. Otherwise it is the next row.
    """
    after = np.where(truncated, final_values, values[1:])
    return np.where(terminated, np.float32(0.0), after)


def gae(rewards: Array, values: Array, after: Array, ended: Array, gamma: float, lam: float) -> tuple[Array, Array]:
    """Advantages and value targets, both float32[T, N].

    delta_t = r_t + gamma V(s_{t+1}) - V(s_t),   A_t = delta_t + gamma lambda (1 - ended_t) A_{t+1}

    `rewards`, `after` and `ended` are [T, N], `values` [T, N]; an episode's end cuts the sum.

    >>> one = np.ones((2, 1), np.float32)
    >>> A, R = gae(one, 0 * one, 0 * one, np.array([[False], [True]]), 0.5, 1.0)
    >>> A.ravel().tolist()
    [1.5, 1.0]
    """
    deltas = rewards + gamma * after - values  # [T, N]
    advantages = np.empty_like(deltas)
    running = np.zeros_like(deltas[0])
    for t in range(len(deltas) - 1, -1, -1):
        running = deltas[t] + gamma * lam * np.where(ended[t], np.float32(0.0), running)
        advantages[t] = running
    return advantages, advantages + values
