"""Running means and variances, for observations and rewards. Saved with the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.arrays import Array
from shoal.runs.manifest import CheckpointError

NO_SPREAD = 1e-20  # of the mean square: what rounding leaves of equal numbers, whatever their unit


class RunningMoments:
    """Mean and variance of everything seen (Chan et al. 1979, parallel update).

    Columns whose variance is given in `fixed` (float64[*shape], NaN elsewhere) stay as they are: mean 0 and that
    variance, or what a saved state has there.
    """

    def __init__(self, shape: tuple[int, ...] = (), fixed: Array | None = None) -> None:
        self.count = 0.0
        self.mean = np.zeros(shape, np.float64)
        self.fixed = np.zeros(shape, np.bool_) if fixed is None else np.isfinite(fixed)
        self.var = np.ones(shape, np.float64) if fixed is None else np.where(self.fixed, fixed, 1.0)
        self.pooled = _alone

    def __getstate__(self) -> dict[str, Any]:
        """A copy belongs to nobody's team."""
        return {**self.__dict__, "pooled": _alone}

    def update(self, batch: Array) -> None:
        """Take in a batch `[B, *shape]`, and those of the other ranks."""
        mean, var, count = self.mean, self.var, float(len(batch))
        if count:
            mean, var = batch.mean(0, np.float64), batch.var(0, np.float64)
        count, mean, var = self.pooled(count, mean, var)
        if count == 0:
            return
        total = self.count + count
        mean, var = np.where(self.fixed, self.mean, mean), np.where(self.fixed, self.var, var)
        delta = mean - self.mean
        self.var = (self.var * self.count + var * count + delta**2 * self.count * count / total) / total
        self.mean = self.mean + delta * count / total
        self.count = total

    @property
    def scale(self) -> Array:
        """1 / standard deviation, float64, guarded against a spread of zero."""
        scale: Array = 1.0 / np.sqrt(self.var + 1e-8)
        return scale

    def state(self) -> dict[str, Array]:
        return {"count": np.array(self.count), "mean": self.mean.copy(), "var": self.var.copy()}

    def set_state(self, state: dict[str, Array]) -> None:
        shapes = {"count": (), "mean": self.mean.shape, "var": self.var.shape}
        for name, shape in shapes.items():
            value = state.get(name)
            if value is None or value.shape != shape or value.dtype != np.float64:
                got = "nothing" if value is None else f"{value.dtype}{list(value.shape)}"
                raise CheckpointError(f"the saved statistics: expected {name} as float64{list(shape)}, got {got}")
            if not np.isfinite(value).all() or (name != "mean" and (value < 0).any()):
                raise CheckpointError(f"the saved statistics hold a {name} that cannot be: use an older checkpoint")
        self.count = float(state["count"])
        self.mean, self.var = state["mean"].copy(), state["var"].copy()


def _alone(count: float, mean: Array, var: Array) -> tuple[float, Array, Array]:
    """What one process has is all that there is."""
    return count, mean, var


class RewardScale:
    """Scales rewards by the standard deviation of the discounted return, per environment (Engstrom et al. 2020)."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.moments = RunningMoments()
        self.returns = np.zeros(num_envs, np.float64)  # running discounted return of each environment
        self.gamma = gamma

    def scale(self, rewards: Array, ended: Array, valid: Array) -> Array:
        """Rewards [T, N] scaled, float32; the statistics take in this rollout first."""
        seen = np.empty(rewards.shape, np.float64)
        for t in range(len(rewards)):
            self.returns = self.returns * self.gamma + rewards[t]
            seen[t] = self.returns
            self.returns[ended[t]] = 0.0
        self.moments.update(seen[valid])
        mean, var = self.moments.mean, self.moments.var
        if not var > NO_SPREAD * (var + mean**2):  # one sample, or one return always: no spread to divide by
            return rewards.astype(np.float32)
        scaled: Array = (rewards / np.sqrt(var)).astype(np.float32)
        return scaled

    def state(self) -> dict[str, Array]:
        return {**self.moments.state(), "returns": self.returns.copy()}

    def set_state(self, state: dict[str, Array], same_envs: bool = True) -> None:
        self.moments.set_state(state)
        if same_envs:
            self.returns = state["returns"].copy()

    def forget(self, envs: Array) -> None:
        """These environments began anew: their unfinished returns are void."""
        self.returns[envs] = 0.0
