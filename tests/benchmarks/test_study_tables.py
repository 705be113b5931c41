"""The study's tables: what is not known is said, not shown as a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.harness.figures import Results
from benchmarks.study import tables
from benchmarks.study.arms import BY_NAME


@pytest.mark.parametrize(
    ("reached", "shown"),
    [
        ((5, 0), ["1,850", "not reached"]),
        ((4, 5), ["1,850 or more (4 of 5 reached it)", "3,072"]),
        (None, ["1,850", "3,072"]),  # a claim that is no time
    ],
)
def test_a_training_that_never_came_to_the_threshold_has_no_time(
    reached: tuple[int, int] | None, shown: list[str]
) -> None:
    assert tables._levels([1850.0, 3072.0], reached, 5) == shown


def kept(root: Path, name: str, **content: object) -> Results:
    """A folder of results with one in it."""
    (root / "benchmarks" / "results").mkdir(parents=True)
    (root / "benchmarks" / "results" / f"{name}.json").write_text(json.dumps(content))
    return Results(root)


def test_what_was_not_measured_is_named_in_the_table_of_speeds(tmp_path: Path) -> None:
    """A row for every number of environments of every task, in their order, whatever is stored."""
    detail = {"samples": 480, "epoch_s": 1.5, "per_cpu_s": 300.0, "memory_mb": {"a": 1.0, "b": 2.0, "c": 3.0}}
    row = {"name": "cage2, 16 environments", "value": 320.0, "unit": "samples/s", "detail": detail}
    lines = tables.scaling_table(kept(tmp_path, "scaling", rows=[row])).splitlines()[2:]
    assert len(lines) == 25
    assert sum("| not measured |" in line for line in lines) == 24
    assert next(line for line in lines if "320" in line).startswith("| cage2, 16 | 480 |")
    assert "| rides, insertion prices, 1024 | not measured |" in "\n".join(lines)


def test_the_budgets_are_those_that_the_study_is_defined_with(tmp_path: Path) -> None:
    """The pages read them from there."""
    steps = {task: BY_NAME[task].common["steps"] for task in tables.TASKS}
    results = kept(
        tmp_path, "num_envs_study",
        parts={task: {"64": [{"steps": count, "status": "finished"}]} for task, count in steps.items()},
    )  # fmt: skip
    assert f"CartPole-v1: {steps['cartpole']:,} steps, 100 held-out episodes" in tables.study_budgets(results)
    assert f"({steps['rides']:,} steps), {BY_NAME['rides'].held_out} held-out days" in tables.study_budgets(results)
