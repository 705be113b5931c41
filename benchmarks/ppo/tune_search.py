"""Does `shoal tune CartPole-v1 --search --trials 20` find settings as good as the shipped ones, and how soon?

python -m benchmarks.ppo.tune_search [--work DIR] [--store]

Measured by CPU-seconds to a mean return of 475, median of seeds that the trials have not seen; the shipped settings are
trained with the same seeds. A search that was stopped goes on.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row

PLACE, NAME = "benchmarks.ppo.tune_search", "tune_search"
TASK, TRIALS, SEEDS, LIMIT_S = "CartPole-v1", 20, 5, 600.0


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result; with `full` the search is made again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise(searched(Path(folder) / "search", say))
    return stored.read_rows(NAME, PLACE)


def searched(folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """The search and what it took. Wall time is of this sitting: 0 finished trials were there before."""
    from shoal.tuning.loop import SearchPlan, search

    begun = folder.exists()
    wall, cpu, load = time.perf_counter(), time.process_time(), os.getloadavg()[0]
    found = search(SearchPlan(TASK, trials=TRIALS, measure="cpu", seeds=SEEDS), folder, say)
    took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "load_before": round(load, 2)}
    return {**found.to_json(), **took, "in_one_go": not begun, "folder": ""}


def summarise(found: dict[str, Any]) -> list[Row]:
    """The best settings that the search found against the shipped ones, which are no find of its own; and the time."""
    own = next(final for final in found["finals"] if final["own"])
    others = [final for final in found["finals"] if not final["own"]]
    title = f"tune {TASK} --search, {TRIALS} trials"
    name = f"{title}: CPU-seconds to 475, best found relative to shipped, median of {SEEDS} seeds"
    shipped = ", ".join(f"{value:.2f}" for value in own["values"])
    ratio, note = None, f"no trial but the shipped settings came to the finals; shipped {shipped}"
    if others:
        best = min(others, key=lambda final: median(final["values"]))
        ratio = median(best["values"]) / median(own["values"])
        values = ", ".join(f"{value:.2f}" for value in best["values"])
        told = "at least as good as" if ratio <= 1.0 else "not as good as"
        note = f"found {values}; shipped {shipped}; {told} the shipped settings: {_flags(best['settings'])}"
    sitting = "" if found["in_one_go"] else "; it was stopped in between"
    return [
        Row(name, ratio, "x", 1.0, "lower", note=note, detail={"finals": found["finals"]}),
        Row(f"{title}: wall time with finalists", found["wall_s"], "s", LIMIT_S, "lower",
            note=f"{found['cpu_s']:.0f} CPU-s, load {found['load_before']} before{sitting}"),
    ]  # fmt: skip


def _flags(settings: dict[str, Any]) -> str:
    from shoal.tuning.space import flags

    return flags(settings)


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-tune-search")
    given = parser.parse_args()
    if stored.storing(given):
        found = searched(given.work, stored.print_line)
        stored.write(NAME, f"python -m {PLACE} --store", summarise(found), search=found)
    stored.show(rows(stored.print_line))


if __name__ == "__main__":
    main()
