"""What the study of 64 against 256 environments settles, in words, from the stored figures of its runs.

python -m benchmarks.study.verdicts [PART ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness import stored
from benchmarks.harness.rows import Row
from benchmarks.study.arms import BY_NAME, PARTS
from shoal.comparison.api import Comparison, check_poolable, judged
from shoal.comparison.facts import AXES, RunFacts
from shoal.comparison.metrics import BY_NAME as METRICS
from shoal.comparison.metrics import Frame, values_of
from shoal.comparison.verdicts import as_ratio, shares
from shoal.comparison.words import amount, sentence

NAME, FIRST = "num_envs_study", "64"
Facts = Mapping[str, Mapping[str, Sequence[RunFacts]]]  # part -> arm -> runs


def facts_of(parts: Mapping[str, Any]) -> dict[str, dict[str, list[RunFacts]]]:
    """The runs of a stored study."""
    return {
        name: {arm: [RunFacts.from_json(run) for run in runs] for arm, runs in arms.items()}
        for name, arms in parts.items()
    }


def judge(part: str, found: Facts) -> Comparison | None:
    """The arms of a part against 64 environments, with the seeds that are there of all of them."""
    arms = arms_of(part, found)
    return None if arms is None else judged(BY_NAME[part].task, arms, "final", BY_NAME[part].threshold)


def reached(part: str, found: Facts) -> dict[str, dict[str, int]]:
    """Of each axis and arm of a part: how many of its runs came to the threshold."""
    arms = arms_of(part, found)
    if arms is None:
        return {}
    frame = Frame.of([run for runs in arms.values() for run in runs], BY_NAME[part].threshold)
    return {axis: {name: hits for name, (hits, _) in shares(arms, frame, axis).items()} for axis in AXES}


def arms_of(part: str, found: Facts) -> dict[str, list[RunFacts]] | None:
    """64 environments first, then the part's own arms; None where there is nothing to compare."""
    task = BY_NAME[part].task
    arms = {name: list(runs) for name, runs in found.get(part, {}).items()}
    if FIRST not in arms:
        base = next((other.name for other in PARTS if other.task == task and FIRST in other.arms), "")
        arms = {FIRST: list(found.get(base, {}).get(FIRST, [])), **arms}
    arms = {name: runs for name, runs in arms.items() if runs}
    if FIRST not in arms or len(arms) < 2:
        return None
    check_poolable(arms)
    if len({run.code for runs in arms.values() for run in runs}) > 1:
        return None  # the arms would differ in their code too
    seeds = set.intersection(*({run.seed for run in runs} for runs in arms.values()))
    return {name: [run for run in runs if run.seed in seeds] for name, runs in arms.items()}


def rows(parts: Mapping[str, Any]) -> list[Row]:
    """A row for every claim of every part, its verdict in words."""
    found, rows = facts_of(parts), []
    for part in parts:
        wanted = BY_NAME[part].seeds * len(BY_NAME[part].arms)
        there = sum(map(len, found[part].values()))
        rows.append(Row(f"{part}: trainings", float(there), "runs", note=f"of {wanted}"))
        comparison = judge(part, found)
        if comparison is None:
            continue
        frame = comparison.frame
        for one in comparison.verdicts:
            if one.effect is None:
                continue  # such as the noise scale, whose meter came later than the first of these runs
            metric, effect = METRICS[one.metric], one.effect
            ratio = as_ratio if metric.ratio else float
            detail = {
                "verdict": one.verdict,
                "difference": amount(one),
                "p": None if one.p is None else round(one.p, 4),
                "seeds": min(one.first.runs, one.second.runs),
                "levels": [_rounded(ratio(level.value)) for level in (one.first, one.second)],
                "share": None if effect is None or metric.ratio else _share(effect.value, one.first.value),
                "each": {
                    arm: [_rounded(value) for value in values_of(one.metric, comparison.arms[arm], frame).values()]
                    for arm in (one.against, one.arm)
                },
            }  # fmt: skip
            value = None if effect is None else ratio(effect.value)
            title = f"{part}, {one.arm} environments against {one.against}: {metric.label}"
            rows.append(
                Row(
                    title,
                    value,
                    "times" if metric.ratio else metric.unit,
                    note=sentence(one).strip(" *"),
                    detail=detail,
                )
            )
        rows += _reached(part, comparison, frame)
    return rows


def _reached(part: str, comparison: Comparison, frame: Frame) -> list[Row]:
    """The threshold, and how many runs came to it."""
    if frame.threshold is None:
        return []
    hits = comparison.to_json()["reached"]["steps"]
    note = "; ".join(f"{arm}: {reached} of {runs} runs reached it" for arm, (reached, runs) in hits.items())
    return [Row(f"{part}: threshold, mean training return", frame.threshold, "", note=note)]


def _share(value: float, first: float) -> float | None:
    return round(100 * value / first, 1) if first > 0 else None


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[part.name for part in PARTS])
    result = stored.read(NAME)
    if result is None:
        parser.error("nothing is stored yet: python -m benchmarks.study.num_envs_study --store")
    for part in parser.parse_args().parts:
        comparison = judge(part, facts_of(result["parts"]))
        stored.print_line("\n".join(comparison.lines()) + "\n" if comparison else f"{part}: nothing stored yet")


if __name__ == "__main__":
    main()
