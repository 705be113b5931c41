"""Environments that break on purpose, to try what survives them.

>>> env = FaultyEnv("nan-obs", at_step=2)
>>> _ = env.reset(seed=0)
>>> bool(np.isnan(env.step(0)[0]).any()), bool(np.isnan(env.step(0)[0]).any())
(False, True)
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

ERROR_TEXT = "broken on purpose: 100 %d {x} <b> é \u2713"  # what mangles a careless message
_FOREVER_S = 1e6


class TickEnv(gym.Env[Any, Any]):
    """A small deterministic environment: `length` steps long, terminated after odd seeds, truncated after even ones.

    The observation is (step, action, two numbers drawn from the seed) as float32, or int64 with `whole=True`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(self, length: int = 20, whole: bool = False) -> None:
        self.length, self.dtype = length, np.int64 if whole else np.float32
        low, high = (-(2**31), 2**31) if whole else (-np.inf, np.inf)
        self.observation_space = gym.spaces.Box(low, high, (4,), self.dtype)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw two numbers and start counting."""
        super().reset(seed=seed)
        self.odd = bool((self.np_random_seed or 0) % 2)
        self.drawn = self.np_random.integers(-1000, 1000, 2) / (1 if self.dtype is np.int64 else 1000)
        self.steps = 0
        return self._observe(0), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Count."""
        self.steps += 1
        last = self.steps >= self.length
        return self._observe(action), float(action), last and self.odd, last and not self.odd, {}

    def _observe(self, action: Any) -> Any:
        return np.array([self.steps, action, *self.drawn], self.dtype)


# What a kind puts in the place of a part of the step's result.
_OBSERVATIONS: dict[str, Callable[[Any], Any]] = {
    "nan-obs": lambda obs: _with(obs, np.nan),
    "inf-obs": lambda obs: _with(obs, np.inf),
    "obs-longer": lambda obs: np.append(obs, obs[:1]),
    "obs-shorter": lambda obs: obs[:-1],
    "obs-scalar": lambda obs: obs.dtype.type(0),
    "obs-none": lambda obs: None,
    "obs-ragged": lambda obs: [[1.0], [1.0, 2.0]],
    "obs-str": lambda obs: "x",
    "obs-strings": lambda obs: obs.astype(str),
    "obs-overflow": lambda obs: np.full(obs.shape, 1e300),
    "obs-floats": lambda obs: obs.astype(np.float64) + 0.5,  # where integers belong, if they do
}
_REWARDS: dict[str, Any] = {
    "nan-reward": np.nan,
    "inf-reward": np.inf,
    "reward-overflow": 1e300,
    "reward-str": "x",
    "reward-vector": np.zeros(3),
    "reward-none": None,
}
_FLAGS: dict[str, Any] = {"done-str": "x", "done-vector": np.zeros(2, bool), "done-none": None, "done-float": 0.5}
_ACTS = (
    "kill", "exit", "raise-step", "raise-reset", "raise-init", "raise-close", "sys-exit",
    "hang", "hang-ignoring-sigterm", "hang-holding-gil", "hang-reset",
    "hang-init", "hang-close", "kill-init", "kill-reset",
)  # fmt: skip
KINDS = (*_ACTS, *_OBSERVATIONS, *_REWARDS, *_FLAGS)


class FaultyEnv(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that does one wrong thing.

    `kind` is one of KINDS; `at_step` is the step, counted over the life of this object from 1, at which it
    happens (for "...-reset" the reset, counted alike). `once` is the path of a marker file: the fault happens only to
    the one that creates it, so that a rebuilt environment, in whatever process, is sound.
    """

    def __init__(
        self,
        kind: str,
        env: gym.Env[Any, Any] | None = None,
        at_step: int = 3,
        once: str | os.PathLike[str] | None = None,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"expected a kind of {', '.join(KINDS)}, got {kind!r}")
        if at_step < 1:
            raise ValueError(f"expected at_step of at least 1, got {at_step}")
        super().__init__(env if env is not None else TickEnv())
        self.kind, self.at_step, self.once = kind, at_step, once
        self.steps_taken = self.resets_done = 0
        if kind.endswith("-init"):
            self._break()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset, or break."""
        self.resets_done += 1
        if self.kind.endswith("-reset") and self.resets_done == self.at_step:
            self._break()
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        """Step, or break."""
        self.steps_taken += 1
        result = super().step(action)
        if self.steps_taken != self.at_step or self.kind.endswith(("-init", "-reset", "-close")):
            return result
        observation, reward, terminated, truncated, info = result
        if self.kind in _ACTS:
            self._break()
        elif self._may_break():
            if self.kind in _OBSERVATIONS:
                observation = _OBSERVATIONS[self.kind](observation)
            elif self.kind in _REWARDS:
                reward = _REWARDS[self.kind]
            else:
                terminated = _FLAGS[self.kind]
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Close, or break."""
        super().close()
        if self.kind.endswith("-close"):
            self._break()

    def _may_break(self) -> bool:
        if self.once is None:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return False
        return True

    def _break(self) -> None:
        if not self._may_break():
            return
        act = self.kind.partition("-")[0]
        if act == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif act == "exit":
            os._exit(7)
        elif act == "raise":
            raise ValueError(ERROR_TEXT)
        elif act == "sys":
            raise SystemExit(3)
        elif self.kind == "hang-holding-gil":
            ctypes.PyDLL(None).sleep(int(_FOREVER_S))
        elif self.kind == "hang-ignoring-sigterm":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(_FOREVER_S)


def _with(observation: Any, value: float) -> Any:
    broken = observation.copy()
    broken.flat[0] = value
    return broken
