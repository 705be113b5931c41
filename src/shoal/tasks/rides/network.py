"""The policy and value networks that suit this task: a set encoder and one head shared by the 16 offers.

The policy's logits are `start score / temperature + learned residual + bias`. The residual begins at 0, so that the first
policy is exactly the one that training starts from; the bias is the soft mask, part of the observation, so that the
update replays the behaviour policy as it acted.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from shoal.tasks.rides.observe import ACCEPTED, CONTEXT, MINUTES, OFFER_COLUMN, OFFERS
from shoal.tasks.rides.routing.problem import NUM_OFFERS
from shoal.vector.layout import Layout


class RidesNetwork(nn.Module):
    """Separate policy and value networks over the parts of an observation, taken from one flat row of features."""

    def __init__(self, space: spaces.Dict, *, width: int, start: str, temperature: float) -> None:
        super().__init__()
        self.slices, at = {}, 0
        for path, shape, _ in Layout(space).leaves:
            if path[0] != "action_mask":
                size = math.prod(shape)
                self.slices[path[0]] = (at, at + size, shape)
                at += size
        self.start_column = OFFER_COLUMN.get(start)
        # In minutes of expected net gain; learned, so that training may sharpen or soften what it started from.
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(MINUTES / temperature)))
        self.policy_set, self.value_set = _SetEncoder(width), _SetEncoder(width)
        self.policy_context = nn.Sequential(nn.Linear(2 * width + len(CONTEXT), width), nn.ReLU())
        self.policy_offer = nn.Sequential(nn.Linear(len(OFFERS) + width, width), nn.ReLU(), nn.Linear(width, 1))
        self.value_body = nn.Sequential(
            nn.Linear(2 * width + len(CONTEXT) + 2 * len(OFFERS), width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1),
        )  # fmt: skip
        last = self.policy_offer[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def policy(self, features: Tensor) -> Tensor:
        """Logits `[B, 16]`, soft mask included."""
        offers, bias = self._part(features, "offers"), self._part(features, "bias")
        seen = torch.cat([self.policy_set(self._part(features, "accepted")), self._part(features, "context")], 1)
        context = self.policy_context(seen)
        rows = torch.cat([offers, context[:, None].expand(-1, NUM_OFFERS, -1)], 2)
        logits: Tensor = self.policy_offer(rows).squeeze(-1) + bias
        if self.start_column is not None:
            logits = logits + self.log_sharpness.exp() * offers[:, :, self.start_column]
        return logits

    def value(self, features: Tensor) -> Tensor:
        """Expected rest of the day's reward `[B]`."""
        offers = self._part(features, "offers")
        seen = [self.value_set(self._part(features, "accepted")), self._part(features, "context")]
        value: Tensor = self.value_body(torch.cat([*seen, offers.amax(1), offers.mean(1)], 1))
        return value.squeeze(-1)

    def _part(self, features: Tensor, name: str) -> Tensor:
        low, high, shape = self.slices[name]
        return features[:, low:high].reshape(-1, *shape)


class _SetEncoder(nn.Module):
    """Each accepted request by the same small network, then the mean and the maximum over those present."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(len(ACCEPTED), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())

    def forward(self, accepted: Tensor) -> Tensor:
        """`[B, C, 6]` to `[B, 2 width]`; an empty set gives zeros."""
        present = accepted[:, :, :1]
        each = self.body(accepted) * present
        return torch.cat([each.sum(1) / 10, each.amax(1)], 1)


def make_network(
    observation_space: spaces.Dict,
    action_space: spaces.Space[Any],
    config: Any,
    *,
    start: str = "none",
    start_temperature: float = 1.0,
) -> RidesNetwork:
    """The network for a run's settings (a `shoal.config.PPOConfig`); the first of its `hidden` widths is used throughout."""
    width = config.hidden[0] if config.hidden else 32
    return RidesNetwork(observation_space, width=width, start=start, temperature=start_temperature)
