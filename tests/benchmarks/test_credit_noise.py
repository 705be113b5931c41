"""The gradient noise scale: by hand, and that every estimator has one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.rides import credit_arms, credit_noise
from shoal.learn.credit import AllActions


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy_weight = nn.Parameter(torch.zeros(1, 2))

    def policy(self, features: Tensor) -> Tensor:
        return features @ self.policy_weight


def test_the_noise_scale_by_hand() -> None:
    """Gradients (-0.5, 0.5) and (-1.5, 1.5): mean (-1, 1), trace 1, squared mean 2 - 1/2, so 2/3 of a day. The offers
    made, the first one twice, give (-0.5, 0.5) and (-1.5, 1.5) too: there the advantage is the sampled one's."""
    features, half = torch.ones(2, 1), torch.full((2, 2), 0.5).log()
    every = AllActions(half, torch.tensor([[1.0, -1.0], [3.0, -3.0]]))
    batch = SimpleNamespace(features=features, every=every, actions=torch.zeros(2), log_probs=half[:, 0])
    learner: Any = SimpleNamespace(agent=SimpleNamespace(network=Line()))
    assert credit_noise.scale(learner, batch, None, 1, 2) == pytest.approx((2 / 3, 3.0))
    made = np.array([1.0, 3.0], np.float32)
    assert credit_noise.scale(learner, batch, made, 1, 2) == pytest.approx((2 / 3, 3.0))
    assert credit_noise.scale(learner, batch, np.array([1.0, -1.0], np.float32), 1, 2)[0] == float("inf")


def test_every_estimator_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"futures": 0, "held_out_days": 0, "start": "none", "iterations": 2, "prices": "insertion", "customers": 8}
    arm = credit_arms.Arm(own, "myopic", None, {"episodes": 4, "num_envs": 4})
    monkeypatch.setattr(credit_noise, "ARMS", {"scratch": arm})
    monkeypatch.setattr(credit_noise, "EPOCHS", 1)
    monkeypatch.setattr(credit_noise, "STAGES", ("untrained", "after 1 epochs"))
    found = credit_noise.measure(credit_noise.parsed(["--days", "12"]), lambda text: None)
    assert [list(by_name) for by_name in found.values()] == [list(credit_noise.ESTIMATORS)] * 2
    rows = credit_noise.summarise(found)
    assert len(rows) == 10
    quiet = {row.name: row.value for row in rows}["rides, untrained: gradient noise scale, credit, all 16 offers"]
    assert quiet is not None
    assert 0 < quiet < 12
