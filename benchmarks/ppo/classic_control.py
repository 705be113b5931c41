"""What `shoal train ID` learns with no flags, on held-out episodes: Acrobot, Pendulum, MountainCarContinuous.

    python -m benchmarks.ppo.classic_control [--store]

With --store it learns what is wanting, stores after every seed and goes on where it was stopped; what was learnt with
other settings is learnt again. Without, it shows what is stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.interleave import in_fresh_process
from benchmarks.harness.rows import Row
from benchmarks.harness.stored import settings_hash

PLACE, NAME, EPISODES = "benchmarks.ppo.classic_control", "classic_control", 100
TARGETS = {"Acrobot-v1": -100.0, "Pendulum-v1": -300.0, "MountainCarContinuous-v0": 90.0}  # mean return, every seed
SEEDS = (101, 102, 103)
_RUN_S = 3600.0


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """A row per task from the stored result; with `full` everything is learnt again."""
    if full:
        return summarise(missing([], say))
    result = stored.read(NAME)
    if result is None:
        note = f"nothing stored: python -m {PLACE} --store, or --full"
        return [Row(_title(task), None, "return", target, note=note) for task, target in TARGETS.items()]
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
        for task in TARGETS:
            if (task, seed) not in done:
                found.append(in_fresh_process("benchmarks.ppo.classic_control:learn", _RUN_S, task=task, seed=seed))
                say(f"{task}, seed {seed}: {found[-1]['mean']:.1f} on {EPISODES} held-out episodes, "
                    f"{found[-1]['steps']:,} steps, {found[-1]['wall_s']:.0f} s")  # fmt: skip
                keep(found)
    return found


def current(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those made with the settings that `shoal train` has now: others must not be pooled with them."""
    hashes = {task: settings_hash(task) for task in TARGETS}
    return [run for run in runs if hashes.get(run["task"]) == run["settings"]]


def learn(task: str, seed: int) -> dict[str, Any]:
    """In a process of its own: train with no flags but the seed, then score on episodes never seen."""
    from shoal.evaluation import evaluate
    from shoal.training import train

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
    """The worst seed of each task against its target, with every seed's value; too few seeds have no value."""
    found = []
    for task, target in TARGETS.items():
        means = {run["seed"]: run["mean"] for run in runs if run["task"] == task}
        enough = len(means) >= len(SEEDS)
        note = "" if enough else f"{len(means)} of {len(SEEDS)} seeds stored for the present settings"
        detail = {"means": {str(seed): round(mean, 2) for seed, mean in means.items()}}
        value = min(means.values()) if enough else None
        found.append(Row(_title(task), value, "return", target, note=note, detail=detail, seeds=list(means)))
    return found


def _title(task: str) -> str:
    return f"{task}, no flags: mean return of {EPISODES} held-out episodes, worst of {len(SEEDS)} seeds"


def keep(runs: list[dict[str, Any]]) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(runs), runs=runs)


def main() -> None:
    if stored.storing(stored.arguments(__doc__).parse_args()):
        missing(stored.runs(NAME), stored.print_line, keep)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
