"""What `--backend auto` picks: against Gymnasium Sync, and against the best of serial, process and split.

python -m benchmarks.vector.auto_backend [--store]
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import Contestant, busy_note, in_fresh_process, interleave, ratios, speeds, summary
from benchmarks.harness.rows import Row

Say = Callable[[str], None]
NUM_ENVS = 64
_BY = "benchmarks.harness.contestants:"

# Where --backend auto has to be within 10 % of the best backend: cheap, middling and dear steps, few and many.
AUTO: tuple[tuple[str | dict[str, Any], int], ...] = (
    ("CartPole-v1", 8),
    ("CartPole-v1", 64),
    ("CartPole-v1", 256),
    ("Acrobot-v1", 16),
    ("Pendulum-v1", 64),
    ({"cost_us": 50.0}, 4),
    ({"cost_us": 500.0}, 16),
)
AUTO_ROUNDS, AUTO_BLOCK_S = 7, 0.2


def rows(say: Say) -> list[Row]:
    """CartPole beside Gymnasium's default, and every case beside the best backend."""
    return cartpole(say) + auto(say)


def cartpole(say: Say) -> list[Row]:
    """`--backend auto` against Gymnasium's own default."""
    options = {"env": "CartPole-v1", "num_envs": NUM_ENVS}
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(Contestant("shoal", _BY + "shoal_vector", backend="auto", **options))
        theirs = stack.enter_context(Contestant("gymnasium", _BY + "gymnasium_sync", **options))
        found = interleave([ours, theirs], 9, 0.5)
    over = ratios(found, "shoal", "gymnasium")
    detail = {f"{who} steps/s": round(statistics.median(speeds(found, who))) for who in ("shoal", "gymnasium")}
    say(f"CartPole-v1, {NUM_ENVS} environments: {detail}")
    title = f"CartPole-v1, {NUM_ENVS} environments, --backend auto: over Gymnasium Sync"
    return [Row(title, statistics.median(over), "x", 1.5, note=busy_note(found), detail={**detail, **summary(over)})]


def auto(say: Say) -> list[Row]:
    """What `--backend auto` picks, as a share of the best of serial, process and split."""
    found: list[Row] = []
    shares: list[float] = []
    for env, num_envs in AUTO:
        picked: dict[str, Any] = in_fresh_process(
            "benchmarks.vector.auto_backend:auto_case", 120.0, env=env, num_envs=num_envs
        )
        what = env if isinstance(env, str) else f"synthetic {env['cost_us']:g} us"
        say(f"auto, {what}, {num_envs} environments: {picked['why']}")
        shares.append(100 * picked["share"])
        title = f"--backend auto, {what}, {num_envs} environments: share of the best backend"
        found.append(Row(title, shares[-1], "%", detail=picked))
    worst = Row("--backend auto: share of the best of serial, process and split, worst case", min(shares), "%", 90.0)
    return [worst, *found]


def auto_case(env: str | dict[str, Any], num_envs: int) -> dict[str, Any]:
    """In a process of its own: what auto picks and how fast all are."""
    from benchmarks.harness.contestants import Stepped, factory
    from shoal.vector.make import make_vec

    said: list[str] = []
    make = factory(env) if isinstance(env, dict) else env
    make_vec(make, num_envs, backend="auto", say=said.append).close()
    picked = said[-1].split()[1].rstrip(":")
    all_three = {name: make_vec(make, num_envs, backend=name) for name in ("serial", "process", "split")}
    timed = {}
    for name, envs in all_three.items():
        envs.reset(seed=0)
        timed[name] = Stepped(envs)
    rates = turns(timed, AUTO_ROUNDS, AUTO_BLOCK_S)
    for one in timed.values():
        one.close()
    medians = {name: statistics.median(found) for name, found in rates.items()}
    return {
        "picked": picked,
        "why": said[-1],
        "steps_per_s": {name: round(speed) for name, speed in medians.items()},
        "share": medians[picked] / max(medians.values()),
    }


def turns(timed: dict[str, Any], rounds: int, seconds: float) -> dict[str, Sequence[float]]:
    """Steps per second, round by round, of things in this process that take turns."""
    found: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(rounds + 1):  # the first warms up
        for name, one in timed.items():
            began = time.perf_counter()
            steps = one.block(seconds)
            if turn:
                found[name].append(steps / (time.perf_counter() - began))
    return dict(found)


if __name__ == "__main__":
    stored.main("benchmarks.vector.auto_backend", rows, __doc__)
