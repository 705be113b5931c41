"""What a search of settings may choose, and what options a choice means. The task's own settings are one of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from shoal.config import TrainConfig

ENVS, STEPS, BATCHES, EPOCHS = (8, 16, 32, 64, 128), (16, 32, 64, 128, 256), (1, 2, 4, 8, 16), (2, 4, 6, 8, 10)
HIDDEN = ("32,32", "64,64", "128,128", "256,256")
MOST_ROWS = 16_384  # of a rollout: a larger one is cut to fewer steps


class Suggests(Protocol):
    """The part of an Optuna trial that a space needs."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number of a range."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """One of several."""


class Space:
    """Around the settings of a task: each range holds the task's own value."""

    def __init__(self, base: TrainConfig) -> None:
        ppo, self.base = base.ppo, base
        envs = base.vector.num_envs if isinstance(base.vector.num_envs, int) else 8
        minibatch = ppo.minibatch_size if isinstance(ppo.minibatch_size, int) else envs * ppo.rollout_steps // 4
        epochs = ppo.update_epochs if isinstance(ppo.update_epochs, int) else 4
        rate = ppo.learning_rate if isinstance(ppo.learning_rate, float) else 1e-3
        entropy = ppo.entropy_coef if isinstance(ppo.entropy_coef, float) else 0.01
        self._minibatch = minibatch  # it need not divide the rows of a rollout
        self.own: dict[str, Any] = {
            "num_envs": envs,
            "rollout_steps": ppo.rollout_steps,
            "minibatches": max(1, envs * ppo.rollout_steps // minibatch),
            "update_epochs": epochs,
            "hidden": ",".join(map(str, ppo.hidden)),
            "learning_rate": rate,
            "short_sight": 1.0 - ppo.gamma,
            "gae_lambda": ppo.gae_lambda,
            "clip": ppo.clip,
            "entropy_coef": max(entropy, 1e-5),
        }

    def choose(self, trial: Suggests) -> dict[str, Any]:
        """Options of a training, by name."""
        own, found = self.own, {}
        for name, values in (("num_envs", ENVS), ("rollout_steps", STEPS), ("minibatches", BATCHES),
                             ("update_epochs", EPOCHS), ("hidden", HIDDEN)):  # fmt: skip
            found[name] = trial.suggest_categorical(name, [*values, *([] if own[name] in values else [own[name]])])
        for name, low, high in (
            ("learning_rate", 1e-4, 1e-2),
            ("short_sight", 1e-3, 0.1),
            ("entropy_coef", 1e-5, 0.03),
        ):
            found[name] = trial.suggest_float(name, min(low, own[name]), max(high, own[name]), log=True)
        for name, low, high in (("gae_lambda", 0.8, 1.0), ("clip", 0.1, 0.4)):
            found[name] = trial.suggest_float(name, min(low, own[name]), max(high, own[name]))
        return self.options(found)

    def options(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """The options that a choice means; the task's own settings, unrounded, where it is theirs."""
        envs, steps = int(found["num_envs"]), int(found["rollout_steps"])
        if (envs, steps) != (self.own["num_envs"], self.own["rollout_steps"]):
            steps = max(1, min(steps, MOST_ROWS // envs))
        rows = envs * steps
        batches = math.gcd(int(found["minibatches"]), rows)
        same = all(found[name] == self.own[name] for name in ("num_envs", "rollout_steps", "minibatches"))
        return {
            "num_envs": envs,
            "rollout_steps": steps,
            "minibatch_size": self._minibatch if same else rows // batches,
            "update_epochs": int(found["update_epochs"]),
            "hidden": tuple(int(width) for width in str(found["hidden"]).split(",")),
            "learning_rate": self._rounded(found, "learning_rate"),
            "gamma": self.base.ppo.gamma if self._is_own(found, "short_sight") else _two(1 - found["short_sight"], 4),
            "gae_lambda": self._rounded(found, "gae_lambda"),
            "clip": self._rounded(found, "clip"),
            **({} if self._is_own(found, "entropy_coef") else {"entropy_coef": self._rounded(found, "entropy_coef")}),
        }

    def _is_own(self, found: Mapping[str, Any], name: str) -> bool:
        return bool(math.isclose(found[name], self.own[name], rel_tol=1e-9))

    def _rounded(self, found: Mapping[str, Any], name: str) -> float:
        return float(found[name]) if self._is_own(found, name) else float(f"{found[name]:.3g}")


def _two(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def flags(options: Mapping[str, Any]) -> str:
    """As they are typed.

    >>> flags({"num_envs": 8, "hidden": (64, 64)})
    '--num-envs 8 --hidden 64 64'
    """
    words = []
    for name, value in options.items():
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words.append(f"--{name.replace('_', '-')} {shown}")
    return " ".join(words)
