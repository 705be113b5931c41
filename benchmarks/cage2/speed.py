"""Simulator speed of cage2: random Blue, observations included, B_line and Meander.

Actions are drawn beforehand. Each figure is the best of ROUNDS short rounds, since anything else that runs on the
machine only ever makes a round slower; the median of the rounds stands beside it. Single-threaded rounds are timed
with the process's own CPU clock. What two threads gain is the median of turns that one and two take.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.harness.rows import Row
from shoal.cage2.simulator.env import make_vec

ROUNDS = 15
STEPS_A_ROUND = 400_000  # environment steps
TARGETS = {"plain": 8e6, "memory": 2.5e6}  # steps/s on one core
THREADED = 1.7  # times one thread, at 4,096 environments


def rates(num_envs: int, features: str, red: str) -> list[float]:
    """Steps per second of each round."""
    envs = make_vec(num_envs, red=red, features=features, mask="none")
    actions = np.random.default_rng(0).integers(0, 145, (100, num_envs))  # int64[100, N], used round and round
    out, _ = envs.reset(seed=0)
    calls = max(1, STEPS_A_ROUND // num_envs)
    for call in range(100):  # past the quiet first steps of an episode
        envs.step(actions[call], out=out)
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for call in range(calls):
            envs.step(actions[call % 100], out=out)
        found.append(calls * num_envs / (time.process_time() - began))
    envs.close()
    return found


def threaded_gains(num_envs: int, red: str, turns: int = 45) -> list[float]:
    """What two threads gain, turn by turn: both step for a tenth of a second, so that a slow moment touches both.

    The first steps of a turn are left out: threads that slept through the other's turn begin on the same core.
    """
    teams = [make_vec(num_envs, threads=threads, red=red, features="plain", mask="none") for threads in (1, 2)]
    actions = np.random.default_rng(0).integers(0, 145, (100, num_envs))  # int64[100, N], used round and round
    outs = [envs.reset(seed=0)[0] for envs in teams]
    found = []
    for _ in range(turns):
        spent = []
        for envs, out in zip(teams, outs, strict=True):
            for call in range(600):
                if call == 100:
                    began = time.perf_counter()
                envs.step(actions[call % 100], out=out)
            spent.append(time.perf_counter() - began)
        found.append(spent[0] / spent[1])
    for envs in teams:
        envs.close()
    return found


def rows(say: Callable[[str], None]) -> list[Row]:
    """One row per features, red and number of environments, and the gain of two threads."""
    found_rows = []
    for features, target in TARGETS.items():
        for red in ("bline", "meander"):
            for num_envs in (256, 4096):
                found = rates(num_envs, features, red)
                name = f"cage2 {features}, {red}, {num_envs} environments, one core"
                found_rows.append(_row(name, max(found), "steps/s", target, statistics.median(found)))
                say(name)
    for red in ("bline", "meander"):
        gains = threaded_gains(4096, red)
        name = f"cage2 plain, {red}, 4096 environments, two threads over one"
        detail = {"low": min(gains), "high": max(gains), "rounds": [round(gain, 3) for gain in gains]}
        found_rows.append(Row(name, statistics.median(gains), "x", THREADED, detail=detail))
        say(f"{name}: {statistics.median(gains):.2f}x")
    return found_rows


def _row(name: str, value: float, unit: str, target: float, median: float) -> Row:
    return Row(name, value, unit, target, detail={"median": median})
