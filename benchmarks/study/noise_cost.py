"""What the noise meter costs: seconds of its looks over seconds of the updates that they are part of, on real batches.

For each task one rollout at the settings of its preset, then whole rounds of updates of that batch (a round: from one
look to the next), so that looks and updates share whatever else the machine does.

    python -m benchmarks.study.noise_cost [--store]
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.study.arms import RIDES
from shoal.learn.learner import Learner
from shoal.learn.noise import NoiseMeter
from shoal.starting import settle
from shoal.tasks.networks import own_network
from shoal.tasks.presets import config_for
from shoal.training import make_envs

PLACE, TARGET, LOOKS = "benchmarks.study.noise_cost", 5.0, 3
TASKS: dict[str, dict[str, Any]] = {"cage2": {}, "rides": RIDES, "CartPole-v1": {"backend": "serial"}}


class Timed(NoiseMeter):
    """Knows what its looks took."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs)
        self.looked: list[float] = []

    def look(self, environments: Tensor, gradient: Callable[[Tensor], Tensor]) -> dict[str, float]:
        start = time.process_time()
        told = super().look(environments, gradient)
        self.looked.append(time.process_time() - start)
        return told


def cost(task: str) -> tuple[float, float, int]:
    """CPU-seconds of looks, of the updates without them, and how many updates."""
    torch.set_num_threads(1)
    config = settle(config_for(task, **TASKS[task], torch_threads=1, env_threads=1), None, lambda text: None)
    envs = make_envs(config, None, lambda text: None)
    try:
        learner = Learner(config, envs, own_network=own_network(task, json.loads(config.env_kwargs)))
        learner.start()
        batch = learner.estimate(learner.collect())
        assert batch is not None
        meter = learner.ppo.meter = Timed(envs.num_envs)
        learner.ppo.update(batch, 0.0, learner.shuffle)  # the first look is of the first update, whatever its price
        meter.looked.clear()
        start, updates = time.process_time(), 0
        while len(meter.looked) < LOOKS:
            learner.ppo.update(batch, 0.0, learner.shuffle)
            updates += 1
        looked = sum(meter.looked)
        return looked, time.process_time() - start - looked, updates
    finally:
        envs.close()


def rows(say: Callable[[str], None]) -> list[Row]:
    """A share each."""
    found = []
    for task in TASKS:
        looks_s, updates_s, updates = cost(task)
        each = f"{1000 * looks_s / LOOKS:.2f} ms each, in {updates} updates of {1000 * updates_s / updates:.1f} ms"
        note = f"CPU time: {LOOKS} looks, {each}"
        found.append(
            Row(f"noise meter, {task}: share of an update", 100 * looks_s / updates_s, "%", TARGET, "lower", note)
        )
        say(str(found[-1]))
    return found


if __name__ == "__main__":
    stored.main(PLACE, rows, __doc__)
