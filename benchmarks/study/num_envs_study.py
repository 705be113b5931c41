"""64 environments against 256, with 16 and 1,024 as a curve: CartPole-v1, cage2 and rides, judged by shoal compare.

Each part (arms.py) is a comparison in the work folder, trained seed by seed; it goes on where it was stopped, and what
is over is stored with every seed's figures and learning curve. Trainings take one thread each. The machine may be
shared: seconds are CPU-seconds of the training, which other work hardly changes.

    python -m benchmarks.study.num_envs_study [--parts NAME ...] [--work DIR] [--only-store] [--store]

`python -m benchmarks.study.verdicts` says what comes of it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.study import verdicts
from benchmarks.study.arms import BY_NAME, PARTS, SEED, Part
from shoal.comparison.api import finish
from shoal.comparison.facts import Curve, RunFacts, source_digest
from shoal.comparison.folder import ComparisonFolder, Job
from shoal.comparison.pilot import speeds_of
from shoal.comparison.plan import Arm, Plan, arms_of
from shoal.config import to_dict
from shoal.runs.disk import read_json
from shoal.runs.folder import Run

PLACE, NAME = "benchmarks.study.num_envs_study", "num_envs_study"
WORK = Path("runs/num_envs_study")
MOST_POINTS = 60  # of a stored learning curve


def plan_of(part: Part, say: Any) -> Plan:
    """The comparison behind a part."""
    arms = tuple(Arm(name, to_dict(config)) for name, config in part.configs())
    if part.match == "wall":
        arms = tuple(arms_of(part.configs(), ["wall"], speeds_of(part.configs(), (), say)))
    return Plan(
        task=part.task, arms=arms, seeds=part.seeds, seed=SEED, held_out=part.held_out, match=part.match,
        primary="final", threshold=part.threshold, code=source_digest(), alone=len(arms) == 1,
    )  # fmt: skip


def train(part: Part, work: Path, say: Any) -> ComparisonFolder:
    """All trainings of a part that are not done yet."""
    path = work / part.name
    folder = ComparisonFolder(Run.open(path, work)) if path.exists() else None
    if folder is None:
        folder = ComparisonFolder.create(plan_of(part, say), str(work), part.name, f"python -m {PLACE}")
    finish(folder, 1, say)
    return folder


def facts(part: Part, work: Path) -> dict[str, list[RunFacts]]:
    """What is there of a part, seconds as CPU-seconds; of one that was alone on the machine, as they are."""
    path = work / part.name
    if not path.exists():
        return {}
    folder = ComparisonFolder(Run.open(path, work))
    plan = folder.plan
    found: dict[str, list[RunFacts]] = {}
    for number, arm in enumerate(plan.arms):
        for place in range(plan.seeds):
            job = Job(number, place)
            if (one := folder.facts(job, plan)) is not None:
                told = _thin(one) if part.match == "wall" else _by_cpu(one, folder.runs / job.name(plan))
                found.setdefault(arm.name, []).append(told)
    return found


def _by_cpu(one: RunFacts, path: Path) -> RunFacts:
    """The same run, its clock that of its process."""
    rows = Run.open(path, path.parent).metrics()
    by_step, past, before = {}, 0.0, 0.0
    for row in rows:
        past += before if row["time/cpu_s"] < before else 0.0  # the clock begins anew where a run was gone on with
        before = row["time/cpu_s"]
        by_step[row["steps"]] = round(past + before, 3)
    seconds = [by_step[step] for step in one.curve.steps]
    return _thin(replace(one, curve=replace(one.curve, seconds=seconds), seconds=past + before))


def _thin(one: RunFacts) -> RunFacts:
    """The same run with fewer points in its curve."""
    keep, curve = _thinned(len(one.curve.steps)), one.curve
    return replace(one, curve=Curve(
        [curve.steps[i] for i in keep], [curve.updates[i] for i in keep], [curve.seconds[i] for i in keep],
        [float(f"{curve.returns[i]:.5g}") for i in keep],
    ))  # fmt: skip


def _thinned(count: int) -> list[int]:
    step = max(1, -(-count // MOST_POINTS))
    return sorted({*range(0, count, step), *([count - 1] if count else [])})


def stamps(part: Part, work: Path) -> list[dict[str, Any]]:
    """The code that trained a part, and when."""
    found = []
    for path in sorted((work / part.name / "runs").iterdir()):
        code, status = read_json(path / "code.json"), read_json(path / "status.json")
        stamp = {"part": part.name, "commit": code["commit"], "dirty": code["dirty"], "date": status["at"][:10]}
        if stamp not in found:
            found.append(stamp)
    return [{**stamp, "machine": stored.machine()} for stamp in found]


def keep(found: dict[str, dict[str, list[RunFacts]]], trained: list[dict[str, Any]]) -> None:
    """Store what there is, over what was stored before of the same parts."""
    result = stored.read(NAME) or {"parts": {}, "trained": []}
    before = result["parts"]
    trained = [*trained, *(one for one in result["trained"] if one["part"] not in found)]
    parts = before | _as_data(found)
    stored.write(NAME, f"python -m {PLACE} --store", verdicts.rows(parts), trained=trained, parts=parts)


def wanted(name: str) -> int:
    """How many trainings a part has in all."""
    return BY_NAME[name].seeds * len(BY_NAME[name].arms)


def rows(say: Callable[[str], None], full: bool = False) -> list[Row]:
    """The stored result, marked as such; with `full` the whole study is made anew, which takes hours."""
    if full:
        with tempfile.TemporaryDirectory() as folder:
            study(PARTS, Path(folder), say)
            found = {part.name: facts(part, Path(folder)) for part in PARTS}
            return verdicts.rows(_as_data(found))
    return stored.read_rows(NAME, PLACE)


def _as_data(found: dict[str, dict[str, list[RunFacts]]]) -> dict[str, Any]:
    return {name: {arm: [one.to_json() for one in runs] for arm, runs in arms.items()} for name, arms in found.items()}


def study(parts: Sequence[Part], work: Path, say: Any) -> None:
    """Train what is missing."""
    for part in parts:
        say(f"{part.name}: {wanted(part.name)} trainings")
        train(part, work, say)


def main() -> None:
    parser = stored.arguments(__doc__)
    parser.add_argument("--parts", nargs="+", choices=tuple(BY_NAME), default=[part.name for part in PARTS])
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--only-store", action="store_true", help="train nothing: store what is in the work folder")
    given = parser.parse_args()
    store, parts = stored.storing(given), [BY_NAME[name] for name in given.parts]
    if not given.only_store:
        study(parts, given.work, stored.print_line)
    found = {part.name: arms for part in parts if (arms := facts(part, given.work))}
    if store:
        keep(found, [stamp for name in found for stamp in stamps(BY_NAME[name], given.work)])
    counts = {name: {arm: len(runs) for arm, runs in arms.items()} for name, arms in found.items()}
    stored.print_line(json.dumps(counts))


if __name__ == "__main__":
    main()
