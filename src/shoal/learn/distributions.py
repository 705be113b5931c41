"""What a policy may do: the distribution over actions for each kind of action space.

A network gives *parameters* `[B, P]` (logits; or means and log standard deviations). Sampling takes noise drawn
beforehand, a whole rollout at a time, so that acting costs one addition and one argmax. Log-probabilities
are computed from the parameters that acted, mask included, so the probability ratio of the first
minibatch is 1 up to rounding (3e-7): a few environments act by NumPy (`lean.py`), and the update asks torch. What acts
follows from the number of rows, so every backend acts alike; with `--slices double` half the rows may act by the other
way, and the run is another one, to the bit, than in lockstep.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from shoal.core.errors import Unsupported

_DRAWN_AT_ONCE = 1 << 15
FORBIDDEN = -1e9  # a logit whose probability is exactly 0 in float32; -inf would make 0 * log 0 a NaN


class ActionKind(Protocol):
    """A family of distributions over one action space."""

    num_params: int  # P
    num_noise: int  # random numbers per action
    num_masks: int  # length of an action mask, 0 where masks make no sense
    choices: list[int]  # lengths of the parts of a mask, each of which needs a legal entry

    def noise(self, shape: tuple[int, ...], generator: torch.Generator, own: slice | None = None) -> Tensor:
        """Noise `[*shape, num_noise]` for `sample`; `own`: of these entries of the second axis alone."""

    def mask(self, params: Tensor, mask: Tensor) -> Tensor:
        """Parameters with forbidden actions at probability 0."""

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        """Actions `[B, *]` as the rollout stores them."""

    def mode(self, params: Tensor) -> Tensor:
        """The most probable action."""

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        """Log-probability of each action, `[B]`."""

    def entropy(self, params: Tensor) -> Tensor:
        """Entropy of each distribution, `[B]`."""

    def to_env(self, actions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Stored actions as the environment wants them."""


class Choices:
    """Discrete actions, by logits. Sampled by the Gumbel trick: argmax(logits + Gumbel noise) ~ softmax(logits)."""

    num_noise: int

    def noise(self, shape: tuple[int, ...], generator: torch.Generator, own: slice | None = None) -> Tensor:
        return gumbel((*shape, self.num_noise), generator, own)

    def mask(self, params: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, params, FORBIDDEN)


