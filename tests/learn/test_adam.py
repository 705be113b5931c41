"""The optimiser: torch's numbers, without torch's compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

from shoal.learn.adam import Adam


def test_it_is_torchs_adam_bit_for_bit() -> None:
    """Over steps in which some weights have no gradient, and with a rate that changes."""
    torch.manual_seed(0)
    ours, theirs = ([nn.Parameter(torch.arange(n, dtype=torch.float32)) for n in (5, 40, 1)] for _ in range(2))
    one, other = Adam(ours, 0.01, 1e-5), torch.optim.Adam(theirs, lr=0.01, eps=1e-5, fused=True)
    for step in range(5):
        one.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.01 / (1 + step)
        one.zero_grad()
        other.zero_grad()
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if number != step % 3:
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone()
        one.step()
        other.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)
        assert all(torch.equal(one.state[a][name], other.state[b][name]) for name in ("step", "exp_avg", "exp_avg_sq"))


def test_a_training_does_not_import_the_compiler(tmp_path: Path) -> None:
    """It takes seconds and 80 MB."""
    code = (
        "import io, sys, shoal\n"
        "shoal.train('CartPole-v1', num_envs=2, rollout_steps=8, minibatch_size=8, epochs=1, backend='serial', "
        "runs_dir=sys.argv[1], stream=io.StringIO())\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
