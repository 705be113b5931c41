"""Scores under the rules of the published leaderboard: the scripted defender and `shoal train cage2`, three seeds.

    python -m benchmarks.cage2.final_rules [--seeds 201 202 203] [--work DIR] [--store]

PPO trains under the present rules with no flags but the seed; each policy is scored under both rules, 1,000 episodes in
each of the nine cells, as the challenge does. With --store it stores after every seed and goes on where it was
stopped, in the middle of a training too. Without, it shows what is stored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.harness.stored import settings_hash

PLACE, NAME, EPISODES = "benchmarks.cage2.final_rules", "final_rules", 1000
SCRIPTED, SCORED_WITH = "decoy-first", 2027
SEEDS = (201, 202, 203)
# CardiffUni's row of the leaderboard and the half-width of its 95 % interval; "intervals apart" is against its upper
# end (docs/cage2.md has the link).
PUBLISHED, HALF_WIDTH = -54.57, 0.43
RULES = ("final", "present")


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` every seed is learnt again."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            return summarise([scripted(), *(learn(seed, Path(folder), say) for seed in SEEDS)])
    result = stored.read(NAME)
    return summarise([]) if result is None else stored.as_stored(summarise(result["runs"]), result)


def summarise(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Each defender under the final rules against the best published sum, by the lower end of its interval."""
    found = []
    learnt = [run for run in runs if run["who"] == "ppo" and run["settings"] == settings_hash("cage2")]
    by_hand = [run for run in runs if run["who"] == SCRIPTED]
    titles = ((SCRIPTED, by_hand, 1), (f"PPO from scratch, worst of {len(SEEDS)} seeds", learnt, len(SEEDS)))
    for title, some, wanted in titles:
        name = f"cage2 under the final rules, {title}"
        if not some:
            found.append(Row(name, None, "sum", PUBLISHED, note=f"nothing stored: python -m {PLACE} --store"))
            continue
        note = ", ".join(_told(run, "final") for run in some)
        if len(some) < wanted:
            note += f"; {len(some)} of {wanted} seeds so far"
        worst = min(run["final"]["sum"]["mean"] for run in some)
        low = min(run["final"]["sum"]["low"] for run in some)
        seeds = tuple(run["seed"] for run in some)
        found.append(Row(name, worst, "sum", PUBLISHED, note=note, seeds=seeds))
        found.append(Row(f"{name}, lower end of the interval", low, "sum", PUBLISHED + HALF_WIDTH, seeds=seeds))
        present = ", ".join(_told(run, "present") for run in some)
        mean = sum(run["present"]["sum"]["mean"] for run in some) / len(some)
        title = title.replace("worst of", "mean of")
        found.append(Row(f"cage2 under the present rules, {title}", mean, "sum", note=present, seeds=seeds))
    return found


def _told(run: dict[str, Any], rules: str) -> str:
    total = run[rules]["sum"]
    who = SCRIPTED if run["who"] == SCRIPTED else f"seed {run['seed']}"
    return f"{who}: {total['mean']:.2f} [{total['low']:.2f}, {total['high']:.2f}]"


def scripted() -> dict[str, Any]:
    """The hand-written defender."""
    from shoal.cage2.commands import score

    found = {rules: _kept(score(SCRIPTED, EPISODES, SCORED_WITH, rules=rules)) for rules in RULES}
    return {"who": SCRIPTED, "seed": SCORED_WITH, "episodes": EPISODES, **found, **stored.stamp()}


def learn(seed: int, work: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Train, or go on training, and score."""
    from shoal.cage2.evaluate import leaderboard
    from shoal.runs.folder import Run
    from shoal.training import train

    folder = work / f"seed-{seed}"
    begun = folder.is_dir()
    if not begun or Run.open(folder, work).status != "finished":
        say(f"seed {seed}: {'goes on' if begun else 'begins'}")
        options: dict[str, Any] = (
            {"resume": folder} if begun else {"task": "cage2", "seed": seed, "runs_dir": str(work), "name": folder.name}
        )
        if train(stream=StringIO(), **options).status != "finished":
            raise KeyboardInterrupt
    last = Run.open(folder, work).last_row() or {}
    found = {
        rules: _kept(leaderboard(folder, episodes=EPISODES, seed=seed, rules=rules, keep=False)) for rules in RULES
    }
    say(f"seed {seed}: {found['final']['sum']['mean']:.2f} under the final rules")
    return {
        "who": "ppo", "seed": seed, "episodes": EPISODES, "steps": last["steps"],
        "wall_s": round(last["time/elapsed_s"], 1), "cpu_s": round(last["time/cpu_s"], 1),
        **found, "settings": settings_hash("cage2"), **stored.stamp(),
    }  # fmt: skip


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("rules", "simulator", "sum", "cells")}


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "shoal-cage2-final")
    given = parser.parse_args()
    if stored.storing(given):
        kept = [run for run in stored.runs(NAME) if run["who"] == SCRIPTED or run["settings"] == settings_hash("cage2")]
        if SCRIPTED not in {run["who"] for run in kept}:
            kept.append(scripted())
            keep(kept)
        for seed in given.seeds:
            if ("ppo", seed) not in {(run["who"], run["seed"]) for run in kept}:
                kept.append(learn(seed, given.work, stored.print_line))
                keep(kept)
    stored.show(rows(stored.print_line))


def keep(runs: Sequence[dict[str, Any]]) -> None:
    """Store what there is."""
    stored.write(NAME, f"python -m {PLACE} --store", summarise(runs), runs=list(runs))


if __name__ == "__main__":
    main()
