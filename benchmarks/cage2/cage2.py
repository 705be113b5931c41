"""Is the simulator exact, how fast is it, how fast is PPO on it, what do the scripted defenders score?

python -m benchmarks.cage2.cage2 [--store]
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.cage2 import distribution, scripted, speed
from benchmarks.harness import stored
from benchmarks.harness.rows import Row

TRACES = Path(__file__).parents[2] / "tests" / "data" / "cage2"
PPO_TARGETS = {"plain": 40_000.0, "memory": 20_000.0}  # steps/s end to end on two cores
_EPOCHS = 8


def rows(say: Callable[[str], None]) -> list[Row]:
    """All that is measured in one go; scores learnt from scratch are in cage2_score.py."""
    return [
        *replayed(say),
        *distribution.rows(say),
        *speed.rows(say),
        *ppo_speed(say),
        *scripted.rows(say),
    ]


def replayed(say: Callable[[str], None]) -> list[Row]:
    """Mismatches against every recording of the real CybORG in the checkout."""
    from shoal.cage2.commands import replay

    name = "cage2 replay of the real CybORG, mismatches"
    files = sorted(TRACES.glob("traces_*.npz"))
    if not files:
        return [Row(name, None, "steps", 0, "lower", "the recordings are in the checkout only: tests/data/cage2")]
    report = replay(files)
    say(f"{report['steps']:,} recorded steps, {report['mismatches']} mismatches")
    return [Row(name, report["mismatches"], "steps", 0, "lower", f"of {report['steps']:,} steps")]


def ppo_speed(say: Callable[[str], None]) -> list[Row]:
    """PPO end to end at 256 environments, separate 64-64 networks, 4 epochs, on all usable cores."""
    import torch

    from shoal.cage2.simulator.env import make_vec
    from shoal.core.machine import usable_cores
    from shoal.learn.learner import Learner
    from shoal.tasks.presets import config_for

    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    found = []
    for features, target in PPO_TARGETS.items():
        sizes = {"num_envs": 256, "rollout_steps": 100, "minibatch_size": 6400, "update_epochs": 4, "hidden": (64, 64)}
        config = config_for("cage2", **sizes)
        envs = make_vec(256, features=features, mask="none" if features == "plain" else "useful")
        learner = Learner(config, envs)
        learner.start()
        rates = []
        for epoch in range(_EPOCHS):
            start = time.perf_counter()
            learner.update(learner.estimate(learner.collect()), 0.0)
            if epoch > 1:  # the first ones warm up
                rates.append(256 * 100 / (time.perf_counter() - start))
        envs.close()
        say(f"PPO on cage2 {features}: {statistics.median(rates):,.0f} steps/s")
        name = f"cage2 PPO end to end, {features}, 256 environments, {usable_cores()} cores"
        found.append(Row(name, statistics.median(rates), "steps/s", target, detail={"rounds": rates}))
    torch.set_num_threads(before)
    return found


if __name__ == "__main__":
    stored.main("benchmarks.cage2.cage2", rows, __doc__)
