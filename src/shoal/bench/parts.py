"""What each part of the process backend's hand-off is worth: the whole beside itself without that part."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from typing import Any

from shoal.bench.contest import Contestant, busy_note, interleave, ratios, summary
from shoal.bench.contestants import Stepped, factory, shoal_vector
from shoal.bench.rows import Row
from shoal.runs.provenance import cores_usable

# (environments, microseconds of a step): a batch of 2 ms, and one of 0.2 ms
CASES = ((64, 50.0), (8, 50.0))
PARTS = {
    "": "as it is",
    "look": "without looking before sleeping",
    "anchor": "without a core each",
    "rows": "with observations copied",
    "all": "without all three",
}
ROUNDS, BLOCK_S = 11, 0.6


def rows(say: Callable[[str], None]) -> list[Row]:
    """Shares of the ideal, as many bare processes as cores, for the whole and without each part."""
    found = []
    for num_envs, cost_us in CASES:
        options = {"env": {"cost_us": cost_us}, "num_envs": num_envs}
        with contextlib.ExitStack() as stack:
            contestants = [Contestant("ideal", "shoal.bench.contestants:Ideal", processes=cores_usable(), **options)]
            contestants += [Contestant(part, "shoal.bench.parts:without", part=part, **options) for part in PARTS]
            for one in contestants:
                stack.enter_context(one)
            turns = interleave(contestants, ROUNDS, BLOCK_S)
        for part, what in PARTS.items():
            shares = [100 * ratio for ratio in ratios(turns, part, "ideal")]
            title = f"process, {cost_us:g} us, {num_envs} environments, {what}: share of the ideal"
            row = Row(title, statistics.median(shares), "%", note=busy_note(turns), detail=summary(shares))
            say(f"{row.name}: {row.value:.1f} %")
            found.append(row)
    return found


def without(env: dict[str, Any], num_envs: int, part: str) -> Stepped:
    """In a process of its own: shoal's process backend without one of its parts."""
    from shoal.vector import process

    if part in ("look", "all"):
        process.ProcessVectorEnv._workers_look_s = 0.0
    if part in ("anchor", "all"):
        vars(process)["core_of"] = lambda worker, workers: None
    if part not in ("rows", "all"):
        return shoal_vector(env, num_envs, "process")
    envs = process.ProcessVectorEnv([factory(env)] * num_envs)
    observations, _ = envs.reset(seed=0)
    return Stepped(envs, lambda actions: envs.step(actions, out=observations))
