"""`shoal bench vector`: what N environments cost beyond themselves, against the ideal and against the peers."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from shoal.bench import compiled, startup
from shoal.bench.contest import (
    Contestant,
    PeerMissing,
    busy_note,
    in_fresh_process,
    interleave,
    ratios,
    speeds,
    summary,
)
from shoal.bench.rows import Row
from shoal.runs.provenance import cores_usable

Say = Callable[[str], None]
NUM_ENVS = 64
_BY = "shoal.bench.contestants:"

# (name, environment, rounds, seconds of a block, bar in % of the ideal, bar in times the better peer)
SYNTHETIC = (
    ("500 us", {"cost_us": 500.0}, 7, 1.0, 93.0, 1.5),
    ("50 us", {"cost_us": 50.0}, 7, 0.7, 85.0, 4.0),
    ("exponential 500 us, first-ready slices", {"cost_us": 500.0, "exponential": True}, 7, 2.0, 95.0, None),
)
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


def run(say: Say) -> list[Row]:
    """Every row of the group; about 3 minutes on 2 cores."""
    return all_synthetic(say) + cartpole(say) + auto(say) + compiled.rows(say) + startup.rows(say)


def all_synthetic(say: Say) -> list[Row]:
    """Both fixed costs and the uneven one."""
    rows = []
    for name, env, rounds, seconds, share, times in SYNTHETIC:
        rows += synthetic(name, env, rounds, seconds, share, times, say)
    return rows


def synthetic(
    name: str, env: dict[str, Any], rounds: int, seconds: float, share: float, times: float | None, say: Say
) -> list[Row]:
    """The process backend beside the ideal and the peers, on an environment that burns CPU time."""
    cores = cores_usable()
    title = f"process, {name}, {NUM_ENVS} environments"
    ours, options, peers = "FirstReady", {}, []
    if times is not None:
        ours, options, peers = "shoal_vector", {"backend": "process"}, ["gymnasium_async", "sb3_subproc"]
    missing = []
    with contextlib.ExitStack() as stack:
        contestants = [
            Contestant("ideal", _BY + "Ideal", env=env, num_envs=NUM_ENVS, processes=cores),
            Contestant("shoal", _BY + ours, env=env, num_envs=NUM_ENVS, **options),
        ]
        for peer in peers:
            try:
                contestants.append(Contestant(peer, _BY + peer, env=env, num_envs=NUM_ENVS))
            except PeerMissing as error:
                missing.append(str(error))
        for one in contestants:
            stack.enter_context(one)
        found = interleave(contestants, rounds, seconds)
    fastest = {one.name: statistics.median(speeds(found, one.name)) for one in contestants}
    say(f"{title}: " + ", ".join(f"{who} {speed:,.0f} steps/s" for who, speed in fastest.items()))
    of_ideal = [100 * ratio for ratio in ratios(found, "shoal", "ideal")]
    per_cpu = [100 * ratio for ratio in ratios(found, "shoal", "ideal", "cpu_s")]
    note = busy_note(found)
    detail = {
        "steps_per_s": {who: round(speed) for who, speed in fastest.items()},
        "steps_per_cpu_s": {who: round(statistics.median(speeds(found, who, "cpu_s"))) for who in fastest},
    }
    rows = [
        Row(f"{title}: share of the {cores}-core ideal", statistics.median(of_ideal),
            "%", share, note=note, detail={**detail, **summary(of_ideal)}),
        Row(f"{title}: share of the ideal per CPU-second", statistics.median(per_cpu), "%", detail=summary(per_cpu)),
    ]  # fmt: skip
    if times is None:
        return rows
    better = f"{title}: over the better of Gymnasium Async and SB3 Subproc"
    if missing:
        return [*rows, Row(better, None, "x", times, note="; ".join(missing))]
    over, most = (
        [min(pair) for pair in zip(*(ratios(found, who, peer) for peer in peers), strict=True)]
        for who in ("shoal", "ideal")
    )
    return [
        *rows,
        Row(better, statistics.median(over), "x", times, note=note, detail={**detail, **summary(over)}),
        Row(f"{better}: what the ideal would be", statistics.median(most), "x", detail=summary(most)),
    ]


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
    rows, shares = [], []
    for env, num_envs in AUTO:
        picked: dict[str, Any] = in_fresh_process("shoal.bench.vector:auto_case", 120.0, env=env, num_envs=num_envs)
        what = env if isinstance(env, str) else f"synthetic {env['cost_us']:g} us"
        say(f"auto, {what}, {num_envs} environments: {picked['why']}")
        shares.append(100 * picked["share"])
        title = f"--backend auto, {what}, {num_envs} environments: share of the best backend"
        rows.append(Row(title, shares[-1], "%", detail=picked))
    worst = Row("--backend auto: share of the best of serial, process and split, worst case", min(shares), "%", 90.0)
    return [worst, *rows]


def auto_case(env: str | dict[str, Any], num_envs: int) -> dict[str, Any]:
    """In a process of its own: what auto picks and how fast all are."""
    from shoal.bench.contestants import Stepped, factory
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
