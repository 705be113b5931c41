"""What more environments do to speed and memory: 1, 16, 64, 256 and 1,024 of them, whole epochs of training.

Each number of environments of each task is a process of its own, one after another and, if asked, round after round.
An epoch collects, estimates and updates with the task's preset. Samples per CPU-second count workers too and hardly
depend on what else the machine does; samples per second do. Memory is measured as what is added to the proportional set
size of the process and its workers, step by step.

    python -m benchmarks.study.scaling [--rounds 1] [--tasks NAME ...] [--store]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.harness.synthetic import Synthetic
from benchmarks.study.arms import RIDES

PLACE, NAME = "benchmarks.study.scaling", "scaling"
NUMBERS = (1, 16, 64, 256, 1024)
EPOCHS = 2  # timed, after one that is not
# (task, options, environment from Python)
TASKS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "CartPole-v1, process": ("CartPole-v1", {"backend": "process"}, None),
    "CartPole, compiled": ("shoal/CartPole-v1", {"backend": "compiled"}, None),
    "cage2": ("cage2", {}, None),
    "rides, insertion prices": ("rides", RIDES, None),
    "synthetic 500 us, process": (
        "synthetic", {"backend": "process", "rollout_steps": 8}, functools.partial(Synthetic, 500.0)
    ),
}  # fmt: skip


def measure(name: str, count: int) -> dict[str, Any]:
    """In this process: epochs of one task with so many environments."""
    import torch

    from shoal.learn.learner import Learner
    from shoal.runs.usage import Clock
    from shoal.starting import make_envs, settle
    from shoal.tasks.networks import own_network
    from shoal.tasks.presets import config_for, config_without_preset

    task, options, env = TASKS[name]
    torch.set_num_threads(1)
    workers = {"workers": min(count, len(os.sched_getaffinity(0)))} if options.get("backend") == "process" else {}
    maker = config_for if env is None else config_without_preset
    config = settle(
        maker(task, **{**options, **workers, "num_envs": count, "torch_threads": 1}), env, lambda text: None
    )
    warm = torch.zeros(1, requires_grad=True)
    torch.autograd.backward([warm.sum()])
    torch.optim.Adam([warm], fused=True).step()  # what torch loads on first use is nobody's memory
    memory = [_memory_mb()]
    envs = make_envs(config, env, lambda text: None)
    try:
        memory.append(_memory_mb())
        own = own_network(task, json.loads(config.env_kwargs)) if env is None else None
        learner = Learner(config, envs, own_network=own)
        learner.start()
        memory.append(_memory_mb())
        walls, cpus = [], []
        for _ in range(1 + EPOCHS):
            clock = Clock()
            learner.update(learner.estimate(learner.collect()), 0.0)
            walls.append(clock.wall_s())
            cpus.append(clock.cpu_s())
        memory.append(_memory_mb())
    finally:
        envs.close()
    samples = count * config.ppo.rollout_steps
    parts = [round(after - before, 1) for before, after in itertools.pairwise(memory)]
    return {
        "samples": samples, "epoch_s": statistics.median(walls[1:]), "epoch_cpu_s": statistics.median(cpus[1:]),
        "memory_mb": dict(zip(("environments", "rollout and learner", "first updates"), parts, strict=True)),
        "memory_before_mb": round(memory[0], 1),
    }  # fmt: skip


def _memory_mb() -> float:
    """Proportional set size of this process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    tree, total = {os.getpid()}, 0
    while grown := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= grown
    for pid in tree:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def rows_of(parts: Sequence[dict[str, Any]]) -> list[Row]:
    """A row for each task and number, with what each round measured."""
    rows = []
    for name in TASKS:
        own = [part for part in parts if part["task"] == name]
        for count in NUMBERS:
            rounds = [part for part in own if part["count"] == count]
            if not rounds:
                continue
            middle = {key: statistics.median(one[key] for one in rounds) for key in ("epoch_s", "epoch_cpu_s")}
            samples = rounds[0]["samples"]
            detail = {
                "samples": samples, **{key: round(value, 4) for key, value in middle.items()},
                "per_cpu_s": round(samples / middle["epoch_cpu_s"], 1), "memory_mb": rounds[-1]["memory_mb"],
                "before_mb": rounds[-1]["memory_before_mb"], "rounds": len(rounds),
            }  # fmt: skip
            rows.append(Row(f"{name}, {count} environments", samples / middle["epoch_s"], "samples/s", detail=detail))
    return rows


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is measured anew."""
    if full:
        return rows_of([_apart(name, count) for name in TASKS for count in NUMBERS])
    return stored.read_rows(NAME, PLACE)


def _apart(name: str, count: int) -> dict[str, Any]:
    """Measured in a process of its own."""
    command = [sys.executable, "-m", PLACE, "--one", name, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return {"task": name, "count": count, **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=tuple(TASKS))
    parser.add_argument("--one", nargs=2, metavar=("TASK", "COUNT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        stored.print_line(json.dumps(measure(given.one[0], int(given.one[1]))))
        return
    store, load = stored.storing(given), round(os.getloadavg()[0], 2)
    parts = [] if not store else (stored.read(NAME) or {"parts": []})["parts"]
    parts = [part for part in parts if part["task"] not in given.tasks]
    for _ in range(given.rounds):
        for name in given.tasks:
            for count in NUMBERS:
                parts.append(_apart(name, count))
                stored.print_line(json.dumps(parts[-1]))
                if store:
                    stored.write(NAME, f"python -m {PLACE} --store", rows_of(parts), load_before=load, parts=parts)
    stored.show(rows_of(parts))


if __name__ == "__main__":
    main()
