"""Adam (Kingma and Ba 2015) as one fused call of torch: the numbers of `torch.optim.Adam(fused=True)`, bit for bit.

torch's class imports its compiler when the first one is made: two seconds and 80 MB that no training needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_BETAS = 0.9, 0.999


class Adam:
    """An optimiser with the faces of torch's that a training uses: `state`, `param_groups`, `zero_grad`, `step`."""

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, eps: float) -> None:
        self.parameters, self.eps = list(parameters), eps
        self.param_groups: list[dict[str, Any]] = [{"params": self.parameters, "lr": lr}]
        self.state: dict[Tensor, dict[str, Tensor]] = {}  # of a parameter: step, exp_avg, exp_avg_sq

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every parameter that has a gradient."""
        alike: dict[Any, list[Tensor]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                alike.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        for (device, _), moved in alike.items():
            for one in moved:
                if one not in self.state:
                    self.state[one] = {
                        "step": torch.zeros((), device=device),
                        "exp_avg": torch.zeros_like(one, memory_format=torch.preserve_format),
                        "exp_avg_sq": torch.zeros_like(one, memory_format=torch.preserve_format),
                    }
            known = [self.state[one] for one in moved]
            steps = [found["step"] for found in known]
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                moved,
                [one.grad for one in moved if one.grad is not None],
                [found["exp_avg"] for found in known],
                [found["exp_avg_sq"] for found in known],
                [],
                steps,
                amsgrad=False,
                lr=self.param_groups[0]["lr"],
                beta1=_BETAS[0],
                beta2=_BETAS[1],
                weight_decay=0.0,
                eps=self.eps,
                maximize=False,
            )


def adam(parameters: Sequence[nn.Parameter], lr: float, device: str) -> Adam | torch.optim.Adam:
    """With an epsilon of 1e-5, as PPO has it; torch's own where there is no fused kernel."""
    if device in ("cpu", "cuda"):
        return Adam(parameters, lr, 1e-5)
    return torch.optim.Adam(parameters, lr=lr, eps=1e-5)
