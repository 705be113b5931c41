"""How many environments, how much memory, how many threads: chosen and said, not inherited."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from shoal.config import PPOConfig, TrainConfig
from shoal.learn.actions import action_kind
from shoal.learn.features import Features
from shoal.learn.rollout import Rollout
from shoal.runs.provenance import memory_bytes
from shoal.vector.launch import usable_cores

_OVERHEAD_S = 250e-6  # of one batch step beside the environments: acting and handing over
_MOST_ENVS = 4096
_BUSY_SHARE = 0.9  # "saturated": so much of the time goes into the environments


def choose_threads(config: PPOConfig) -> int:
    """Learner threads: a minibatch of small layers is slower on two threads than on one.

    Measured on a 2-core VM: 64-64 networks gain from a second thread from about 4,000 rows per minibatch.
    """
    if config.torch_threads is not None:
        return config.torch_threads
    work = config.minibatch_size * sum(a * b for a, b in zip(config.hidden[:-1], config.hidden[1:], strict=True))
    return usable_cores() if work >= 4000 * 64 * 64 else 1


def free_memory_bytes() -> int:
    """Memory that this process could still take: the machine's, or its container's if that is less."""
    free = (memory_bytes() or 8 * 2**30) // 2  # where nothing tells: half of all there is, or of a small machine
    meminfo, container = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit
        limit, used = ((container / name).read_text() for name in ("memory.max", "memory.current"))
        free = min(free, int(limit) - int(used))
    return max(free, 0)


def budget_bytes(config: TrainConfig) -> int:
    """Memory that a rollout may take."""
    asked = config.vector.memory_budget_gb
    return int(asked * 2**30) if asked is not None else free_memory_bytes() // 2


def rollout_bytes(config: TrainConfig, num_envs: int, observation_space: object, action_space: object) -> int:
    """Estimate of a rollout's memory, its update included."""
    features, kind = Features(observation_space), action_kind(action_space)  # type: ignore[arg-type]
    steps = config.ppo.rollout_steps * config.ppo.update_interval
    return Rollout.bytes_needed(steps, num_envs, features, kind)


def check_memory(config: TrainConfig, observation_space: object, action_space: object) -> str:
    """The estimate as a line for the header; refuses a rollout that would not fit."""
    num_envs = config.vector.num_envs
    assert num_envs != "auto"
    needed = rollout_bytes(config, num_envs, observation_space, action_space)
    allowed = budget_bytes(config)
    if needed > allowed:
        one = rollout_bytes(config, 1, observation_space, action_space)
        raise ValueError(
            f"{num_envs:,} environments x {config.ppo.rollout_steps} steps need about {needed / 2**30:.2f} GB of "
            f"memory, {allowed / 2**30:.2f} GB are allowed (half of what is free, or --memory-budget-gb). At most "
            f"{allowed // one:,} environments would fit; or take fewer --rollout-steps"
        )
    return f"memory of a rollout about {needed / 2**20:,.1f} MB"


def choose_num_envs(
    config: TrainConfig, step_cost_s: float, observation_space: object, action_space: object, say: Callable[[str], None]
) -> int:
    """`--num-envs auto`: cores, doubled until they are kept busy nine tenths of the time, within memory.

    A batch step costs about N * step / cores in the environments and a fixed overhead beside them.
    """
    cores = usable_cores()
    wanted = _OVERHEAD_S * _BUSY_SHARE / (1 - _BUSY_SHARE) * cores / step_cost_s
    fits = budget_bytes(config) // rollout_bytes(config, 1, observation_space, action_space)
    number = cores
    while number < wanted and number * 2 <= min(_MOST_ENVS, fits):
        number *= 2
    say(
        f"num-envs {number}: a step takes {step_cost_s * 1e6:,.1f} us, {wanted:,.0f} environments would keep {cores} "
        f"core(s) {_BUSY_SHARE:.0%} busy; at most {min(_MOST_ENVS, fits):,} fit"
    )
    return number