class Categorical(Choices):
    """Discrete(n): one choice."""

    def __init__(self, n: int, start: int = 0, dtype: Any = np.int64) -> None:
        self.num_params = self.num_noise = self.num_masks = n
        self.choices, self.start, self.dtype = [n], start, np.dtype(dtype)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        return (params + noise).argmax(-1)

    def mode(self, params: Tensor) -> Tensor:
        return params.argmax(-1)

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        return log_softmax(params).gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self, params: Tensor) -> Tensor:
        log_p = log_softmax(params)
        return -(log_p.exp() * log_p).sum(-1)

    def to_env(self, actions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        actions = actions + self.start if self.start else actions
        return actions.astype(self.dtype, copy=False)


class MultiCategorical(Choices):
    """MultiDiscrete(nvec): several independent choices, their logits side by side."""

    def __init__(self, nvec: list[int], dtype: Any = np.int64) -> None:
        self.nvec = self.choices = nvec
        self.dtype = np.dtype(dtype)
        self.num_params = self.num_noise = self.num_masks = sum(nvec)

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        return self.mode(params + noise)

    def mode(self, params: Tensor) -> Tensor:
        return torch.stack([part.argmax(-1) for part in _split(params, self.nvec)], -1)

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        parts = _split(params, self.nvec)
        chosen = [log_softmax(p).gather(-1, actions[..., i : i + 1]) for i, p in enumerate(parts)]
        return torch.cat(chosen, -1).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        total = torch.zeros(params.shape[:-1], device=params.device)
        for part in _split(params, self.nvec):
            log_p = log_softmax(part)
            total = total - (log_p.exp() * log_p).sum(-1)
        return total

    def to_env(self, actions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return actions.astype(self.dtype, copy=False)


class Gaussian:
    """Box: a diagonal Gaussian. Where the bounds are finite the policy works in [-1, 1] and its actions are
    clipped and stretched to the bounds on the way to the environment; the stored action stays unclipped."""

    num_masks = 0

    def __init__(self, space: spaces.Box) -> None:
        self.shape = space.shape
        self.size = int(np.prod(space.shape))
        self.num_params, self.num_noise, self.choices = 2 * self.size, self.size, list[int]()
        with np.errstate(over="ignore"):  # a range of the type's largest numbers is no range to stretch to
            self.bounded = bool(np.isfinite(space.high - space.low).all())
        self.low, self.high, self.dtype = space.low, space.high, space.dtype

    def noise(self, shape: tuple[int, ...], generator: torch.Generator, own: slice | None = None) -> Tensor:
        noise = torch.randn((*shape, self.num_noise), generator=generator)
        return noise if own is None else noise[:, own]

    def mask(self, params: Tensor, mask: Tensor) -> Tensor:
        raise Unsupported("an action mask makes sense for Discrete and MultiDiscrete actions only, the space is a Box")

    def sample(self, params: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor) -> Tensor:
        return params.chunk(2, -1)[0]

    def log_prob(self, params: Tensor, actions: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        scaled = (actions - mean) * (-log_std).exp()
        return (-0.5 * scaled.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        return (params.chunk(2, -1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def to_env(self, actions: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        actions = actions.reshape(-1, *self.shape)
        if self.bounded:
            actions = self.low + (np.clip(actions, -1.0, 1.0) + 1.0) * (0.5 * (self.high - self.low))
        # Stretching may round to just above the bound, which an environment may refuse.
        inside: np.ndarray[Any, Any] = np.clip(actions, self.low, self.high).astype(self.dtype)
        return inside


def log_softmax(logits: Tensor) -> Tensor:
    """The logarithm of softmax over the last axis. That of a tall matrix lies column by column in memory."""
    if is_tall(logits.shape):
        return torch.log_softmax(logits.t().contiguous(), 0).t()
    return torch.log_softmax(logits, -1)


def is_tall(shape: torch.Size | tuple[int, ...]) -> bool:
    """Whether so few columns of so many rows are faster computed column by column."""
    return len(shape) == 2 and shape[0] >= 512 and shape[1] <= 8


def _split(params: Tensor, sizes: list[int]) -> tuple[Tensor, ...]:
    return tuple(torch.split(params, sizes, -1))


def gumbel(shape: tuple[int, ...], generator: torch.Generator, own: slice | None = None) -> Tensor:
    """Standard Gumbel noise: minus the logarithm of exponential noise. Of `own` entries of the second axis alone, the
    generator goes on as if all were drawn: what a rank of several leaves to the others costs it no logarithm.

    The exponential numbers are those of torch's `exponential_`, from the same 53 bits each, in half its time.
    """
    kept = torch.empty(shape if own is None else (shape[0], len(range(shape[1])[own]), *shape[2:]))
    at_once = max(_DRAWN_AT_ONCE // max(math.prod(shape[1:]), 1), 1)  # within the cache
    for first in range(0, shape[0], at_once):
        target = kept[first : first + at_once]
        bits = torch.empty((len(target), *shape[1:]), dtype=torch.int64).random_(generator=generator)
        bits = bits if own is None else bits[:, own]
        target.copy_(bits.bitwise_and(2**53 - 1).double().mul_(-(2.0**-53)).log1p_().neg_())
        target.clamp_(min=1e-30).log_().neg_()  # an exponential draw can be exactly 0; the noise stays finite
    return kept


def action_kind(space: spaces.Space[Any]) -> ActionKind:
    """The distribution family for an action space."""
    if isinstance(space, spaces.Discrete):
        return Categorical(int(space.n), int(space.start), space.dtype)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any():
        return MultiCategorical([int(n) for n in space.nvec], space.dtype)
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiCategorical([2] * int(space.shape[0]), space.dtype)
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space)
    raise Unsupported(
        f"PPO here acts in Discrete, one-dimensional MultiDiscrete or MultiBinary, and float Box spaces; got {space}. "
        "Wrap the environment to change its action space."
    )
