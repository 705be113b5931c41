"""How many environments, how much memory, how many threads: chosen and said, not inherited."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from shoal.config import PPOConfig, TrainConfig, chosen
from shoal.core.arrays import Layout
from shoal.core.machine import control_groups, usable_cores
from shoal.core.pictures import LEAST
from shoal.learn.distributions import action_kind
from shoal.learn.encoders import MASK_KEY, Features
from shoal.learn.pictures import FLOATS, chosen_encoder, pictures, sizes, width_of
from shoal.learn.policy import chunk_rows
from shoal.learn.rollout import Rollout
from shoal.runs.provenance import memory_bytes

Space = spaces.Space[Any]
OwnBytes = Callable[[int], int]
_OVERHEAD_S = 250e-6  # of one batch step beside the environments: acting and handing over
_MOST_ENVS = 4096
_BUSY_SHARE = 0.9  # "saturated": so much of the time goes into the environments


def choose_threads(config: PPOConfig, num_features: int = 0, *, sees: bool = False) -> int:
    """Learner threads: a minibatch of small layers is slower on two threads than on one, that of a CNN never.

    Measured on a 2-core VM: 64-64 networks gain from a second thread from about 4,000 rows per minibatch.
    """
    if config.torch_threads is not None:
        return config.torch_threads
    if sees:
        return usable_cores()
    widths = [num_features, *config.hidden]
    work = chosen(config.minibatch_size) * sum(a * b for a, b in itertools.pairwise(widths))
    return usable_cores() if work >= 4000 * 64 * 64 else 1


def free_memory_bytes() -> int:
    """Memory that this process could still take: the machine's, or its container's if that is less."""
    free = (memory_bytes() or 8 * 2**30) // 2  # where nothing tells: half of all there is, or of a small machine
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    return max(min(free, free_in_groups_bytes()), 0)


def free_in_groups_bytes(root: Path = Path("/")) -> int:
    """What the control groups of this process leave it: a container, a Slurm job, a systemd slice."""
    free = sys.maxsize
    for folder in control_groups("memory", root):
        for names in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):  # v2, v1
            with contextlib.suppress(OSError, ValueError):  # no such file, or no limit
                limit, used = ((folder / name).read_text() for name in names)
                free = min(free, int(limit) - int(used))
    return free


def budget_bytes(config: TrainConfig) -> int:
    """Memory that a rollout may take."""
    asked = config.vector.memory_budget_gb
    return int(asked * 2**30) if asked is not None else free_memory_bytes() // 2


def rollout_bytes(config: TrainConfig, num_envs: int, observation_space: Space, action_space: Space) -> int:
    """Estimate of a rollout's memory, its update included."""
    encoder = chosen_encoder(config.ppo.encoder, observation_space)
    features, kind = Features(observation_space, encoder), action_kind(action_space)
    config = config.replace(encoder=encoder)
    steps = config.ppo.rollout_steps * config.ppo.update_interval
    rollout = Rollout.bytes_needed(steps, num_envs, features, kind, config.frame_stack)
    return rollout + update_bytes(config.ppo, (steps + 1) * num_envs, features, kind.num_params)


def _nothing(num_envs: int) -> int:
    return 0


def most_envs(
    config: TrainConfig, observation_space: Space, action_space: Space, own_bytes: OwnBytes = _nothing
) -> int:
    """Environments that fit into the memory allowed: their rollout, and `own_bytes` of what they take themselves."""
    allowed = budget_bytes(config)

    def fits(num_envs: int) -> bool:
        return rollout_bytes(config, num_envs, observation_space, action_space) + own_bytes(num_envs) <= allowed

    most = 0
    for power in reversed(range(allowed.bit_length() + 1)):  # an environment takes more than a byte
        most += (1 << power) * fits(most + (1 << power))
    return most


