"""Train Pendulum with a network of your own: any module with `policy` and `value`."""

import tempfile

import torch
from torch import Tensor, nn

import shoal


class Residual(nn.Module):
    """One hidden layer with a skip connection; Pendulum has 3 features and 1 continuous action."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mix = nn.Linear(3, 64), nn.Linear(64, 64)
        self.mean, self.estimate = nn.Linear(64, 1), nn.Linear(64, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def hidden(self, features: Tensor) -> Tensor:
        x = torch.tanh(self.into(features))
        return x + torch.tanh(self.mix(x))

    def policy(self, features: Tensor) -> Tensor:  # mean and log standard deviation, [B, 2]
        mean = self.mean(self.hidden(features))
        return torch.cat([mean, self.log_std.expand_as(mean)], -1)

    def value(self, features: Tensor) -> Tensor:  # [B]
        return self.estimate(self.hidden(features)).squeeze(-1)


runs = tempfile.mkdtemp()
result = shoal.train("Pendulum-v1", network=Residual(), steps=20_000, runs_dir=runs)
score = shoal.evaluate(result.run, episodes=5, network=Residual())
print(f"held-out return after {result.steps:,} steps: {score['mean']:.0f}")
