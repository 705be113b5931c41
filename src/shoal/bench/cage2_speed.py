"""Simulator speed of cage2: random Blue, observations included, B_line and Meander.

Actions are drawn beforehand. Each figure is the best of ROUNDS short rounds, since anything else that runs on the
machine only ever makes a round slower; the median of the rounds stands beside it. Single-threaded rounds are timed
with the process's own CPU clock, threaded ones with the wall clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.bench.rows import Row
from shoal.tasks.cage2.env import make_vec

ROUNDS = 15
STEPS_A_ROUND = 400_000  # environment steps
BARS = {"plain": 8e6, "memory": 2.5e6}  # steps/s on one core
THREADED = 1.7  # times one thread, at 4,096 environments


def rates(num_envs: int, features: str, red: str, threads: int = 1, clock: Any = time.process_time) -> list[float]:
    """Steps per second of each round."""
    envs = make_vec(num_envs, threads=threads, red=red, features=features, mask="none")
    actions = np.random.default_rng(0).integers(0, 145, (100, num_envs))  # int64[100, N], used round and round
    out, _ = envs.reset(seed=0)
    calls = max(1, STEPS_A_ROUND // num_envs)
    for call in range(100):  # past the quiet first steps of an episode
        envs.step(actions[call], out=out)
    found = []
    for _ in range(ROUNDS):
        began = clock()
        for call in range(calls):
            envs.step(actions[call % 100], out=out)
        found.append(calls * num_envs / (clock() - began))
    envs.close()
    return found


def rows(say: Callable[[str], None]) -> list[Row]:
    """One row per features, red and number of environments, and the gain of two threads."""
    found_rows = []
    for features, bar in BARS.items():
        for red in ("bline", "meander"):
            for num_envs in (256, 4096):
                found = rates(num_envs, features, red)
                name = f"cage2 {features}, {red}, {num_envs} environments, one core"
                found_rows.append(_row(name, max(found), "steps/s", bar, statistics.median(found)))
                say(name)
    for red in ("bline", "meander"):
        # Alternating, so that a slow minute of the machine touches both.
        turns = [[max(rates(4096, "plain", red, threads, time.perf_counter)) for threads in (1, 2)] for _ in range(3)]
        gains = [two / one for one, two in turns]
        name = f"cage2 plain, {red}, 4096 environments, two threads over one"
        found_rows.append(Row(name, statistics.median(gains), "x", THREADED, detail={"rounds": gains}))
    return found_rows


def _row(name: str, value: float, unit: str, bar: float, median: float) -> Row:
    return Row(name, value, unit, bar, detail={"median": median})
