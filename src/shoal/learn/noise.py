"""How noisy the policy's gradient is, in environments: how many are worth having now.

The unit is an environment, never a transition: the steps of one environment tell of each other. Let g be what one
environment adds to the policy's gradient, with mean G and covariance C. The mean over N environments has a squared
error of tr(C) / N, so at tr(C) / |G|^2 environments, the noise scale, noise and signal are alike (McCandlish et al.
2018, "An empirical model of large-batch training", with environments in place of samples). Far below it, twice the
environments halve the noise; far above, they add little.

Both parts are estimated from groups of environments, before the update has moved the policy. For the gradients of two
groups of b environments, g1 . g2 has mean |G|^2, and b |g1 - g2|^2 / 2 has mean tr(C).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.core.arrays import Array

GROUPS = 4
MOST_ENVS = 256  # of a look; of more environments, each look takes others
SHARE = 0.03  # of an update's work, on average: rows seen by the policy, and calls
CALLS = 0.5  # of a gradient step's fixed costs: what one group's gradient takes
_PART = 1 << 16  # numbers of a gradient
MEMORY = 0.9  # of a look at the next one: about the last 10 count


class NoiseMeter:
    """Looks at the batch of every so many updates. It draws no random numbers and leaves no trace in the network."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self._seen = min(num_envs, MOST_ENVS)
        self._groups = min(num_envs, GROUPS)
        self._sums = np.zeros(2)  # of variance and signal; looks of long ago hardly count
        self._looks = self._since = 0  # since: updates

    def due(self, passes: int, gradient_steps: int) -> bool:
        """Whether to look at this update, of so many passes of the policy over its data."""
        self._since += 1
        rows = self._seen / self.num_envs / (SHARE * passes)
        calls = self._groups * CALLS / (SHARE * gradient_steps)
        return self._groups >= 2 and (self._looks == 0 or self._since >= max(rows, calls))

    def look(self, environments: Tensor, gradient: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Figures of a batch. Row i is of `environments[i]`; `gradient(rows)` is the mean gradient of these rows."""
        size = self._seen // self._groups
        first = self._looks * size * self._groups  # environments take turns
        turns = (first + np.arange(size * self._groups)) % self.num_envs
        group_of = np.full(self.num_envs, -1)
        group_of[turns] = np.arange(len(turns)) % self._groups
        self._looks, self._since = self._looks + 1, 0
        found, row_of = [], group_of[environments.cpu().numpy()]
        expected = size * len(row_of) / self.num_envs  # rows of a group
        for group in range(self._groups):
            rows = np.flatnonzero(row_of == group)
            if len(rows) > 0:
                found.append(gradient(torch.from_numpy(rows)).cpu().float() * (len(rows) / expected))
        if len(found) < 2:
            return {}
        if len(found) < self._groups:  # nothing was learned from some: they add nothing
            found += [torch.zeros_like(found[0])] * (self._groups - len(found))
        parts = parts_of(products_of(found), size)
        if not np.isfinite(parts).all():
            return {}
        self._sums = MEMORY * self._sums + parts
        return {"noise/variance": float(parts[0]), "noise/signal": float(parts[1])}

    def scale(self) -> dict[str, float]:
        """The noise scale over the last looks; none where no signal was seen above the noise."""
        variance, signal = self._sums
        return {"noise/scale": float(variance / signal)} if variance > 0 and signal > 0 else {}

    def state(self) -> dict[str, Array]:
        """All that a resumed run needs to go on with the same figures."""
        return {"sums": self._sums.copy(), "counts": np.array([self._looks, self._since], np.int64)}

    def set_state(self, state: dict[str, Array]) -> None:
        """The inverse of `state`; older checkpoints have none."""
        if state:
            self._sums = state["sums"].copy()
            self._looks, self._since = (int(count) for count in state["counts"])


def products_of(gradients: Sequence[Tensor]) -> Array:
    """float64[K, K]: inner products of K gradients, a part at a time: in float64 all of them may be 100 MB."""
    products = torch.zeros((len(gradients), len(gradients)), dtype=torch.float64)
    for parts in zip(*(torch.split(one, _PART) for one in gradients), strict=True):
        stacked = torch.stack(parts).double()
        products += stacked @ stacked.t()
    return products.numpy()


def parts_of(products: Array, size: int) -> Array:
    """(tr(C), |G|^2) of one environment, without bias, from the inner products of the gradients of K groups of `size`.

    >>> parts_of(np.array([[5.0, 3.0], [3.0, 5.0]]), 10).tolist()
    [20.0, 3.0]
    """
    count = len(products)
    own, whole = float(np.trace(products)), float(products.sum())
    return np.array([size * (own - whole / count) / (count - 1), (whole - own) / (count * (count - 1))])
