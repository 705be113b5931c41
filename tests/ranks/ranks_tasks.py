"""Trainings that one process and two ranks do alike: a name, a task and its options."""

from __future__ import annotations

from typing import Any

_SHORT: dict[str, Any] = {"epochs": 10, "seed": 3, "save_interval": 50, "hidden": (16, 16)}
TRAININGS: dict[str, tuple[str, dict[str, Any]]] = {
    "cartpole": ("CartPole-v1", _SHORT | {"num_envs": 8, "rollout_steps": 64, "backend": "serial", "save_interval": 2,
                                               "lr_schedule": "constant", "entropy_schedule": "constant"}),
    "cage2": ("cage2", _SHORT | {"num_envs": 8, "rollout_steps": 32, "target_kl": 0.02}),
    "continuous": (
        "Pendulum-v1",
        _SHORT | {"num_envs": 4, "rollout_steps": 50, "backend": "serial", "normalise_observations": True,
                  "normalise_rewards": True, "minibatch_size": 50},
    ),
}  # fmt: skip
