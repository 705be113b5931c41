"""Do two ranks learn what one process learns? cage2, 512 environments, the same seeds, whole learning curves.

python -m benchmarks.vector.rank_learning [--store]

The update of two ranks is that of one process within rounding (tests/ranks), so the curves of a seed run together at
first and then part as two trainings do that differ in a last digit. By how much must not depend on the ranks: the mean
difference over seeds is compared with the spread between the seeds of one process.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.vector.rank_speed import one_process, two_ranks

Say = Callable[[str], None]
Curve = list[tuple[int, float]]  # (steps, mean return of the last 100 episodes)
NAME, SEEDS, EPOCHS, PARTS = "rank_learning", (201, 202, 203, 204, 205), 12, 4
FLAGS = ("train", "cage2", "--num-envs", "512", "--epochs", str(EPOCHS), "--save-interval", "100")


def rows(say: Say, full: bool = False) -> list[Row]:
    """The stored result; with `full` everything is trained again."""
    if not full:
        return stored.read_rows(NAME, f"benchmarks.vector.{NAME}")
    return measured(say)


def measured(say: Say) -> list[Row]:
    """Both learning curves of every seed, by quarters of the training."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-ranks-"))
    curves: dict[str, list[Curve]] = {"one": [], "two": []}
    try:
        for seed in SEEDS:
            for who, start in (("one", one_process), ("two", two_ranks)):
                run = start(folder, f"{who}-{seed}", (*FLAGS, "--seed", str(seed)))
                curves[who].append(curve_of(run))
                say(f"seed {seed}, {who}: {quarters(curves[who][-1])}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return summarise(curves)


def summarise(curves: dict[str, list[Curve]]) -> list[Row]:
    """For each quarter the mean difference over the spread of one process's seeds; 1 is the noise of a seed.

    >>> one = [[(1, 0.0)] * 4, [(1, 2.0)] * 4, [(1, 4.0)] * 4]
    >>> [row.value for row in summarise({"one": one, "two": [[(1, 1.0)] * 4] * 3})]
    [0.5, 0.5, 0.5, 0.5]
    """
    one, two = ([quarters(curve) for curve in curves[who]] for who in ("one", "two"))
    found = []
    for part in range(PARTS):
        ours, theirs = ([curve[part] for curve in some] for some in (two, one))
        gap = statistics.fmean(a - b for a, b in zip(ours, theirs, strict=True))
        found.append(
            Row(
                f"two ranks beside one process, cage2, quarter {part + 1} of the training: difference of the mean "
                "returns over the spread between seeds",
                abs(gap) / statistics.stdev(theirs), "x", 1.0, "lower",
                note=f"one process {statistics.fmean(theirs):.1f}, two ranks {statistics.fmean(ours):.1f}",
                detail={"one process": theirs, "two ranks": ours}, seeds=SEEDS,
            )
        )  # fmt: skip
    return found


def quarters(curve: Sequence[tuple[int, float]]) -> list[float]:
    """Mean return in each quarter of the training.

    >>> quarters([(1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0)])
    [1.0, 2.0, 3.0, 4.0]
    """
    each = len(curve) // PARTS
    return [round(statistics.fmean(y for _, y in curve[i * each : (i + 1) * each]), 2) for i in range(PARTS)]


def curve_of(run: Path) -> Curve:
    """Mean return of the last 100 episodes, by epoch."""
    lines = (json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())
    return [(line["steps"], line["return/mean_100"]) for line in lines if line["return/mean_100"] is not None]


if __name__ == "__main__":
    given = stored.arguments(__doc__).parse_args()
    stored.measure(f"benchmarks.vector.{NAME}", measured, stored.storing(given))
