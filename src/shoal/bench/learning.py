"""What `shoal train ID` learns with no flags, on held-out episodes: Acrobot, Pendulum, MountainCarContinuous."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from shoal.bench import stored
from shoal.bench.contest import in_fresh_process
from shoal.bench.rows import Row

NAME, EPISODES = "classic_control", 100
BARS = {"Acrobot-v1": -100.0, "Pendulum-v1": -300.0, "MountainCarContinuous-v0": 90.0}  # mean return, every seed
SEEDS = (101, 102, 103)
_RUN_S = 3600.0


def rows(say: Callable[[str], None], full: bool) -> list[Row]:
    """A row per task from the stored result; with `full` everything is learnt again."""
    if full:
        return summarise(missing([], say))
    result = stored.read(NAME)
    if result is None:
        note = f"no stored result: python benchmarks/{NAME}.py, or --full"
        return [Row(_title(task), None, "return", bar, note=note) for task, bar in BARS.items()]
    return stored.as_stored(summarise(current(result["runs"])), result)


def missing(
    runs: Sequence[dict[str, Any]],
    say: Callable[[str], None],
    keep: Callable[[list[dict[str, Any]]], None] = lambda runs: None,
) -> list[dict[str, Any]]:
    """`runs` and those still wanting, learnt now; `keep` is handed all of them after each."""
    found = current(runs)
    done = {(run["task"], run["seed"]) for run in found}
    for seed in SEEDS:  # seed by seed over all tasks, so that an early stop leaves something of each
        for task in BARS:
            if (task, seed) not in done:
                found.append(in_fresh_process("shoal.bench.learning:learn", _RUN_S, task=task, seed=seed))
                say(f"{task}, seed {seed}: {found[-1]['mean']:.1f} on {EPISODES} held-out episodes, "
                    f"{found[-1]['steps']:,} steps, {found[-1]['wall_s']:.0f} s")  # fmt: skip
                keep(found)
    return found


def current(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those made with the settings that `shoal train` has now: others must not be pooled with them."""
    hashes = {task: settings_hash(task) for task in BARS}
    return [run for run in runs if hashes.get(run["task"]) == run["settings"]]


def settings_hash(task: str) -> str:
    """Of all options of `shoal train TASK`."""
    from shoal.config import to_dict
    from shoal.tasks.presets import config_for

    return hashlib.sha256(json.dumps(to_dict(config_for(task)), sort_keys=True).encode()).hexdigest()[:16]


def learn(task: str, seed: int) -> dict[str, Any]:
    """In a process of its own: train with no flags but the seed, then score on episodes never seen."""
    from shoal.evaluate import evaluate
    from shoal.train import train

    with tempfile.TemporaryDirectory() as folder:
        result = train(task, seed=seed, runs_dir=folder, stream=StringIO())
        score = evaluate(result.run, episodes=EPISODES)
    return {
        "task": task,
        "seed": seed,
        "mean": score["mean"],
        "interval": [score["low"], score["high"]],
        "steps": result.steps,
        "wall_s": round(result.wall_s, 1),
        "cpu_s": round(result.cpu_s, 1),
        "settings": settings_hash(task),
        **stored.stamp(),
    }


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """The worst seed of each task against its bar, with every seed's value; too few seeds have no value."""
    found = []
    for task, bar in BARS.items():
        means = {run["seed"]: run["mean"] for run in runs if run["task"] == task}
        enough = len(means) >= len(SEEDS)
        note = "" if enough else f"{len(means)} of {len(SEEDS)} seeds stored for the present settings"
        detail = {"means": {str(seed): round(mean, 2) for seed, mean in means.items()}}
        value = min(means.values()) if enough else None
        found.append(Row(_title(task), value, "return", bar, note=note, detail=detail, seeds=list(means)))
    return found


def _title(task: str) -> str:
    return f"{task}, no flags: mean return of {EPISODES} held-out episodes, worst of {len(SEEDS)} seeds"
