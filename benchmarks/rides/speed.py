"""Rides: steps a second, an epoch with its update, memory, milliseconds an offer.

Epochs run through the Learner that `shoal train rides` uses, in a process of their own for each number of environments,
with insertion prices, no futures and 8 policy and 30 value passes in minibatches of 128: the settings of the target,
the same work for every sample. What is compared between sizes is CPU time, which other programs change little; the wall
clock stands beside it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness.interleave import CALM_SHARE, in_fresh_process
from benchmarks.harness.rows import Row
from shoal.runs.provenance import cores_usable
from shoal.runs.usage import machine_busy_s

Say = Callable[[str], None]
NUM_ENVS, THREADS = 256, 2
# By prices and sampled futures: environment steps/s on two cores
STEP_TARGETS = {("insertion", 0): 3300.0, ("pooled", 0): 900.0, ("pooled", 8): None}
CREDIT_TARGET = 1200.0
EPOCH_TARGET_S, MEMORY_TARGET_MB, GROWTH_TARGET, OFFER_TARGET_MS = 10.0, 1536.0, 1.05, 50.0
SIZES = {1: 20, 64: 3, 256: 3, 1024: 2}  # environments: epochs measured
OFFERS = 30


def rows(say: Say) -> list[Row]:
    """All of them."""
    return [*steps(say), *epochs(say), *credited(say), *offers(say)]


def credited(say: Say) -> list[Row]:
    """Training from nothing with credit from rebuilt days, by its own settings: rollout, credit and update."""
    one = in_fresh_process("benchmarks.rides.speed:epoch_times", 600.0, num_envs=NUM_ENVS, epochs=3, credit="rebuilt")
    name = f"rides {NUM_ENVS} environments with credit, insertion prices: steps, credit and update included"
    say(f"{name}: {one['samples'] / one['wall_s']:,.0f} a second")
    note = f"{one['samples'] / one['cpu_s']:,.0f} a CPU-second{_busy(one['others'], '; ')}"
    return [
        Row(name, one["samples"] / one["wall_s"], "steps/s", CREDIT_TARGET, note=note, detail={"cpu_s": one["cpu_s"]})
    ]


def steps(say: Say, num_envs: int = NUM_ENVS) -> list[Row]:
    """Environment steps a second: random offers, both days planned, menus and observations made."""
    found = []
    for (prices, futures), target in STEP_TARGETS.items():
        name = f"rides environment steps, {num_envs} environments, K=30, {prices} prices, {THREADS} threads"
        name += f", {futures} sampled futures" if futures else ""
        seen = {"prices": prices, "futures": futures, "num_envs": num_envs}
        try:
            one = in_fresh_process("benchmarks.rides.speed:step_rates", 300.0, **seen)
        except RuntimeError as error:  # the other rows are still worth having
            found.append(Row(name, None, "steps/s", target, note=f"failed: {str(error).strip().splitlines()[-1]}"))
            continue
        say(f"{name}: {one['wall']:,.0f} a second")
        detail = {"rounds": one["rounds"], "per_cpu_second": one["cpu"]}
        note = f"{one['cpu']:,.0f} a CPU-second{_busy(one['others'], '; ')}"
        found.append(Row(name, one["wall"], "steps/s", target, note=note, detail=detail))
    return found


def step_rates(prices: str, futures: int, num_envs: int, rounds: int = 3) -> dict[str, Any]:
    """In a process of its own: whole days, once unmeasured, then `rounds` times."""
    from shoal.rides.env import RidesVectorEnv
    from shoal.rides.options import RidesOptions

    options = RidesOptions(prices=prices, futures=futures)  # type: ignore[arg-type]
    env = RidesVectorEnv(num_envs, options, threads=THREADS)
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 16, (env.options.customers, num_envs))
    for step in range(4):
        env.step(actions[step])
    turns = []
    for _ in range(rounds):
        clock = _Clock()
        for row in actions:
            env.step(row)
        turns.append(clock.read())
    env.close()
    samples = actions.size
    rates = [samples / turn["wall_s"] for turn in turns]
    return {
        "wall": statistics.median(rates),
        "cpu": samples / statistics.median(turn["cpu_s"] for turn in turns),
        "others": statistics.median(turn["others"] for turn in turns),
        "rounds": rates,
    }


def epochs(say: Say, sizes: dict[int, int] = SIZES) -> list[Row]:
    """Time and memory of an epoch of a day in every environment with its update, by number of environments."""
    found: list[Row] = []
    cost_ms: dict[int, float] = {}
    for num_envs, count in sizes.items():
        one = in_fresh_process("benchmarks.rides.speed:epoch_times", 600.0, num_envs=num_envs, epochs=count)
        # The least of the epochs: the first one touches its memory for the first time, and others only add.
        cost_ms[num_envs] = 1000 * one["least_cpu_s"] / one["samples"]
        judged = num_envs == NUM_ENVS
        title = f"rides {num_envs:,} environment{'s' if num_envs > 1 else ''}, insertion prices"
        note = f"{one['cpu_s']:.2f} s CPU{_busy(one['others'], '; ')}"
        say(f"{title}: epoch {one['wall_s']:.2f} s ({one['cpu_s']:.2f} s CPU), {one['memory_mb']:.0f} MB")
        detail = {"cpu_s": one["cpu_s"], "collect_s": one["collect_s"], "update": one["update"]}
        found += [
            Row(f"{title}: epoch of 30 steps each with its update", one["wall_s"], "s",
                EPOCH_TARGET_S if judged else None, "lower", note, detail=detail),
            Row(f"{title}: samples, update included", one["samples"] / one["wall_s"], "samples/s"),
            Row(f"{title}: CPU a sample, update included", cost_ms[num_envs], "ms"),
            Row(f"{title}: resident memory, peak", one["memory_mb"], "MB",
                MEMORY_TARGET_MB if judged else None, "lower"),
        ]  # fmt: skip
    grown = [cost_ms[large] / cost_ms[small] for small, large in zip(list(sizes), list(sizes)[1:], strict=False)]
    name = f"rides CPU a sample over the next smaller size's, worst of {', '.join(f'{n:,}' for n in sizes)}"
    return [*found, Row(name, max(grown), "x", GROWTH_TARGET, "lower", detail={"ratios": grown})]


def epoch_times(num_envs: int, epochs: int, credit: str = "rewards", **options: Any) -> dict[str, Any]:
    """In a process of its own: train for some epochs after an unmeasured small one."""
    import torch

    from shoal.learn.learner import Learner
    from shoal.learn.sizing import choose_threads
    from shoal.tasks.networks import own_network
    from shoal.tasks.presets import config_for
    from shoal.training import make_envs

    own = {"prices": "insertion", "futures": 0, "credit": credit, "start": "none", "held_out_days": 0}
    seen = json.dumps(own)
    update = (
        {}
        if credit == "rebuilt"
        else {"policy_epochs": 8, "value_epochs": 30, "minibatch_size": 128, "learning_rate": 5e-4}
    )
    update |= options
    config = config_for("rides", num_envs=NUM_ENVS, env_kwargs=seen, **update)
    torch.set_num_threads(choose_threads(config.ppo))
    turns: list[dict[str, float]] = []
    collect_s: list[float] = []
    for size, count in ((2, 1), (num_envs, epochs)):
        settled = config.replace(num_envs=size)
        envs = make_envs(settled, None, lambda text: None)
        learner = Learner(settled, envs, own_network=own_network("rides", json.loads(settled.env_kwargs)))
        learner.start()
        turns.clear()
        collect_s.clear()
        for _ in range(count):
            clock = _Clock()
            learner.update(learner.estimate(learner.collect()), 0.0)
            turns.append(clock.read())
            collect_s.append(learner.collecting.take())
        envs.close()
    ppo = config.ppo
    return {
        "samples": num_envs * ppo.rollout_steps,
        "wall_s": statistics.median(turn["wall_s"] for turn in turns),
        "cpu_s": statistics.median(turn["cpu_s"] for turn in turns),
        "least_cpu_s": min(turn["cpu_s"] for turn in turns),
        "others": statistics.median(turn["others"] for turn in turns),
        "collect_s": statistics.median(collect_s),
        "memory_mb": _peak_mb(),
        "update": f"{ppo.policy_epochs} policy, {ppo.value_epochs} value epochs, minibatch {ppo.minibatch_size}",
    }


def offers(say: Say, count: int = OFFERS) -> list[Row]:
    """What `shoal rides offer` takes once it has loaded: the first call of a day, with most to come, and the last."""
    import torch

    from shoal.rides.desk.offer import Booked

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        negotiator = briefly_trained(folder)
        source = negotiator.desk().world.days("held_out")
        spent_ms: dict[int, list[float]] = {0: [], source.draw(0).customers - 1: []}
        for seed in range(count + 3):
            day = source.draw(seed)
            for call, spent in spent_ms.items():
                began = time.process_time()
                booked = Booked.of(day).until(call)
                negotiator.offer(booked, day.requests[call], int(day.rider[call]), int(day.purpose[call]))
                spent.append(1000 * (time.process_time() - began))
        negotiator.desk().close()
    torch.set_num_threads(before)
    found = []
    for call, spent in spent_ms.items():
        sorted_ms = sorted(spent[3:])  # the first ones compile
        value, median = sorted_ms[int(0.95 * len(sorted_ms))], statistics.median(sorted_ms)
        say(f"an offer, call {call + 1} of a day: {median:.1f} ms, 95 of 100 within {value:.1f} ms")
        name = f"rides offer after loading, call {call + 1} of a day, CPU"
        note = "by a trained network with 32 futures; what was booked before is planned anew; 95th percentile"
        detail = {"median": median, "longest": sorted_ms[-1]}
        found.append(Row(name, value, "ms", OFFER_TARGET_MS, "lower", note, detail=detail))
    return found


def briefly_trained(folder: str) -> Any:
    """The network of a run of one epoch, as the booking screen would load it."""
    from io import StringIO

    from shoal.rides.policies.learned import Negotiator
    from shoal.training import train

    result = train("rides", num_envs=2, epochs=1, env_threads=1, runs_dir=folder, stream=StringIO())
    return Negotiator(result.run, runs_dir=folder)


class _Clock:
    """Wall, own CPU, and the share of the cores that other programs had meanwhile."""

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time(), machine_busy_s()

    def read(self) -> dict[str, float]:
        wall, cpu, busy = self._began
        wall_s, cpu_s = time.perf_counter() - wall, time.process_time() - cpu
        others = max(machine_busy_s() - busy - cpu_s, 0.0) / (wall_s * cores_usable())
        return {"wall_s": wall_s, "cpu_s": cpu_s, "others": others}


def _peak_mb() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # Linux counts in kilobytes


def _busy(share: float, before: str) -> str:
    return "" if share <= CALM_SHARE else f"{before}other programs had {share:.0%} of the cores: not comparable"
