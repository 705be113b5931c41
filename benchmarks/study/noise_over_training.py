"""The noise scale while a policy learns: how many environments are worth having, predicted by the meter in every run.

Trainings as in the study of 64 against 256 environments (arms.py), 256 environments each, and a look at every update
instead of every so many. Goes on where it was stopped; every seed's figures are stored, by tenths of the training.

    python -m benchmarks.study.noise_over_training [--tasks cartpole cage2 rides] [--seeds 2] [--work DIR] [--store]
"""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.study.arms import BY_NAME, SEED
from shoal.callbacks import Callback, Training
from shoal.core.seeds import derived_seed
from shoal.learn.noise import NoiseMeter
from shoal.runs.disk import read_json
from shoal.runs.folder import Run
from shoal.training import train

PLACE, NAME = "benchmarks.study.noise_over_training", "noise_over_training"
WORK = Path("runs/noise_over_training")
TASKS, ENVS, PARTS = ("cartpole", "cage2", "rides"), 256, 5


class EveryUpdate(NoiseMeter):
    """Looks at every update."""

    def due(self, passes: int, gradient_steps: int) -> bool:
        return True


class Look(Callback):
    """Puts that meter in the place of the run's own."""

    def on_start(self, training: Training) -> None:
        learner = training.learner
        learner.meter = learner.ppo.meter = EveryUpdate(learner.env.num_envs)


@dataclass(frozen=True)
class Watched:
    """One training: variance and signal of its looks, and the return, by parts of the training."""

    task: str
    seed: int
    variance: list[float]
    signal: list[float]
    returns: list[float | None]
    updates: int
    stamp: dict[str, Any]  # the code, the machine and the day of the training

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "stamp"} | self.stamp

    def scales(self) -> list[float | None]:
        """The noise scale of each part; None where no signal was seen above the noise."""
        pairs = zip(self.variance, self.signal, strict=True)
        return [variance / signal if signal > 0 else None for variance, signal in pairs]


def watch(task: str, place: int, work: Path) -> Watched:
    """Train once, or read the training that is there."""
    part, name, seed = BY_NAME[task], f"{task}-{place}", derived_seed(SEED, place)
    if not ((work / name).exists() and Run.open(name, work).status == "finished"):
        config = dict(part.configs())[str(ENVS)].replace(seed=seed, name=name, runs_dir=str(work))
        if (work / name).exists():
            Run.open(name, work).remove()
        train(config=config, callbacks=[Look()], stream=io.StringIO(), command=f"python -m {PLACE}")
    run = Run.open(name, work)
    code, status = read_json(run.path / "code.json"), read_json(run.path / "status.json")
    stamp = {"commit": code["commit"], "dirty": code["dirty"], "date": status["at"][:10], "machine": stored.machine()}
    rows = [row for row in run.metrics() if row.get("noise/variance") is not None]
    parts = [[rows[int(i)] for i in places] for places in np.array_split(np.arange(len(rows)), PARTS)]
    return Watched(
        task, seed,
        [math.fsum(row["noise/variance"] for row in part) / len(part) for part in parts],
        [math.fsum(row["noise/signal"] for row in part) / len(part) for part in parts],
        [part[-1].get("return/mean_100") for part in parts],
        len(rows),
        stamp,
    )  # fmt: skip


def summarise(found: Sequence[Watched]) -> list[Row]:
    """The noise scale of each fifth of the training, pooled over seeds: mean variance over mean signal."""
    rows = []
    for task in dict.fromkeys(one.task for one in found):
        own = [one for one in found if one.task == task]
        for part in range(PARTS):
            variance, signal = (
                float(np.mean([getattr(one, name)[part] for one in own])) for name in ("variance", "signal")
            )
            each = ", ".join("above sight" if (s := one.scales()[part]) is None else f"{s:,.3g}" for one in own)
            title = f"noise scale, {task}, {ENVS} environments, part {part + 1} of {PARTS} of the training"
            note = f"seeds: {each}"
            rows.append(Row(title, variance / signal if signal > 0 else None, "environments", note=note))
    return rows


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` it is made anew."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise([watch(task, place, Path(folder)) for place in range(2) for task in TASKS])
    return stored.read_rows(NAME, PLACE)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--work", type=Path, default=WORK)
    given = parser.parse_args()
    store, found = stored.storing(given), []
    for place in range(given.seeds):
        for task in given.tasks:
            found.append(one := watch(task, place, given.work))
            stored.print_line(
                f"{task} seed {place}: {[s and round(s, 1) for s in one.scales()]}, returns {one.returns}"
            )
            if store:
                parts = [each.to_json() for each in found]
                stored.write(NAME, f"python -m {PLACE} --store", summarise(found), parts=parts)
    stored.show(summarise(found))


if __name__ == "__main__":
    main()