def update_bytes(config: PPOConfig, rows: int, features: Features, num_params: int) -> int:
    """What encoding, a minibatch and the built-in network take beside the rollout, in bytes."""
    layers = [layer for picture in features.pictures for layer in sizes(picture, config.encoder)]
    pixels = sum(picture.numbers for picture in features.pictures)
    inputs = features.size + sum(width_of(config.encoder) for _ in features.pictures)
    widths, trunks = [inputs, *config.hidden], 1 if config.network == "shared" else 2
    weights = trunks * sum(a * b + b for a, b in itertools.pairwise(widths)) + widths[-1] * (num_params + 1)
    weights += sum(count for count, _ in layers)
    copies = 10  # weights, gradients (and flattened), Adam's two moments; all but gradients kept, to undo an update
    per_row = features.size * (5 + 3 * features.wide if config.normalise_observations else 2)
    most = max((numbers for _, numbers in layers), default=0)  # of a picture, by one layer of its encoder
    chunk = min(rows, chunk_rows(features)) * (per_row + sum(config.hidden) + pixels + 2 * most)
    minibatch = min(rows, chosen(config.minibatch_size)) * (
        features.size + 2 * trunks * sum(config.hidden) + 8 * num_params
        + 0.75 * pixels + sum(numbers for _, numbers in layers) + 1.6 * most
    )  # fmt: skip
    return int(4 * (copies * weights + max(chunk, minibatch + bool(pixels) * FLOATS)))


def check_memory(
    config: TrainConfig, observation_space: Space, action_space: Space, own_bytes: OwnBytes = _nothing
) -> str:
    """The estimate as a line for the header; refuses a rollout that would not fit."""
    num_envs = config.vector.num_envs
    assert num_envs != "auto"
    own, rollout = own_bytes(num_envs), rollout_bytes(config, num_envs, observation_space, action_space)
    needed, allowed = rollout + own, budget_bytes(config)
    if needed > allowed:
        fits = most_envs(config, observation_space, action_space, own_bytes)
        raise ValueError(
            f"{num_envs:,} environments x {config.ppo.rollout_steps} steps need about {_size(needed)} of "
            f"memory, {_size(allowed)} are allowed (half of what is free, or --memory-budget-gb). At most "
            f"{fits:,} environments would fit; or take fewer --rollout-steps"
        )
    said = f"memory of a rollout about {rollout / 2**20:,.1f} MB"
    return said + (f", of what its environments compute about {own / 2**20:,.1f} MB" if own else "")


def _size(count: float) -> str:
    """
    >>> _size(3 * 2**30), _size(2**16)
    ('3.00 GB', '0.06 MB')
    """
    return f"{count / 2**30:,.2f} GB" if count >= 2**30 / 100 else f"{count / 2**20:,.2f} MB"


def seen_lines(config: PPOConfig, observation_space: Space, own_network: bool) -> list[str]:
    """For the header: what sees the pictures; a warning where a perceptron would be given some as one row."""
    if own_network:
        return []
    found = pictures(observation_space, config.encoder)
    lines = []
    for picture in found:
        channels, height, width = picture.size
        what = f"a picture of {height} x {width} pixels in {channels} channel(s)"
        lines.append(f"{picture.name} is {what}: a CNN sees it (--encoder {config.encoder})")
    seen = {picture.leaf for picture in found}
    for leaf, (path, shape, dtype) in enumerate(Layout(observation_space).leaves):
        size, picture_like = math.prod(shape), len(shape) >= 3 or (len(shape) == 2 and dtype == np.uint8)
        if leaf not in seen and picture_like and size >= LEAST and path != (MASK_KEY,):
            name = "the observation" + (f" part {'/'.join(map(str, path))}" if path else "")
            cure = (
                "leave out --encoder flat"
                if dtype == np.uint8
                else f"give its pixels as uint8, 0 to 255, in place of {dtype}"
            )
            lines.append(
                f"WARNING: {name} looks like a picture ({' x '.join(map(str, shape))} = {size:,} numbers), and a "
                f"perceptron sees it as one flat row: it learns slowly or nothing. For a CNN {cure}, or give a network "
                "of your own, shoal.train(..., network=...)"
            )
    return lines


def choose_num_envs(
    config: TrainConfig,
    step_cost_s: float,
    observation_space: Space,
    action_space: Space,
    say: Callable[[str], None],
    own_bytes: OwnBytes = _nothing,
) -> int:
    """`--num-envs auto`: cores, doubled until they are kept busy nine tenths of the time, within memory.

    A batch step costs about N * step / cores in the environments and a fixed overhead beside them.
    """
    cores = usable_cores()
    wanted = _OVERHEAD_S * _BUSY_SHARE / (1 - _BUSY_SHARE) * cores / step_cost_s
    fits = most_envs(config, observation_space, action_space, own_bytes)
    number = cores
    while number < wanted and number * 2 <= min(_MOST_ENVS, fits):
        number *= 2
    say(
        f"num-envs {number}: a step takes {step_cost_s * 1e6:,.1f} us, {wanted:,.0f} environments would keep {cores} "
        f"core(s) {_BUSY_SHARE:.0%} busy; at most {min(_MOST_ENVS, fits):,} fit"
    )
    return number
