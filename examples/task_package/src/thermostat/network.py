"""A network that suits the task: a switch that heats where it is too cold, by a threshold that is learned."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Switch(nn.Module):
    """Two logits from degrees too cold, and a linear value."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.threshold = nn.Parameter(torch.zeros(()))
        self.sharpness = nn.Parameter(torch.zeros(()))
        self.body = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, 1))

    def policy(self, features: Tensor) -> Tensor:
        """Logits [B, 2] of off and heat."""
        heat = self.sharpness.exp() * (features[:, 0] - self.threshold)
        return torch.stack([torch.zeros_like(heat), heat], 1)

    def value(self, features: Tensor) -> Tensor:
        """Expected rest of the reward [B]."""
        return self.body(features).squeeze(-1)
